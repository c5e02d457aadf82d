"""Live files that the table names by another way than its location: by a link, or by another name of one account."""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate

from reaper import orphans
from reaper.context import ReaperContext
from reaper.files.disk_difference import DiskDifference
from reaper.orphans import _known_by
from tests.reaper.test_orphans import DAY, HOUR, hide, place, stamp
from tests.support.reaper_lake import REAPER, ReaperLake

OLD = "wasbs://c@account.blob.core.windows.net/t"
NEW = "abfss://c@account.dfs.core.windows.net/t"


@pytest.fixture
def moved(tmp_path: Path) -> ReaperLake:
    """A table of old files, whose location was changed to a link that leads to it."""
    lake = ReaperLake(tmp_path / "disk", reaper=replace(REAPER, older_than=timedelta(days=3650)))
    for _ in range(3):
        lake.append()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    location = lake.location.replace(f"{tmp_path}/disk", f"{tmp_path}/link")
    lake._commit(SetLocationUpdate(location=f"file://{location}"))
    return lake


def files(lake: ReaperLake) -> set[Path]:
    return {Path(folder) / name for folder, _, names in os.walk(lake.location) for name in names}


def age(lake: ReaperLake) -> None:
    """Nine days pass, and main moves."""
    old, then = files(lake), lake.now
    lake.now += 9 * DAY
    lake.append()
    for path in files(lake):
        stamp(path, timedelta(0), then if path in old else lake.now)


def swept(lake: ReaperLake) -> set[str]:
    gone = dict[str, int]()
    for now in (lake.now, lake.now + HOUR):
        gone |= orphans.sweep(ReaperContext.of(lake.settings, lake.opened(), lake.stores(now), now), now)
    return {path.rpartition("/")[2] for path in gone}


def test_files_that_are_named_by_the_old_location_stay_and_an_orphan_goes(moved: ReaperLake) -> None:
    place(moved, "data/lost.parquet", DAY)
    age(moved)
    assert swept(moved) == {"lost.parquet"}
    assert moved.rows() == [0, 1, 2, 3]


def test_a_file_that_a_txlog_names_by_the_old_location_stays(moved: ReaperLake) -> None:
    hide(moved, place(moved, "data/written.parquet", DAY), "pending")
    age(moved)
    assert swept(moved) == set()


def test_the_metadata_files_before_the_current_one_stay(moved: ReaperLake) -> None:
    before = {path for path in moved.disk() if path.endswith(".metadata.json")}
    age(moved)
    moved.reap(now=moved.now + DAY)
    assert before <= moved.disk().keys()


@pytest.mark.parametrize("named", [f"{OLD}/data/a.parquet", f"{NEW}/data/a.parquet"])
def test_two_names_of_one_account_lead_to_one_file(named: str) -> None:
    with DiskDifference() as unnamed:
        for name in ("a", "b"):
            unnamed.add(f"{NEW}/data/{name}.parquet", [])
        unnamed.subtract(_known_by([named], (f"{NEW}/metadata", f"{NEW}/data")))
        assert [*unnamed.remaining()] == [(f"{NEW}/data/b.parquet", [])]
