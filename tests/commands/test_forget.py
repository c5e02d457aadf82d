"""Many writers are forgotten by one commit; what is still needed is kept, and said."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.commands.discard import outlook
from bookkeeper.commands.forget import Forgetting, forget, forget_channel, reason
from bookkeeper.commands.replay import replay
from bookkeeper.config.units import epoch_ms
from bookkeeper.errors import NotPossible, PositionTaken
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot, offsets_of

MONTH = timedelta(days=30)


def asked(lake: Lake, *patterns: str, idle: timedelta | None = None) -> Forgetting:
    return forget(lake.view().marks, lake.folder, lake.settings, patterns, idle, lake.clock.now)


def done(lake: Lake, *patterns: str, idle: timedelta | None = None) -> list[str]:
    found = asked(lake, *patterns, idle=idle)
    lake.book().publisher.record(lake.view(), found.marks, reason(found.forgotten))
    return list(found.forgotten)


def test_a_glob_forgets_many_in_one_commit(lake: Lake) -> None:
    for name in ("pod-1", "pod-2", "other"):
        Writes(lake, name).goes_on(b"1", name)
    lake.tick()
    before = len(lake.operations())
    assert done(lake, "pod-*") == ["pod-1", "pod-2"]
    assert len(lake.operations()) == before + 1
    positions = {name: known.position for name, known in lake.view().marks.writers.items()}
    assert positions == {"pod-1": None, "pod-2": None, "other": b"1"}


def test_a_crash_at_any_operation_leaves_all_forgotten_or_none(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    lake = Lake(root)
    for number in range(5):
        Writes(lake, f"pod-{number}").goes_on(b"1", str(number))
    lake.tick()
    saved = lake.saved()

    def act(faults: Faults) -> None:
        book = lake.book(faults)
        found = asked(lake, "pod-*")
        book.publisher.record(book.ledger.load(lake.folder.card().folder), found.marks, reason(found.forgotten))

    seen, outcomes = recorded(act), set()
    for point in crash_points(seen):
        saved.restore()
        assert crashed(act, point), point
        left = {known.position for known in lake.view().marks.writers.values()}
        outcomes |= left
        assert left in ({None}, {b"1"}), point
        lake.drain()
        copy = lake.folder.marks()
        assert copy is not None and {known.position for known in copy.marks.writers.values()} == left, point
    assert outcomes == {None, b"1"}


def test_idle_forgets_who_was_silent_for_so_long_also_where_only_positions_are_left(lake: Lake) -> None:
    for name in ("old-1", "old-2"):
        Writes(lake, name).goes_on(b"1", name)
    lake.tick()
    lake.tick(days=20)
    young = Writes(lake, "young")
    young.goes_on(b"1", "y")
    lake.tick()
    lake.clock.move(days=11)
    Writes(lake, "new").goes_on(b"1", "n")
    lake.tick()
    assert not lake.view().marks.writer("young").incarnations
    assert done(lake, idle=MONTH) == ["old-1", "old-2"]
    assert sorted(lake.view().marks.writers) == ["new", "young"]
    with pytest.raises(NotPossible, match="idle for 30 d"):
        asked(lake, idle=MONTH)


def test_marks_of_the_last_release_count_a_writer_as_idle_only_when_that_is_sure(lake: Lake) -> None:
    """It writes no `seen-ms` of a writer; then the last pruning says when that was at the latest."""
    Writes(lake, "old").goes_on(b"1", "a")
    lake.tick()
    lake.tick(days=40)
    Writes(lake, "new").goes_on(b"1", "b")
    lake.tick()
    lake.tick(days=2)
    Writes(lake, "newer").goes_on(b"1", "c")
    lake.tick()
    marks = lake.view().marks
    downgraded = {name: replace(known, seen_ms=0) for name, known in marks.writers.items()}
    with pytest.raises(NotPossible):
        forget(replace(marks, writers=downgraded), lake.folder, lake.settings, (), MONTH, lake.clock.now)


def test_a_named_writer_with_pending_txlogs_stops_it_and_a_glob_passes_over(lake: Lake) -> None:
    busy = Writes(lake, "pod-1")
    busy.goes_on(b"1", "a")
    Writes(lake, "pod-2").goes_on(b"1", "b")
    lake.tick()
    busy.goes_on(b"2", "c")
    with pytest.raises(NotPossible, match="pod-1: it has pending txlogs"):
        asked(lake, "pod-1", "pod-2")
    found = asked(lake, "pod-*")
    assert (found.forgotten, list(found.kept)) == (["pod-2"], ["pod-1"])


def test_a_position_that_rejected_txlogs_go_on_from_is_kept(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    writer.goes_on(b"2", "b")
    writer.position = b"0"
    writer.goes_on(b"3", "c")
    lake.drain()
    assert list(lake.rejected().values()) == ["PositionTaken"]
    with pytest.raises(NotPossible, match="replay them, or delete them there"):
        asked(lake, "w1")
    (name,) = [item.name for item in lake.folder.rejected()]
    with pytest.raises(PositionTaken):
        replay(lake.folder, lake.book().ledger, lake.settings, name, lake.clock.now)
    with pytest.raises(NotPossible, match=r"all that .* misses up to 3 lies in rejected/"):
        outlook(lake.folder, lake.book().ledger, name)
    lake.folder.discard_rejected([name])
    assert asked(lake, "w1").forgotten == ["w1"]


def test_unknown_names_and_globs_are_said(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    for pattern in ("unknown", "pod-*"):
        with pytest.raises(NotPossible, match=pattern.replace("*", "[*]")):
            asked(lake, pattern)


def test_what_is_forgotten_is_named_in_the_summary_ten_at_most() -> None:
    assert reason(["a", "b"]) == "forget a, b"
    assert reason([f"w{number}" for number in range(4000)]).endswith("w9 and 3990 more")


def test_a_paused_run_of_a_forgotten_writer_brings_no_old_rows_back(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    paused = Steps(lake, "k1")
    paused.publish_steps(Step(upserts={1: "old"}))
    lake.drain()
    lake.clock.move(seconds=5)
    later = Steps(lake, "k1")
    later.publish_steps(Step(upserts={1: "new"}))
    lake.drain()
    lake.clock.move(days=31)
    assert done(lake, "k1", idle=MONTH) == ["k1"]
    assert lake.view().marks.writers == {}
    assert epoch_ms(lake.clock.now) > lake.view().marks.pruned_before_ms
    name = paused.publish_steps(Step(upserts={1: "older"}))
    lake.drain()
    assert (state(lake), list(lake.rejected().values())) == ({1: "new"}, ["IncarnationPruned"]), name


def test_the_next_run_of_a_forgotten_writer_of_a_keyed_table_gets_in(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    Steps(lake, "k1").publish_steps(Step(upserts={1: "old"}))
    lake.drain()
    lake.clock.move(days=31)
    done(lake, idle=MONTH)
    anew = Steps(lake, "k1")
    for value in ("a", "b"):
        anew.publish_steps(Step(upserts={1: value}))
    lake.drain()
    assert (state(lake), lake.rejected()) == ({1: "b"}, {})


def slots(lake: Lake) -> Slot:
    slot = Slot(lake)
    slot.reaches("a", p0="7", p1="3")
    Writes(lake, "slot-x").goes_on(b"1", "b")
    lake.tick()
    return slot


def without(lake: Lake, channel: str, writer: str = "slot-00") -> None:
    left = forget_channel(lake.view().marks, lake.folder, lake.settings, writer, channel)
    lake.book().publisher.record(lake.view(), left, f"forget {channel}")


def test_a_channel_is_forgotten_and_its_slot_goes_on(lake: Lake) -> None:
    slot = slots(lake)
    without(lake, "p0")
    assert offsets_of(lake) == {"p1": "3"} and lake.operations()[-1] == "replace"
    slot.reaches("c", p1="4")
    lake.tick()
    assert (offsets_of(lake), lake.keys()) == ({"p1": "4"}, ["a", "b", "c"])


def test_a_channel_that_a_pending_or_rejected_txlog_names_is_not_forgotten(lake: Lake) -> None:
    slot = slots(lake)
    slot.publish("bad", position=b"x", previous_position=slot.position, offsets={"p1": "4"}, table_uuid="another")
    with pytest.raises(NotPossible, match=r"pending/slot-00.* names p1"):
        without(lake, "p1")
    lake.tick()
    with pytest.raises(NotPossible, match=r"rejected/slot-00.* names p1"):
        without(lake, "p1")
    without(lake, "p0")
    assert offsets_of(lake) == {"p1": "3"}


def test_a_txlog_of_its_slot_that_cannot_be_read_keeps_a_channel(lake: Lake) -> None:
    slot = slots(lake)
    lake.put(f"pending/{slot.name.at(9)}", b"no Avro")
    with pytest.raises(NotPossible, match="may name p0"):
        without(lake, "p0")


def test_what_is_no_channel_is_not_forgotten(lake: Lake) -> None:
    slots(lake)
    for writer, channel in (("slot-00", "p9"), ("slot-x", "p0"), ("unknown", "p0")):
        with pytest.raises(NotPossible):
            without(lake, channel, writer)
    assert offsets_of(lake) == {"p0": "7", "p1": "3"}


def test_a_slot_is_forgotten_only_by_its_name(lake: Lake) -> None:
    """By a pattern or by age others are meant: it would read all of its channels again."""
    slots(lake)
    lake.clock.move(days=60)
    assert asked(lake, "slot-*").forgotten == ["slot-x"]
    assert "2 channels" in asked(lake, idle=MONTH).kept["slot-00"]
    assert done(lake, "slot-00") == ["slot-00"]
    assert offsets_of(lake) == {} and lake.view().marks.writer("slot-00").position is None
