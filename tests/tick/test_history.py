"""History: a table that was rolled back, stripped or replaced is halted, never guessed at; others go on."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Daemon
from bookkeeper.contract.marks import PROPERTY
from bookkeeper.errors import Halt, HistoryChanged, MarksLost, TableUnusable, WrongFolder
from bookkeeper.serve.loop import TableLoop, tick_once
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes, append_by_others

TEN_MINUTES = Daemon(backoff_most=timedelta(minutes=10))


def change(lake: Lake, *updates: Any) -> None:
    """A foreign commit that makes no snapshot."""
    table = lake.table()
    lake.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)


def roll_back(lake: Lake, steps: int = 1) -> int:
    """Puts `main` back; returns the snapshot that was its head."""
    snapshots = lake.table().metadata.snapshots
    target = snapshots[-1 - steps].snapshot_id
    change(lake, SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=target))
    return int(snapshots[-1].snapshot_id)


def recreate(lake: Lake) -> None:
    settings = lake.settings
    lake.catalog.drop_table(settings.identifier)
    lake.catalog.create_table(settings.identifier, schema_for(settings), properties={"format-version": "2"})


def lose_the_property(lake: Lake) -> None:
    change(lake, RemovePropertiesUpdate(removals=[PROPERTY]))


def lose_the_card(lake: Lake) -> None:
    lake.folder.store.delete_many(["card.json"])


def spoil_the_property(lake: Lake) -> None:
    change(lake, SetPropertiesUpdate(updates={PROPERTY: '{"version": 1}'}))


def drop(lake: Lake) -> None:
    lake.catalog.drop_table(lake.settings.identifier)


HALTS: list[tuple[Callable[[Lake], Any], type[Halt]]] = [
    (roll_back, HistoryChanged),
    (lose_the_property, MarksLost),
    (spoil_the_property, MarksLost),
    (recreate, TableUnusable),
    (drop, TableUnusable),
    (lose_the_card, WrongFolder),
]


@pytest.mark.parametrize(("happens", "error"), HALTS)
@pytest.mark.parametrize("restarted", [False, True])
def test_the_table_is_halted_and_nothing_is_touched(
    lake: Lake, writer: Writes, happens: Callable[[Lake], Any], error: type[Halt], restarted: bool
) -> None:
    book = lake.book()
    for key in "ab":
        writer.publish(key)
        lake.tick(book)
    writer.publish("c")
    happens(lake)
    book = lake.book() if restarted else book
    for _ in range(3):
        with pytest.raises(error) as halted:
            lake.tick(book, seconds=11)
        assert halted.value.hint
    assert len(lake.pending()) == 1


def test_a_table_that_is_halted_does_not_stop_another(lake: Lake, writer: Writes) -> None:
    other = Lake(lake.root, lake.clock, name="other", identifier="demo.other")
    slots = [TableLoop("events", lake.book), TableLoop("other", other.book)]
    for key in "ab":
        writer.publish(key)
        tick_once(slots[0], TEN_MINUTES, lake.clock.move(seconds=1))
    roll_back(lake)
    writer.publish("c")
    Writes(other, "w2").publish("x")
    for slot in slots:
        tick_once(slot, TEN_MINUTES, lake.clock.move(seconds=11))
    assert (slots[0].trouble, slots[1].trouble) == ("HistoryChanged", "")
    assert (other.keys(), len(lake.pending())) == (["x"], 1)


def test_an_accepted_rollback_goes_on_without_the_abandoned_rows(lake: Lake, writer: Writes) -> None:
    for key in "ab":
        writer.publish(key)
        lake.tick()
    roll_back(lake)
    writer.publish("c")
    ledger = lake.book().ledger
    view = ledger.load(lake.folder.card().folder, accept_rollback=True)
    ledger.record(view, view.marks, "accept-rollback")
    lake.tick()
    assert lake.keys() == ["a", "c"]
    assert lake.operations() == ["append", "append", "replace", "append"]


def test_a_rollback_behind_a_cached_view_is_noticed_by_the_commit(lake: Lake, writer: Writes) -> None:
    book = lake.book()
    for key in "ab":
        writer.publish(key)
        lake.tick(book)
    roll_back(lake)
    writer.publish("c")
    with pytest.raises(HistoryChanged):
        lake.tick(book)  # within the ten seconds in which it does not load the table
    assert lake.keys() == ["a"]


def test_a_commit_under_way_on_a_base_that_main_is_rolled_back_to_is_refused(lake: Lake, writer: Writes) -> None:
    """Its guard holds again, and its marks are older than the table's; a catalog of ours compares the metadata file."""
    faults, other = Faults(), Writes(lake, "other")
    slow, quick = lake.book(faults), lake.book()
    writer.publish("a")
    lake.tick(slow)
    writer.publish("b")

    def meanwhile() -> None:
        other.publish("c")
        quick.tick(lake.clock.now)
        roll_back(lake)

    faults.between("commit_table", meanwhile)
    for book in (slow, lake.book()):
        with pytest.raises(HistoryChanged):
            lake.tick(book)
    assert lake.keys() == ["a"]


