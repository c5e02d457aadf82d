"""Offsets of slots: merged in the commit that adds the rows, compared never; a bad one costs its txlog alone."""

import json
from typing import Any

import pytest

from bookkeeper.commands.discard import discard, outlook
from bookkeeper.commands.replay import replay
from bookkeeper.commands.restore_marks import restorable, restore
from bookkeeper.commands.verify import Audit, repair, verify
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract import offsets as offsets_format
from bookkeeper.contract.offsets import FORGOTTEN
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import CommitConflict, MarksLost, PositionTaken
from tests.support.faults import AFTER, BEFORE, Crash, Faults, crash
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot, offsets_of


def marks_property(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lake.table().properties[marks_format.PROPERTY])
    return found


def test_offsets_come_with_the_rows_and_channels_that_are_not_named_stay(either: Lake) -> None:
    slot = Slot(either)
    slot.reaches("a", p0="7", p1="3")
    slot.reaches("b", p1="4")
    either.tick()
    assert (either.keys(), offsets_of(either), either.operations()) == (["a", "b"], {"p0": "7", "p1": "4"}, ["append"])
    slot.reaches("c", p2="1")
    either.tick()
    assert (either.keys(), offsets_of(either)) == (["a", "b", "c"], {"p0": "7", "p1": "4", "p2": "1"})
    copy = either.folder.marks()
    assert copy is not None and copy.marks == either.view().marks and marks_property(either)["version"] == 2


def test_offsets_are_not_compared_and_the_position_is(lake: Lake) -> None:
    """A slot may read a channel again from before: only where it goes on from says whether a txlog gets in."""
    old = Slot(lake)
    old.reaches("a", p0="7")
    lake.tick()
    new = Slot(lake, position=old.position)
    new.reaches("again", p0="3")
    lake.tick()
    lost = [old.reaches("b", p0="8"), old.reaches("c", p0="9", p1="1")]
    lake.tick()
    assert (lake.keys(), offsets_of(lake)) == (["a", "again"], {"p0": "3"})
    assert lake.rejected() == {str(name): "PositionTaken" for name in lost}


def test_a_fork_in_one_batch_leaves_the_offsets_of_one_run(lake: Lake) -> None:
    one, two = Slot(lake), Slot(lake)
    for count in "12":
        one.reaches(f"one{count}", p0=f"one{count}")
        two.reaches(f"two{count}", p0=f"two{count}", p1="two")
    lake.drain()
    assert (lake.keys(), offsets_of(lake)) == (["one1", "one2"], {"p0": "one2"})
    assert len(lake.rejected()) == 2


def test_two_slots_have_offsets_of_their_own(lake: Lake) -> None:
    Slot(lake).reaches("a", p0="7")
    Slot(lake, "slot-01").reaches("b", q0="1")
    Writes(lake).publish("c")
    lake.tick()
    assert (offsets_of(lake), offsets_of(lake, "slot-01"), offsets_of(lake, "w1")) == ({"p0": "7"}, {"q0": "1"}, {})


def test_a_channel_has_one_slot_in_a_batch_and_in_the_table(lake: Lake) -> None:
    """Its rows would come twice: an instance with another number of slots runs beside it."""
    slot, other = Slot(lake), Slot(lake, "slot-01")
    slot.reaches("a", p0="7")
    lost = [other.reaches("a", p0="7", q0="1")]
    lake.tick()
    lost += [Slot(lake, "slot-02").reaches("a", p0="7")]
    slot.reaches("b", p0="8")
    lake.tick()
    Slot(lake, "slot-01").reaches("c", q0="1")
    lake.tick()
    assert lake.keys() == ["a", "b", "c"]
    assert (offsets_of(lake), offsets_of(lake, "slot-01")) == ({"p0": "8"}, {"q0": "1"})
    assert lake.rejected() == {str(name): "ChannelTaken" for name in lost}
    assert "p0 is read by slot-00" in lake.folder.reason(lost[1])["reason"]


