"""What docs/operate.md tells to do after a disaster, done: a backup in its order, a lost catalog, a lost folder."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.commands.verify import ERROR, verify
from bookkeeper.errors import BookkeeperError, HistoryChanged, StorageUnavailable, WrongFolder
from tests.support.lake import Lake, Writes
from tests.tick.test_history import change, roll_back

#: as the page orders them, below the lake's root
ORDER = ("demo/events/_bookkeeper", "catalog.db", "demo/events/metadata", "demo/events/data")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def commit(lake: Lake, writer: Writes, key: str) -> None:
    writer.goes_on(key.encode(), key)
    lake.tick()


def take(lake: Lake, part: str, to: Path) -> None:
    """Copies one part, while others work on; what SQLite has not moved out of its log yet is in no plain copy."""
    source, target = lake.root / part, to / part
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
        return
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as copy:
        there.backup(copy)


def back_up(lake: Lake, order: tuple[str, ...]) -> Path:
    """A backup that takes its time: a commit and a pending txlog between each two parts."""
    writer, copy = Writes(lake), lake.root.with_name("backup")
    for number, part in enumerate(order):
        commit(lake, writer, f"{number}a")
        writer.goes_on(f"{number}b".encode(), f"{number}b")
        take(lake, part, copy)
    return copy


def put_back(lake: Lake, copy: Path) -> None:
    lake.catalog.engine.dispose()  # type: ignore[attr-defined]
    shutil.rmtree(lake.root)
    shutil.copytree(copy, lake.root)


def wrong(lake: Lake) -> list[str]:
    return [finding.what for finding in verify(lake.audit()) if finding.severity == ERROR]


def test_a_backup_in_the_order_of_the_page_is_whole_and_goes_on(lake: Lake) -> None:
    put_back(lake, back_up(lake, ORDER))

    assert wrong(lake) == []
    lake.tick()
    # What the catalog knew when it was copied, with what was pending then or before.
    assert lake.keys() == ["0a", "0b", "1a"]
    assert lake.pending() == [] and lake.rejected() == {}

    again = Writes(lake)
    again.position = lake.view().marks.writers["w1"].position
    commit(lake, again, "after")
    assert again.position == b"after" and lake.keys()[-1] == "after" and wrong(lake) == []


def test_a_backup_in_the_wrong_order_halts_and_guesses_nothing(lake: Lake) -> None:
    put_back(lake, back_up(lake, (ORDER[1], ORDER[0], *ORDER[2:])))

    with pytest.raises(HistoryChanged):
        lake.tick()


def test_a_lost_catalog_is_made_again_from_the_newest_metadata_file(lake: Lake) -> None:
    writer = Writes(lake)
    for key in "ab":
        commit(lake, writer, key)
    writer.goes_on(b"c", "c")
    newest = lake.table().metadata_location
    lake.catalog.engine.dispose()  # type: ignore[attr-defined]
    for file in lake.root.glob("catalog.db*"):
        file.unlink()
    lake.catalog = open_catalog(lake.catalog_settings, create=True)
    with pytest.raises(BookkeeperError):
        lake.tick()

    lake.catalog.create_namespace("demo")
    lake.catalog.register_table("demo.events", newest)
    lake.tick()

    assert lake.keys() == ["a", "b", "c"] and wrong(lake) == []


def test_a_lost_folder_is_made_again_by_init_and_sources_go_on_once(lake: Lake) -> None:
    writer = Writes(lake)
    commit(lake, writer, "a")
    shutil.rmtree(lake.root / ORDER[0])
    with pytest.raises(StorageUnavailable, match="is not there"):
        lake.tick()
    (lake.root / ORDER[0]).mkdir()  # an object store has no folders: there it is only empty
    with pytest.raises(WrongFolder, match=r"no card\.json") as halted:
        lake.tick()
    assert "bookkeeper init" in halted.value.hint

    initialise(lake.catalog, lake.settings, schema_for(lake.settings))
    too_early = Writes(lake)  # marks.json is not there yet: it begins at the beginning, and is refused
    too_early.goes_on(b"a", "a")
    lake.tick()
    again = Writes(lake)
    again.position = lake.view().marks.writers["w1"].position
    commit(lake, again, "b")

    assert lake.keys() == ["a", "b"]
    assert set(lake.rejected().values()) == {"PositionTaken"}


def test_a_rollback_by_mistake_is_undone_by_setting_main_back(lake: Lake) -> None:
    writer = Writes(lake)
    for key in "ab":
        commit(lake, writer, key)
    newest = lake.table().current_snapshot().snapshot_id
    roll_back(lake)
    writer.goes_on(b"c", "c")
    with pytest.raises(HistoryChanged, match="no ancestor of main"):
        lake.tick()
    assert len(lake.pending()) == 1

    change(lake, SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=newest))
    lake.tick()

    assert lake.keys() == ["a", "b", "c"] and wrong(lake) == []