@pytest.mark.parametrize("happens", [recreate, drop])
def test_a_table_replaced_between_load_and_commit_gets_none_of_our_files(
    either: Lake, happens: Callable[[Lake], Any]
) -> None:
    """Both are empty: only the table's uuid tells them apart."""
    lake, faults = either, Faults()
    Writes(lake).publish("a")
    faults.between("commit_table", lambda: happens(lake))
    with pytest.raises(TableUnusable):
        lake.tick(lake.book(faults))
    assert len(lake.pending()) == 1
    if happens is recreate:
        assert lake.operations() == []


def test_foreign_snapshots_after_the_marks_are_no_rollback(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    append_by_others(lake, Writes(lake, "foreign").file(["x"]))
    writer.publish("b")
    lake.tick()
    assert lake.keys() == ["a", "b", "x"]


def test_expiry_of_everything_before_the_marks_is_no_rollback(lake: Lake, writer: Writes) -> None:
    for key in "abc":
        writer.publish(key)
        lake.tick()
    old = [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots[:-1]]
    change(lake, RemoveSnapshotsUpdate(snapshot_ids=old))
    writer.publish("d")
    lake.tick()
    assert lake.keys() == ["a", "b", "c", "d"]


def test_the_folder_of_another_table_is_refused(lake: Lake) -> None:
    other = Lake(lake.root, lake.clock, name="other", identifier="demo.other")
    published = Writes(lake).publish("a")
    shutil.rmtree(other.made.folder.removeprefix("file://"))
    shutil.copytree(lake.made.folder.removeprefix("file://"), other.made.folder.removeprefix("file://"))
    with pytest.raises(WrongFolder):
        other.tick()
    assert other.pending() == [str(published)]


def test_a_folder_whose_card_names_another_table_is_refused_at_every_tick(lake: Lake, writer: Writes) -> None:
    """Even when the folder's id fits, as after a table was copied with its properties."""
    writer.publish("a")
    card = lake.folder.store.read("card.json")
    lake.put("card.json", card.replace(lake.made.uuid.encode(), b"00000000-0000-0000-0000-000000000000"))
    book = lake.book()
    for _ in range(3):
        with pytest.raises(WrongFolder):
            lake.tick(book)
    assert (len(lake.pending()), lake.operations()) == (1, [])


def test_init_refuses_to_start_anew_over_lost_marks(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    lose_the_property(lake)
    with pytest.raises(TableUnusable, match="lost its property"):
        initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store)


def test_a_property_restored_from_marks_json_lets_the_table_go_on(lake: Lake, writer: Writes) -> None:
    from bookkeeper.contract import marks_json

    writer.publish("a")
    lake.tick()
    copy = lake.folder.marks()
    assert copy is not None
    lose_the_property(lake)
    change(lake, SetPropertiesUpdate(updates={PROPERTY: marks_json.dumps(copy.marks)}))
    writer.publish("b")
    lake.tick()
    assert lake.keys() == ["a", "b"]