def test_a_rejected_txlog_moves_no_offset(lake: Lake) -> None:
    slot = Slot(lake)
    slot.reaches("a", p0="7")
    before = slot.position
    bad = slot.publish("b", position=b"2.x", previous_position=before, offsets={"p0": "9"}, table_uuid="another")
    slot.position = b"2.x"
    behind_it = slot.reaches("c", p1="1")
    lake.drain()
    assert (lake.keys(), offsets_of(lake)) == (["a"], {"p0": "7"})
    assert lake.rejected() == {str(bad): "WrongTable", str(behind_it): "PositionTaken"}
    # Its rows are read again, and then no replay of it fits.
    Slot(lake, position=before).reaches("b", p0="8")
    lake.drain()
    with pytest.raises(PositionTaken):
        replay(lake.folder, lake.book().ledger, lake.settings, behind_it, lake.clock.now)
    assert offsets_of(lake) == {"p0": "8"}


def test_a_replayed_txlog_brings_its_offsets(lake: Lake) -> None:
    slot = Slot(lake)
    name = slot.reaches("a", p0="7")
    data = lake.folder.read([name])[name]
    assert isinstance(data, bytes)
    lake.tick(lake.book(check_files=True))
    late = slot.reaches("b", p0="8")
    file = f"slot-00-{late.incarnation}-{late.sequence:010d}-b.parquet"
    path = lake.made.folder.removeprefix("file://").replace("_bookkeeper", "data")
    with open(f"{path}/{file}", "rb") as there:
        content = there.read()
    lake.store(f"file://{path}").delete_many([file])
    lake.drain()
    assert lake.rejected() == {str(late): "FileMissing"} and offsets_of(lake) == {"p0": "7"}
    lake.store(f"file://{path}").upload(file, content)
    replay(lake.folder, lake.book().ledger, lake.settings, late, lake.clock.now)
    lake.drain()
    assert (lake.keys(), offsets_of(lake), lake.rejected()) == (["a", "b"], {"p0": "8"}, {})


# txlogs without rows


def test_offsets_over_nothing_are_a_replace_and_never_an_empty_append(either: Lake) -> None:
    slot = Slot(either)
    slot.reaches(p0="7")
    result = either.tick()
    assert (either.operations(), offsets_of(either), either.pending()) == (["replace"], {"p0": "7"}, [])
    assert (result.commit.txlogs, result.commit.files, result.commit.rows) == (1, 0, 0)
    summary = either.table().metadata.snapshots[-1].summary.additional_properties
    assert "added-data-files" not in summary and summary["bookkeeper.txlog-count"] == "1"
    slot.reaches("a", p0="8")
    slot.reaches(p0="9")
    either.tick()
    assert (either.operations(), offsets_of(either)) == (["replace", "append"], {"p0": "9"})
    assert either.keys() == ["a"]
    manifests = either.table().current_snapshot().manifests(either.table().io)
    assert [manifest.added_files_count for manifest in manifests] == [1]


def test_a_txlog_without_rows_and_without_offsets_is_rejected_as_before(lake: Lake) -> None:
    writer = Writes(lake)
    lake.folder.publish(*writer.encoded([], position=b"1"))
    lake.tick()
    assert [*lake.rejected().values()] == ["EntryInvalid"]


def test_an_empty_one_in_the_middle_keeps_the_chain(lake: Lake) -> None:
    """Were it dropped, what comes behind it would be rejected."""
    slot = Slot(lake)
    for keys in (["a"], [], ["b"]):
        slot.reaches(*keys, p0=str(slot.name.sequence))
        lake.tick()
    assert (lake.keys(), offsets_of(lake), lake.rejected()) == (["a", "b"], {"p0": "2"}, {})
    assert lake.operations() == ["append", "replace", "append"]


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("rows", [["a"], []], ids=["rows", "none"])
def test_a_crash_around_the_commit_and_behind_it_leaves_rows_and_offsets_together(
    lake: Lake, faults: Faults, when: str, rows: list[str]
) -> None:
    for at, operation in enumerate(("commit_table", "replace folder/marks.json", "delete folder/pending/")):
        slot, channel = Slot(lake, f"slot-0{at}"), f"p{at}"
        slot.reaches(*rows, **{channel: "7"})
        with pytest.raises(Crash):
            lake.tick(lake.book(faults.on(operation, when, crash)))
        faults.clear()
        seen = offsets_of(lake, slot.name.writer)
        assert seen == ({} if (operation, when) == ("commit_table", BEFORE) else {channel: "7"})
        lake.drain()
        assert (offsets_of(lake, slot.name.writer), lake.pending()) == ({channel: "7"}, [])
    assert lake.keys() == ["a"] * 3 * len(rows) and lake.rejected() == {}


