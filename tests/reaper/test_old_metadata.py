"""
Old metadata.json files: which go, and which must not.
"""

import gzip
import os
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.config.settings import Reaper
from reaper.files import old_metadata
from reaper.files.old_metadata import still_old
from tests.support.disk import WRITES, Disk, mounted
from tests.support.reaper_lake import NAME, ReaperLake

ONLY_METADATA = Reaper(retain_last=1000, metadata_keep=timedelta(hours=1))
HOUR = timedelta(hours=1)


@pytest.fixture
def lake(tmp_path: Path) -> ReaperLake:
    """A table that nothing expires from, with 21 metadata files, each as old as its snapshot."""
    lake = ReaperLake(tmp_path, ONLY_METADATA)
    for number in range(20):
        lake.append()
        stamp(lake, lake.table().metadata_location, number)
    return lake


def stamp(lake: ReaperLake, location: str, minutes: float) -> None:
    """Sets the file's time to so many minutes after the first snapshot."""
    at = (lake.now - timedelta(minutes=19) + timedelta(minutes=minutes)).timestamp()
    os.utime(location.removeprefix("file://"), (at, at))


def versions(lake: ReaperLake) -> list[int]:
    names = [os.path.basename(path) for path in lake.disk() if path.endswith(".metadata.json")]
    return sorted(int(name.partition("-")[0]) for name in names)


def test_the_current_one_and_the_ten_before_it_stay_however_old(lake: ReaperLake) -> None:
    done = lake.reap(now=lake.now + timedelta(days=30))
    assert (done.snapshots, done.metadata_files) == (0, 10)
    assert versions(lake) == list(range(10, 21))
    assert lake.rows() == list(range(20))


def test_on_a_full_disk_they_make_room_for_what_expires(lake: ReaperLake) -> None:
    lake.settings = replace(lake.settings, reaper=replace(ONLY_METADATA, retain_last=1, older_than=HOUR))
    full = Disk(lambda _, call: call in WRITES and len(versions(lake)) == 21)
    with mounted(full):
        done = lake.reap(now=lake.now + timedelta(days=1))
    assert (done.metadata_files, done.snapshots) == (10, 19)


def test_age_counts_from_when_a_file_was_replaced(lake: ReaperLake) -> None:
    lake.now += timedelta(hours=5)
    for _ in range(11):
        lake.append()
    lake.reap(now=lake.now + timedelta(minutes=45))
    assert versions(lake) == list(range(20, 32))
    lake.reap(now=lake.now + timedelta(minutes=45) + HOUR)
    assert versions(lake) == list(range(21, 32))


def test_what_fell_out_of_the_log_and_what_a_lost_race_left_goes_by_its_own_age(lake: ReaperLake) -> None:
    lake.properties(write__metadata__previous_versions_max="12")
    lake.append()
    current = Path(lake.table().metadata_location.removeprefix("file://"))
    in_flight = current.with_name("00099-younger.metadata.json")
    lost = current.with_name("00003-lost.metadata.json")
    packed = current.with_name("00004-packed.gz.metadata.json")
    for path in (in_flight, lost):
        path.write_bytes(current.read_bytes())
    packed.write_bytes(gzip.compress(current.read_bytes()))
    stamp(lake, str(current), 30)
    stamp(lake, str(in_flight), 31)
    stamp(lake, str(lost), 5)
    stamp(lake, str(packed), 5)
    lake.reap(now=lake.now + timedelta(days=1))
    assert in_flight.exists() and current.exists()
    assert not lost.exists() and not packed.exists()
    assert versions(lake) == [*range(12, 23), 99]


def test_gzip_files_go_as_plain_ones_do(lake: ReaperLake) -> None:
    lake.properties(write__metadata__compression_codec="gzip")
    for number in range(15):
        lake.append()
        stamp(lake, lake.table().metadata_location, 25 + number)
    assert lake.table().metadata_location.endswith(".gz.metadata.json")
    done = lake.reap(now=lake.now + timedelta(days=30))
    assert (done.snapshots, done.metadata_files) == (0, 26)
    assert versions(lake) == list(range(26, 37))
    assert lake.rows() == list(range(35))


@pytest.mark.parametrize("kind", ["bomb", "torn", "no gzip"])
def test_a_gzip_file_of_no_table_stays_and_takes_no_memory(
    lake: ReaperLake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_metadata, "MOST_UNPACKED", 2**16)
    current = Path(lake.table().metadata_location.removeprefix("file://"))
    bad = current.with_name("00005-bad.gz.metadata.json")
    bomb = gzip.compress(b" " * 2**26 + current.read_bytes())
    bad.write_bytes({"bomb": bomb, "torn": bomb[:1000], "no gzip": bomb[:2] + b"x" * 1000}[kind])
    stamp(lake, str(bad), 5)
    tracemalloc.start()
    try:
        lake.reap(now=lake.now + timedelta(days=30))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bad.exists() and peak < 2**24
    assert len(old_metadata._unzipped(bad.read_bytes())) <= 2**16


def test_metadata_of_another_table_in_the_same_place_stays(lake: ReaperLake) -> None:
    lake.catalog.drop_table(NAME)
    lake.make()
    for _ in range(3):
        lake.append()
    stamp(lake, lake.table().metadata_location, 60)
    before = lake.disk().keys()
    lake.reap(now=lake.now + timedelta(days=1))
    assert lake.disk().keys() == before


def test_files_in_the_folder_that_are_no_metadata_json_stay(lake: ReaperLake) -> None:
    stray = Path(lake.location) / "metadata" / "notes.txt"
    stray.write_text("mine")
    stamp(lake, str(stray), -1000)
    lake.reap(now=lake.now + timedelta(days=1))
    assert stray.exists()


def test_what_is_among_the_last_ten_when_it_comes_to_deleting_is_spared(lake: ReaperLake) -> None:
    table = lake.table()
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    assert still_old(table, [*log, table.metadata_location, "file:///elsewhere"]) == [*log[:-10], "file:///elsewhere"]
