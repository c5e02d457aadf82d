"""
A run on a real table: what goes, what stays, and that `outlook` says so before.
"""

import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ClockBehind
from bookkeeper.stores.open import open_store
from reaper.expiry import verify_journal
from reaper.files.storage import Pace
from tests.support.cards import card
from tests.support.reaper_faults import Faults
from tests.support.reaper_lake import ReaperLake


def test_expired_snapshots_go_with_their_files_and_the_rest_reads_the_same(lake: ReaperLake) -> None:
    for _ in range(6):
        lake.append()
    before = lake.disk()

    done = lake.reap()

    assert done.snapshots == 4
    assert len(lake.history()) == 2
    assert lake.rows() == [0, 1, 2, 3, 4, 5]
    assert lake.reachable() <= lake.disk().keys()
    assert len(before.keys() - lake.disk().keys()) == done.manifests + done.metadata_files


def test_what_is_planned_is_exactly_what_disappears(lake: ReaperLake) -> None:
    files = [lake.data_file() for _ in range(20)]
    for file in files:
        lake.append(file)
    lake.delete(files[0].file_path, files[1].file_path)
    lake.merge()
    for _ in range(3):
        lake.append()
    before = lake.disk()
    planned = lake.outlook().files

    done = lake.reap()

    gone = {path: size for path, size in before.items() if path not in lake.disk()}
    assert planned.sizes() == gone
    assert planned.data.keys() == {files[0].file_path, files[1].file_path}
    assert all(getattr(planned, kind) for kind in ("manifests", "manifest_lists", "metadata"))
    assert (done.data_files, done.bytes) == (2, sum(gone.values()))
    assert lake.rows() == [*range(2, 23)]
    assert lake.reachable() <= lake.disk().keys()


@pytest.mark.parametrize("place", ["memory://reapers-folder", "file://{root}/aside", "{root}/aside"])
def test_the_txlog_folder_may_lie_elsewhere(tmp_path: Path, place: str) -> None:
    (tmp_path / "aside").mkdir()
    lake = ReaperLake(tmp_path, folder=place.format(root=tmp_path))
    own = card(table_uuid=str(lake.table().metadata.table_uuid))
    Folder(open_store(place.format(root=tmp_path))).write_card(own)
    file = lake.data_file()
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(3):
        lake.append()
    assert lake.reap().data_files == 1
    assert lake.rows() == [1, 2, 3]


def test_a_run_that_did_something_says_so_in_one_line(lake: ReaperLake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reaper")
    for _ in range(4):
        lake.append()
    done = lake.reap()
    lake.reap()
    assert [(record.action, record.levelname, record.table, record.snapshots) for record in caplog.records] == [
        ("reap", "INFO", "events", 2)
    ]
    assert caplog.records[0].bytes == done.bytes > 0


def test_an_empty_table_is_left_alone(lake: ReaperLake) -> None:
    assert not lake.reap()
    assert not lake.outlook().files.sizes()


def test_a_run_that_is_told_to_stop_ends_after_its_step(lake: ReaperLake) -> None:
    lake.append()
    lake.burst(210)
    assert lake.reap(stopped=lambda: True).snapshots == 100
    assert lake.reap().snapshots == 109


def test_a_run_by_a_clock_that_is_behind_does_nothing(lake: ReaperLake) -> None:
    lake.append()
    lake.burst(210)
    with pytest.raises(ClockBehind):
        lake.reap(now=lake.now - timedelta(seconds=31))
    with pytest.raises(ClockBehind):
        lake.outlook(lake.now - timedelta(seconds=31))


def test_commits_since_a_run_began_are_not_taken_for_a_clock_that_is_behind(lake: ReaperLake) -> None:
    """A journal is finished before, or the storage is slow: a minute has passed when the table is loaded."""
    for _ in range(4):
        lake.append()
    began = lake.now + timedelta(hours=1)
    lake.now = began + timedelta(minutes=1)
    lake.append()
    slow = partial(lake.reap, now=began, open_store=lake.stores(lake.now))
    with pytest.raises(ClockBehind):
        slow(clock=lambda: lake.now - timedelta(seconds=31))
    assert slow(clock=lambda: lake.now).snapshots == 3


def test_a_run_that_takes_longer_than_others_commit_goes_on_by_the_time_it_began(lake: ReaperLake) -> None:
    lake.append()
    lake.burst(250)
    began = lake.now + timedelta(minutes=20)

    def others() -> None:
        lake.now = began + timedelta(minutes=5)
        lake.append()

    faults = Faults().before("commit_table", others)
    done = lake.reap(now=began, catalog=faults.catalog(lake.opened()), open_store=faults.stores(began))
    assert done.snapshots >= 249


def test_deletes_keep_to_their_rate_and_say_how_far_they_are(lake: ReaperLake) -> None:
    for _ in range(8):
        lake.append()
    lake.settings = replace(lake.settings, reaper=replace(lake.settings.reaper, deletes_per_second=5))
    waits: list[float] = []
    reported: list[int] = []

    done = lake.reap(pace=Pace(wait=waits.append, on_deleted=reported.append))

    deleted = done.manifests + done.metadata_files + done.data_files
    assert reported[-1] == deleted > 5
    assert max(waits) <= 1.0 and sum(waits) == pytest.approx(deleted / 5)


def test_after_its_commit_a_run_reads_only_the_metadata_that_it_replaced(
    lake: ReaperLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        lake.append()
    read = list[str]()
    real = verify_journal._read

    def counted(io: FileIO, location: str) -> TableMetadata | None:
        read.append(location)
        return real(io, location)

    monkeypatch.setattr(verify_journal, "_read", counted)
    assert lake.reap().snapshots == 18
    assert len(read) <= 1


def test_a_run_says_what_it_asked_of_the_storage(lake: ReaperLake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reaper")
    for _ in range(8):
        lake.append()
    lake.reap()
    few = caplog.records[-1].requests
    assert 0 < few < 40