def test_a_lost_reply_merges_them_once(lake: Lake, faults: Faults) -> None:
    slot = Slot(lake)
    slot.reaches(p0="7")
    lake.tick(lake.book(faults.on("commit_table", AFTER, TimeoutError)))
    assert (offsets_of(lake), lake.operations(), lake.pending()) == ({"p0": "7"}, ["replace"], [])


def test_a_commit_in_between_is_a_conflict_also_for_one_without_rows(either: Lake) -> None:
    """Two bookkeepers have the same view: of two changes of marks one is made anew."""
    slot = Slot(either)
    Slot(either, "slot-01").reaches("a", q0="1")
    either.tick()
    ledger, view = either.book().ledger, either.view()
    slot.reaches("b", p0="7")
    either.tick()
    with pytest.raises(CommitConflict):
        ledger.record(view, view.marks, "renew")
    assert offsets_of(either) == {"p0": "7"}


# room


def test_channels_past_the_room_cost_their_txlog_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 3)
    slot, other = Slot(lake), Slot(lake, "slot-01")
    slot.reaches("a", p0="1", p1="1")
    lake.tick()
    refused = other.reaches("b", q0="1", q1="1")
    slot.reaches("c", p0="2", p2="1")
    Writes(lake).publish("d")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a", "c", "d"], {str(refused): "TooManyChannels"})
    assert "room for 3" in lake.folder.reason(refused)["reason"]
    slot.reaches("e", p0="3", p1="2", p2="2")  # those that are known go on
    full = Slot(lake, "slot-02").reaches("f", q0="1")
    lake.tick()
    assert lake.keys() == ["a", "c", "d", "e"] and lake.rejected()[str(full)] == "TooManyChannels"


def test_two_thousand_channels_are_the_room(lake: Lake) -> None:
    slot = Slot(lake)
    for part in range(2):
        slot.reaches("a", **{f"p{part}-{number}": "1" for number in range(offsets_format.MOST_IN_TXLOG)})
    lake.tick()
    refused = slot.reaches("b", one_more="1")
    lake.tick()
    assert len(offsets_of(lake)) == offsets_format.MOST_CHANNELS == 2000
    assert lake.rejected() == {str(refused): "TooManyChannels"}


# channels that are forgotten


def test_a_channel_that_its_slot_forgets_goes_with_the_commit_and_may_come_again(either: Lake) -> None:
    slot = Slot(either)
    slot.reaches("a", p0="7", p1="3")
    either.tick()
    slot.reaches("b", p0=FORGOTTEN)
    either.tick()
    assert (either.keys(), offsets_of(either)) == (["a", "b"], {"p1": "3"})
    slot.reaches(p1=FORGOTTEN)
    slot.reaches("c", p1="1")
    either.tick()
    assert (either.keys(), offsets_of(either)) == (["a", "b", "c"], {"p1": "1"})
    slot.reaches("d", p0="1", p1="2")
    slot.reaches(p0=FORGOTTEN)
    either.tick()
    assert offsets_of(either) == {"p1": "2"}
    copy = either.folder.marks()
    assert copy is not None and copy.marks == either.view().marks


