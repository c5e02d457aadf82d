"""
A run killed around every storage and catalog operation, then run again: nothing needed is gone, nothing planned stays.
"""

import json
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import BookkeeperError
from bookkeeper.history.registry import COMMAND, Registry, reader, spark
from bookkeeper.leases.lease import NoLease
from bookkeeper.stores.open import open_store
from reaper.files import live_paths, storage
from tests.support.checkpoints import Query, offset
from tests.support.reaper_faults import SOME, Crash, Faults
from tests.support.reaper_lake import ReaperLake

HOUR = timedelta(hours=1)
#: of each batch that is deleted, so many subsets are what a crash has left gone
SUBSETS = 4
CHANGES = {"create", "replace", "delete_many", "commit_table"}


class Stage:
    """A lake that can be set back to how it was."""

    def __init__(self, root: Path, stock: bool) -> None:
        (root / "lake").mkdir()
        self.lake = ReaperLake(root / "lake", stock=stock)
        self.copy = root / "copy"

    def keep(self) -> None:
        self.lake.catalog.engine.dispose()
        shutil.copytree(self.lake.root, self.copy)

    def set_back(self) -> None:
        shutil.rmtree(self.lake.root)
        shutil.copytree(self.copy, self.lake.root)
        self.lake.catalog = self.lake.opened()

    def run(self, faults: Faults) -> Any:
        """One run, with objects of its own."""
        lake = self.lake
        catalog = lake.opened()
        try:
            return lake.reap(catalog=faults.catalog(catalog), open_store=faults.stores(lake.now + HOUR))
        finally:
            catalog.engine.dispose()


def made(root: Path, stock: bool) -> Stage:
    """One line of history, with everything in it that a run deletes."""
    stage = Stage(root, stock)
    lake = stage.lake
    files = [lake.data_file() for _ in range(3)]
    for _ in range(7):
        lake.append()
    lake.append(*files)
    lake.delete(files[0].file_path, files[1].file_path)
    for _ in range(4):
        lake.append()
    consumer(root, lake)
    orphan(lake)
    stage.keep()
    return stage


def consumer(root: Path, lake: ReaperLake) -> None:
    """A query that needs the newest two snapshots only, and one whose record holds nothing."""
    query = Query(root / "cp").begin(offset(lake.history()[0])).done(offset(lake.history()[-2], 1))
    registry = Registry(open_store(f"file://{lake.folder_path}"))
    registry.add(spark("live", query.url, lake.now, by=COMMAND))
    registry.add(reader("lapsed", lake.history()[0], lake.now, timedelta(minutes=1)))


def orphan(lake: ReaperLake) -> None:
    """An old file that nothing names, found by a sweep before."""
    path = f"{lake.location}/data/lost.parquet"
    Path(path).write_bytes(b"1234")
    at, uuid = (lake.now - HOUR).isoformat(), str(lake.table().metadata.table_uuid)
    state = {"version": 1, "table-uuid": uuid, "at": at, "seen": {f"file://{path}": at}}
    (lake.folder_path / "reaper").mkdir(exist_ok=True)
    (lake.folder_path / "reaper/orphans.json").write_text(json.dumps(state))


def promised(lake: ReaperLake) -> set[str]:
    """What the next run says it will delete."""
    found = lake.outlook()
    return {*found.files.sizes(), *(item.location for item in found.orphans if item.due(lake.now + HOUR))}


def ways(faults: Faults) -> list[tuple[int, str]]:
    """Every way to crash a run that made these calls; before a read nothing differs from after the call before."""
    calls = list(enumerate(faults.calls))
    found = [(number, "after") for number, _ in calls]
    found += [(number, "before") for number, name in calls if name in CHANGES or number == 0]
    deletes = [number for number, name in calls if name == "delete_many"]
    return found + [(number, f"{SOME}{seed}") for number in deletes for seed in range(SUBSETS)]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [storage.AT_ONCE, 16])
def test_a_run_killed_anywhere_is_finished_by_the_next(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "AT_ONCE", at_once)
    monkeypatch.setattr(live_paths, "FEW_BYTES", -1)
    stage = made(tmp_path, stock=False)
    lake = stage.lake
    rows = lake.rows()
    planned = lake.outlook().files
    assert planned.data and planned.manifests and planned.manifest_lists and planned.metadata
    recorded = Faults()
    stage.run(recorded)
    assert recorded.calls.count("commit_table") == 1

    for way in ways(recorded):
        stage.set_back()
        with pytest.raises(Crash):
            stage.run(Faults(way))
        assert lake.reachable() <= lake.disk().keys(), way
        expected, left = promised(lake), lake.disk().keys()
        stage.run(Faults())
        assert lake.rows() == rows, way
        assert lake.reachable() <= lake.disk().keys(), way
        assert not planned.sizes().keys() & lake.disk().keys(), way
        assert expected == left - lake.disk().keys(), way
        assert not Path(f"{lake.location}/data/lost.parquet").exists(), way
        assert not (lake.folder_path / "reaper/journal.json").exists(), way


@pytest.mark.slow
def test_a_second_reaper_at_any_step_of_a_run_takes_nothing_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lease is taken once a run: on an object store it ends while a run takes longer, and another may begin.
    monkeypatch.setattr("reaper.run.lease_on", lambda *_: NoLease())
    stage = made(tmp_path, stock=False)
    lake = stage.lake
    rows, planned = lake.rows(), lake.outlook().files.sizes().keys()
    recorded = Faults()
    stage.run(recorded)

    intact: list[bool] = []

    def second() -> None:
        with suppress(BookkeeperError):
            stage.run(Faults())
        intact.append(lake.reachable() <= lake.disk().keys())

    for number, name in enumerate(recorded.calls):
        stage.set_back()
        earlier = recorded.calls[:number].count(name)
        with suppress(BookkeeperError):
            stage.run(Faults().before(name, *[lambda: None] * earlier, second))
        assert (lake.rows(), lake.reachable() <= lake.disk().keys()) == (rows, True), (number, name)
        assert len(intact) == number + 1 and all(intact), (number, name)
        stage.run(Faults())
        assert (lake.rows(), lake.reachable() <= lake.disk().keys()) == (rows, True), (number, name)
        assert not planned & lake.disk().keys(), (number, name)
        assert not (lake.folder_path / "reaper/journal.json").exists(), (number, name)


@pytest.mark.slow
def test_a_tag_made_in_the_last_moment_survives_a_run_killed_anywhere(tmp_path: Path) -> None:
    stage = made(tmp_path, stock=True)
    lake = stage.lake
    target = lake.history()[2]
    rows = lake.rows(target)

    def tagging(crash: tuple[int, str] | None) -> Faults:
        return Faults(crash).before("commit_table", lambda: lake.ref("late", target))

    recorded = tagging(None)
    stage.run(recorded)
    assert recorded.calls.count("commit_table") == 2
    for way in ways(recorded):
        stage.set_back()
        with pytest.raises(Crash):
            stage.run(tagging(way))
        stage.run(Faults())
        if way[0] >= recorded.calls.index("commit_table"):
            assert lake.refs()["late"].snapshot_id == target, way
            assert lake.rows(target) == rows, way
        assert lake.reachable() <= lake.disk().keys(), way
