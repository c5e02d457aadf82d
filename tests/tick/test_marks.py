"""Marks: what is in is recognised, whatever a crash leaves; what is idle is forgotten, and never guessed at."""

import json
from datetime import timedelta

import pytest

from bookkeeper.commands.replay import replay
from bookkeeper.contract.marks import PROPERTY
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.errors import CommitConflict, IncarnationPruned, NotPossible, StorageUnavailable
from tests.support.faults import BEFORE, Crash, Faults, crash
from tests.support.lake import Lake, Writes


def marks_json(lake: Lake) -> MarksCopy:
    copy = lake.folder.marks()
    assert copy is not None
    return copy


def idle_for_two_days(lake: Lake) -> None:
    """Another program commits after two days, and old marks are pruned."""
    lake.clock.move(days=2)
    Writes(lake, "other").publish(f"other-{lake.clock.now.day}")
    lake.tick()


def test_txlogs_left_by_a_crash_are_recognised_and_deleted(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    writer.publish("b")
    with pytest.raises(Crash):
        lake.tick(lake.book(faults.on("delete folder/pending", BEFORE, crash)))
    assert len(lake.pending()) == 2
    lake.tick()
    assert (lake.keys(), lake.pending(), lake.operations()) == (["a", "b"], [], ["append"])


def test_marks_travel_with_the_snapshot(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    table = lake.table()
    said = json.loads(table.properties[PROPERTY])
    assert said["snapshot"] == table.current_snapshot().snapshot_id
    assert said["writers"]["w1"]["incarnations"][writer.name.incarnation]["last"] == 1


def test_marks_json_is_mended_when_it_is_lost_torn_or_old(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    book = lake.book()
    lake.tick(book)
    right = marks_json(lake)
    old = lake.store(lake.made.folder).read("marks.json").replace(b'"sequence-number": 1', b'"sequence-number": 0')
    for damage in (b"", b'{"sequence-number": 99', b"[]", old):
        lake.put("marks.json", damage)
        lake.tick(book)
        assert marks_json(lake) == right
    lake.folder.store.delete_many(["marks.json"])
    lake.tick(book)
    assert marks_json(lake) == right


def test_marks_json_is_never_replaced_by_an_older_one(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    slow, quick = lake.book(), lake.book()
    lake.tick(slow)
    writer.publish("b")
    lake.tick(quick)
    newest = marks_json(lake)
    lake.tick(slow)  # its view is a second old
    assert marks_json(lake) == newest
    assert newest.sequence_number == 2


def test_marks_of_an_idle_incarnation_are_pruned_and_positions_never(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    idle_for_two_days(lake)
    marks = lake.view().marks
    assert marks.mark(writer.name) is None
    assert marks.writer("w1").position == b"1"
    assert marks.pruned_before_ms > 0


def test_marks_stay_while_a_name_in_the_folder_needs_them(lake: Lake, writer: Writes) -> None:
    writer.publish("bad", table_uuid="another")
    writer.publish("a")
    lake.tick()
    idle_for_two_days(lake)
    assert lake.view().marks.mark(writer.name) is not None


def test_a_txlog_from_before_the_pruning_is_rejected_and_never_committed(lake: Lake, writer: Writes) -> None:
    name, data = writer.encoded([writer.file(["a"])])
    lake.folder.publish(name, data)
    lake.tick()
    idle_for_two_days(lake)
    lake.folder.publish(name, data)  # a put that comes again after days
    lake.tick()
    assert lake.rejected() == {str(name): "IncarnationPruned"}
    assert lake.keys().count("a") == 1


def test_a_writer_that_was_idle_past_the_pruning_goes_on_without_holes(lake: Lake, writer: Writes) -> None:
    for number in range(70):  # more than the holes that are allowed
        writer.publish(f"a{number}")
    lake.tick()
    idle_for_two_days(lake)
    writer.publish("b")
    writer.publish("c")
    result = lake.tick()
    assert (result.holes, result.held, result.rejected) == ([], [], [])
    mark = lake.view().marks.mark(writer.name)
    assert mark is not None
    assert (mark.last, mark.holes) == (72, ())
    assert lake.keys()[-2:] == ["c", "other-" + str(lake.clock.now.day)]


def test_what_was_rejected_of_an_idle_writer_stays_a_hole_when_it_goes_on(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    idle_for_two_days(lake)
    bad = writer.publish("bad", table_uuid="another")
    lake.tick()
    writer.publish("b")
    lake.tick()
    mark = lake.view().marks.mark(bad)
    assert mark is not None
    assert (mark.last, mark.holes) == (3, (2,))
    lake.tick(minutes=2)  # the sweep
    assert list(lake.rejected()) == [str(bad)]


def test_a_first_txlog_that_waits_is_not_overtaken_by_the_pruning(lake: Lake, writer: Writes, faults: Faults) -> None:
    """After a day without a bookkeeper there is more to do than one commit holds."""
    writer.publish("a")
    lake.tick()
    lake.clock.move(minutes=5)
    Writes(lake, "late").publish("b")
    lake.clock.move(days=2)
    Writes(lake, "today").publish("c")
    book = lake.book(faults.on("read folder/pending/late.", BEFORE, StorageUnavailable))
    lake.tick(book)
    faults.clear()
    lake.tick(book)
    assert (lake.keys(), lake.rejected()) == (["a", "b", "c"], {})


def test_a_forced_replay_lets_a_pruned_txlog_in_exactly_once(lake: Lake, writer: Writes) -> None:
    for number in range(70):
        writer.publish(f"a{number}")
    lake.tick()
    idle_for_two_days(lake)
    created = int((lake.clock.now - timedelta(days=2)).timestamp() * 1000)
    first = writer.publish("old", created_ms=created)
    second = writer.publish("older", created_ms=created)
    lake.tick()
    assert set(lake.rejected().values()) == {"IncarnationPruned"}
    ledger = lake.book().ledger
    with pytest.raises(IncarnationPruned):
        replay(lake.folder, ledger, lake.settings, first, lake.clock.now)
    replay(lake.folder, ledger, lake.settings, first, lake.clock.now, force=True)
    lake.tick()
    lake.tick(minutes=2)
    assert (lake.keys().count("old"), list(lake.rejected())) == (1, [str(second)])
    replay(lake.folder, ledger, lake.settings, second, lake.clock.now, force=True)
    lake.tick()
    lake.tick(minutes=2)
    assert (lake.keys().count("older"), lake.rejected()) == (1, {})
    with pytest.raises(NotPossible):
        replay(lake.folder, ledger, lake.settings, first, lake.clock.now, force=True)


def test_forgetting_a_writer_condemns_no_run_that_starts_afterwards(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    view = lake.view()
    lake.book().ledger.record(view, view.marks.forgotten(["w1"], 0), "forget w1")
    Writes(lake, "w1").goes_on(b"x", "b")
    Writes(lake, "w2").publish("c")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a", "b", "c"], {})


def test_a_change_of_marks_alone_conflicts_with_a_commit_in_between(either: Lake) -> None:
    writer = Writes(either)
    writer.publish("a")
    either.tick()
    seen = either.view()
    writer.publish("b")
    either.tick()
    with pytest.raises(CommitConflict):
        either.book().ledger.record(seen, seen.marks.forgotten(["w1"], 0), "forget w1")
    assert either.keys() == ["a", "b"]


def test_marks_of_more_than_256_kib_are_said_once_with_what_to_do(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    book = lake.book()
    for number in range(190):  # of 1 KiB each, base64
        Writes(lake, f"pod-{number}").goes_on(bytes(1024), f"key-{number}")
    lake.tick(book)
    for _ in range(3):
        lake.tick(book, minutes=11)

    said = [record for record in caplog.records if getattr(record, "action", "") == "marks-large"]
    assert [(record.levelname, record.writers) for record in said] == [("WARNING", 190)]
    assert said[0].bytes > 256 * 1024 and "bookkeeper forget" in said[0].hint


def test_a_writer_without_positions_takes_less_than_160_bytes_of_marks(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        Writes(lake, f"pod-{number}").publish(f"key-{number}")
    lake.tick()

    assert "marks-large" not in {getattr(record, "action", "") for record in caplog.records}
    assert len(lake.table().properties[PROPERTY]) / 50 < 160