def test_marks_without_the_last_channel_are_version_1_again(lake: Lake) -> None:
    slot = Slot(lake)
    slot.reaches("a", p0="7")
    slot.reaches(p0=FORGOTTEN)
    lake.tick()
    assert (offsets_of(lake), marks_property(lake)["version"]) == ({}, 1)


def test_a_channel_that_is_forgotten_makes_room_in_its_txlog_and_for_those_behind_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 2)
    slot, other = Slot(lake), Slot(lake, "slot-01")
    slot.reaches("a", p0="1", p1="1")
    lake.tick()
    slot.reaches("b", p0=FORGOTTEN, p1=FORGOTTEN, p2="1")
    lake.tick()
    slot.reaches(p2=FORGOTTEN)
    other.reaches("c", q0="1", q1="1")
    full = Slot(lake, "slot-02").reaches("d", p3="1")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a", "b", "c"], {str(full): "TooManyChannels"})
    assert (offsets_of(lake), offsets_of(lake, "slot-01")) == ({}, {"q0": "1", "q1": "1"})


def test_a_slot_forgets_no_channel_of_another_one(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 1)
    slot, other = Slot(lake), Slot(lake, "slot-01")
    slot.reaches("a", p0="1")
    lake.tick()
    other.reaches("b", p0=FORGOTTEN)
    full = other.reaches("c", p0=FORGOTTEN, q0="1")
    taken = other.reaches("d", p0="5")
    lake.drain()
    assert offsets_of(lake) == {"p0": "1"} and offsets_of(lake, "slot-01") == {}
    assert lake.rejected()[str(full)] == "TooManyChannels" and str(taken) in lake.rejected()


def test_of_two_runs_the_one_behind_forgets_nothing(lake: Lake) -> None:
    """It has not seen that the channel was heard of again."""
    old = Slot(lake)
    old.reaches("a", p0="7")
    lake.tick()
    Slot(lake, position=old.position).reaches("b", p0="8")
    lake.tick()
    late = old.reaches(p0=FORGOTTEN)
    lake.drain()
    assert (offsets_of(lake), lake.rejected()) == ({"p0": "8"}, {str(late): "PositionTaken"})


# versions


