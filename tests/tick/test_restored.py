"""
A backup put back: of the folder, of the catalog; and a table dropped and made again under its name.

Rows never vanish silently: what can be told from marks and marks.json is mended or halts the table, and is said.
"""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.errors import HistoryChanged, TableUnusable, WrongFolder
from bookkeeper.ledger.load import load
from tests.support.lake import Lake, Writes, append_by_others
from tests.tick.test_history import recreate


def folder_path(lake: Lake) -> Path:
    return Path(lake.made.folder.removeprefix("file://"))


def copied(lake: Lake) -> Path:
    """A copy of the txlog folder, as a backup makes it."""
    copy = lake.root.with_name("backup")
    shutil.copytree(folder_path(lake), copy)
    return copy


def put_back(lake: Lake, copy: Path) -> None:
    shutil.rmtree(folder_path(lake))
    shutil.copytree(copy, folder_path(lake))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.action for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[attr-defined]


# the folder


def test_an_old_copy_of_the_folder_doubles_nothing_and_is_said(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    book = lake.book()
    writer.publish("a")
    lake.tick(book)
    for key in "bc":
        writer.publish(key)
    copy = copied(lake)  # two pending, marks.json knows one
    lake.tick(book)
    writer.publish("d")
    lake.tick(book)
    put_back(lake, copy)
    assert len(lake.pending()) == 2
    lake.tick(book, seconds=11)
    assert (lake.keys(), lake.pending(), said(caplog)) == (["a", "b", "c", "d"], [], ["mend"])
    assert lake.folder.marks() == lake.view().marks_copy


def test_a_source_goes_on_exactly_once_after_an_old_copy_of_the_folder(lake: Lake, writer: Writes) -> None:
    """A run that starts on the old marks.json continues from an old position: refused, and it starts again."""
    writer.goes_on(b"1", "a")
    lake.tick()
    copy = copied(lake)
    writer.goes_on(b"2", "b")
    lake.tick()
    put_back(lake, copy)
    early = Writes(lake)
    stale = lake.folder.marks()
    assert stale is not None
    early.position = stale.marks.writer("w1").position
    lost = early.goes_on(b"2", "b")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a", "b"], {str(lost): "PositionTaken"})
    again = Writes(lake)
    mended = lake.folder.marks()
    assert mended is not None
    again.position = mended.marks.writer("w1").position
    again.goes_on(b"3", "c")
    lake.tick()
    assert lake.keys() == ["a", "b", "c"]


def test_txlogs_that_an_old_copy_lacks_are_said_as_a_gap(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    writer.publish("a")
    lake.tick()
    copy = copied(lake)
    lost = writer.publish("b")
    put_back(lake, copy)
    writer.publish("c")
    result = lake.tick()
    assert (lake.keys(), result.holes, said(caplog)) == (["a", "c"], [lost], ["gap"])


def test_an_old_copy_from_before_the_marks_were_pruned_doubles_nothing(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    name = writer.publish("a")
    copy = copied(lake)
    lake.tick()
    Writes(lake, "w2").publish("b")
    lake.tick(days=3)
    assert lake.view().marks.mark(name) is None
    put_back(lake, copy)
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a", "b"], {str(name): "IncarnationPruned"})
    assert "reject" in said(caplog)


def test_a_lost_marks_json_is_said_and_written_again(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    writer.publish("a")
    lake.tick()
    lake.folder.store.delete_many(["marks.json"])
    lake.tick()
    assert lake.folder.marks() == lake.view().marks_copy
    assert said(caplog) == ["mend"]


# the catalog


class Backup:
    """The catalog's database as it was; the metadata files stay on the disk as they are."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.row = self._row()

    def _row(self) -> Any:
        with self.lake.catalog.engine.connect() as connection:
            return connection.exec_driver_sql("SELECT metadata_location FROM iceberg_tables").scalar()

    def put_back(self) -> None:
        with self.lake.catalog.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (self.row,))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("first", ["", "a"])
def test_a_catalog_put_back_from_a_backup_halts_the_table(
    lake: Lake, writer: Writes, restarted: bool, others: int, first: str
) -> None:
    """Marks and main went back together, so only marks.json knows that rows are gone."""
    book = lake.book()
    if first:
        writer.publish(first)
        lake.tick(book)
    backup = Backup(lake)
    for key in "bc":
        writer.publish(key)
        lake.tick(book)
    backup.put_back()
    for number in range(others):  # until they are compared, the numbers may have overtaken ours
        append_by_others(lake, Writes(lake, "foreign").file([f"x{number}"]))
    writer.publish("d")
    book = lake.book() if restarted else book
    for _ in range(2):
        with pytest.raises(HistoryChanged, match=r"marks\.json") as halted:
            lake.tick(book, seconds=11)
    assert "newest metadata file" in halted.value.hint
    assert (len(lake.pending()), lake.keys().count("d")) == (1, 0)


def test_a_catalog_that_is_pointed_at_the_newest_metadata_again_goes_on(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    old = Backup(lake)
    writer.publish("b")
    lake.tick()
    new = Backup(lake)
    old.put_back()
    with pytest.raises(HistoryChanged):
        lake.tick()
    new.put_back()
    writer.publish("c")
    lake.tick()
    assert lake.keys() == ["a", "b", "c"]


def test_a_catalog_that_was_put_back_may_be_accepted_and_sources_read_again(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    backup = Backup(lake)
    for position, key in ((b"2", "b"), (b"3", "c")):
        writer.goes_on(position, key)
        lake.tick()
    backup.put_back()
    accept(lake)
    lake.tick()
    again = Writes(lake)
    copy = lake.folder.marks()
    assert copy is not None
    again.position = copy.marks.writer("w1").position
    assert again.position == b"1"
    again.goes_on(b"3", "b", "c")
    lake.tick()
    assert lake.keys() == ["a", "b", "c"]


def accept(lake: Lake) -> None:
    """What `bookkeeper accept-rollback --yes` does."""
    ledger = lake.book().ledger
    view, _, _ = load(ledger, lake.folder, accept_rollback=True)
    after = ledger.record(view, view.marks, "accept-rollback")
    lake.folder.publish_marks(after.marks_copy, even_older=True)


# the table


def test_a_table_made_again_under_its_name_loses_and_takes_nothing_until_a_person_decides(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    writer.publish("a")
    lake.tick()
    waiting = writer.publish("b")
    recreate(lake)
    with pytest.raises(TableUnusable) as halted:
        lake.tick()
    assert "init" in halted.value.hint
    with pytest.raises(WrongFolder):  # same location, so the old folder is still there
        initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store)
    assert lake.pending() == [str(waiting)]
    aside = folder_path(lake).with_name("_bookkeeper.old")
    folder_path(lake).rename(aside)
    initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store)
    late = writer.encoded([writer.file(["c"])], table_uuid=lake.made.uuid)
    lake.folder.publish(*late)  # by a run that did not notice
    Writes(lake, "w2").publish("d")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["d"], {str(late[0]): "WrongTable"})
    assert (aside / "pending" / str(waiting)).exists()