def test_a_program_that_knows_version_1_alone_halts_and_says_upgrade(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Slot(lake)
    Writes(lake).publish("a")
    lake.tick()
    assert marks_property(lake)["version"] == 1
    slot.reaches("b", p0="7")
    lake.tick()
    before, text = marks_property(lake), lake.store(lake.made.folder).read("marks.json", 2**20)
    slot.reaches("c", p0="8")
    monkeypatch.setattr(marks_json, "VERSION", 1)
    marks_json.loads.cache_clear()
    with pytest.raises(MarksLost, match="has version 2") as halted:
        lake.tick(lake.book())
    assert halted.value.hint == "Upgrade it."
    # Nor does it take the copy for one that knows no offsets.
    assert Folder(lake.store(lake.made.folder)).marks() is None
    assert (marks_property(lake), lake.store(lake.made.folder).read("marks.json", 2**20)) == (before, text)
    monkeypatch.undo()
    lake.drain()
    assert (lake.keys(), offsets_of(lake)) == (["a", "b", "c"], {"p0": "8"})


def test_the_card_names_the_versions_of_txlogs(lake: Lake) -> None:
    assert lake.folder.card().txlog_versions == (1, 2, 3, 4)


# what else changes marks


def test_offsets_stay_when_marks_are_pruned(lake: Lake) -> None:
    Slot(lake).reaches("a", p0="7")
    lake.tick()
    Writes(lake).publish("b")
    lake.tick(days=3)
    Writes(lake, "w2").publish("c")
    lake.tick(days=3)
    known = lake.view().marks.writer("slot-00")
    assert (dict(known.incarnations), known.offsets) == ({}, {"p0": "7"}) and known.position is not None


def test_offsets_stay_when_missing_txlogs_are_discarded(lake: Lake) -> None:
    """A discard moves the mark and no offset: who acknowledges asks for the offset."""
    slot = Slot(lake)
    slot.reaches("a", p0="7")
    lake.tick()
    gone = slot.reaches("b", p0="8")
    lake.folder.delete([gone])
    view, given = outlook(lake.folder, lake.book().ledger, gone)
    discard(lake.folder, lake.book().ledger, view, given, lake.clock.now)
    assert (lake.view().marks.is_in(gone), offsets_of(lake)) == (True, {"p0": "7"})


def test_a_sweep_of_rejected_txlogs_moves_no_offset(lake: Lake) -> None:
    """What lost its position goes by age, once another run has read its rows; what was rejected for itself stays."""
    old, new = Slot(lake), Slot(lake)
    old.reaches("a", p0="7")
    lost = [new.reaches("b", p1="3"), new.reaches("c", p0="8")]
    bad = Slot(lake, "slot-01").publish("x", position=b"1", offsets={"q0": "1"}, table_uuid="another")
    lake.drain()
    assert {*lake.rejected().values()} == {"PositionTaken", "WrongTable"}
    Slot(lake, position=old.position).reaches("b", "c", p0="8", p1="3")
    lake.tick()
    book = lake.book()
    lake.tick(book, days=8)
    lake.tick(book, minutes=2)
    assert lake.rejected() == {str(bad): "WrongTable"} and lost
    assert (lake.keys(), offsets_of(lake), offsets_of(lake, "slot-01")) == (["a", "b", "c"], {"p0": "8", "p1": "3"}, {})


def test_a_replayed_txlog_that_is_in_already_is_swept_and_its_offsets_count_once(lake: Lake) -> None:
    slot = Slot(lake)
    name = slot.reaches("a", p0="7")
    data = lake.folder.store.read(f"pending/{name}")
    lake.tick()
    slot.reaches("b", p0="8")
    lake.tick()
    lake.put(f"rejected/{name}", data)
    lake.put(f"pending/{name}", data)
    lake.drain()
    lake.tick(minutes=2)
    assert (lake.keys(), offsets_of(lake), lake.rejected(), lake.pending()) == (["a", "b"], {"p0": "8"}, {}, [])


def test_offsets_are_restored_with_the_marks(lake: Lake) -> None:
    Slot(lake).reaches("a", p0="7")
    lake.tick()
    with lake.table().transaction() as transaction:
        transaction.remove_properties(marks_format.PROPERTY)
    ledger = lake.book().ledger
    view, where = restorable(ledger, lake.folder)
    restore(ledger, lake.folder, view)
    assert (where, offsets_of(lake)) == ("marks.json", {"p0": "7"})


def test_offsets_go_on_after_a_rollback_that_is_accepted(lake: Lake) -> None:
    """As positions do: the rows of the abandoned snapshot stay out, and are not read again."""
    slot = Slot(lake)
    slot.reaches("a", p0="7")
    lake.tick()
    head = lake.table().metadata.current_snapshot_id
    slot.reaches("b", p0="8")
    lake.tick()
    lake.table().manage_snapshots().rollback_to_snapshot(head).commit()
    ledger = lake.book().ledger
    view = ledger.load(lake.folder.card().folder, accept_rollback=True)
    lake.book().publisher.record(view, view.marks, "accept-rollback")
    slot.reaches("c", p0="9")
    lake.drain()
    assert (lake.keys(), offsets_of(lake)) == (["a", "c"], {"p0": "9"})


def test_verify_takes_a_txlog_without_files_that_is_left_for_what_it_is(lake: Lake, faults: Faults) -> None:
    slot = Slot(lake)
    slot.reaches("a", p0="7")
    lake.tick()
    left = slot.reaches(p0="8")
    with pytest.raises(Crash):
        lake.tick(lake.book(faults.on("delete folder/pending/", BEFORE, crash)))
    audit = Audit(lake.view(), lake.folder, lake.book().ledger, lake.settings, lake.store)
    found = verify(audit)
    assert [(item.severity, item.where) for item in found] == [("info", str(left))]
    assert repair(audit, found) == 1 and lake.pending() == []
