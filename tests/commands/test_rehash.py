"""Another number of slots: each offset moves to its slot in one commit, and no run from before goes on."""

from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.commands.rehash import Rehash, rehash
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.names import started_ms
from bookkeeper.contract.offsets import FORGOTTEN, is_slot, slot_name, slot_of
from bookkeeper.errors import CommitConflict, ConfigInvalid, Fenced, NotPossible
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults
from tests.support.keyed import keyed_lake
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot, offsets_of
from writers import Writer
from writers.timing import at_once

CHANNELS = [f"t{number}" for number in range(12)]


def asked(lake: Lake, slots: int, source: str = "orders") -> Rehash:
    most, now_ms = lake.settings.max_writers, epoch_ms(lake.clock.now)
    return rehash(lake.view().marks, lake.folder, source, slots, most, now_ms, b"0123456789")


def done(lake: Lake, slots: int, faults: Faults | None = None) -> Rehash:
    found = asked(lake, slots)
    if found.marks is not None:
        book = lake.book(faults)
        book.publisher.record(book.ledger.load(lake.folder.card().folder), found.marks, "rehash orders")
    return found


def filled(lake: Lake, slots: int = 2) -> dict[str, Slot]:
    """A source with this many slots, each of which has read one row of each of its channels."""
    made = dict[str, Slot]()
    for channel in CHANNELS:
        name = slot_of("orders", channel, slots)
        made.setdefault(name, Slot(lake, name)).reaches(f"{channel}-1", **{channel: "1"})
    lake.drain()
    return made


def found(lake: Lake) -> dict[str, str]:
    """Of each channel the slot that has its offset."""
    return {channel: slot for slot, known in lake.view().marks.writers.items() for channel in known.offsets}


def writer(lake: Lake, name: str) -> Writer:
    return Writer.open(lake.made.folder, name, clock=lake.clock, wait=lambda seconds: True, at_once=at_once)


def rows(lake: Lake, *keys: str) -> pa.Table:
    return pa.table({"timestamp": pa.array([lake.clock.now] * len(keys), pa.timestamp("us", "UTC")), "key": [*keys]})


def test_a_slot_has_the_channels_of_its_number_by_crc_32() -> None:
    """As another language reckons it: the check value of the CRC is cbf43926, which is 3421780262."""
    assert [slot_of("orders", "123456789", slots) for slots in (1, 16, 999)] == ["orders-00", "orders-06", "orders-467"]
    assert 3421780262 % 16 == 6 and 3421780262 % 999 == 467
    assert slot_of("orders", "123456789/12", 16) == "orders-02"
    assert {slot_of("orders", f"events/{number}", 16) for number in range(40, 56)} == {
        f"orders-{number:02}" for number in range(16)
    }


def test_slots_are_told_from_other_writers_by_their_names() -> None:
    names = (slot_name("a", 3), "a-100", "a", "a-b-01", "a-x", "ab-01")
    assert [is_slot("a", name) for name in names] == [True, True, False, False, False, False]


def test_offsets_move_to_their_slots_in_one_commit_and_go_on_there(lake: Lake) -> None:
    filled(lake)
    before = len(lake.operations())
    result = done(lake, 5)
    assert (result.channels, lake.operations()[before:]) == (12, ["replace"])
    assert 0 < result.moved < 12
    assert found(lake) == {channel: slot_of("orders", channel, 5) for channel in CHANNELS}
    for name in {*found(lake).values()}:
        with writer(lake, name) as slot:
            assert {*slot.offsets.values()} == {"1"} and slot.committed_offsets() == slot.offsets
            for channel in slot.offsets:
                slot.write(rows(lake, f"{channel}-2"), offsets={channel: "2"})
    lake.drain()
    assert lake.keys() == sorted(f"{channel}-{count}" for channel in CHANNELS for count in "12")
    assert lake.rejected() == {} and {*offsets_of(lake, "orders-00").values()} == {"2"}


def test_there_and_back_leaves_no_slot_that_is_not_needed(lake: Lake) -> None:
    filled(lake)
    done(lake, 5)
    done(lake, 1)
    assert {*found(lake).values()} == {"orders-00"}
    positions = {name for name, known in lake.view().marks.writers.items() if known.position is not None}
    assert positions == {"orders-00"}
    assert asked(lake, 1).marks is None


def test_runs_from_before_are_fenced_wherever_they_stand(lake: Lake) -> None:
    """One of a slot that was there, and one of a slot that had nothing yet."""
    old = filled(lake)["orders-01"]
    early = {name: writer(lake, name) for name in ("orders-00", "orders-01", "orders-02", "orders-03", "orders-04")}
    done(lake, 5)
    for name, run in early.items():
        after = [channel for channel in CHANNELS if slot_of("orders", channel, 5) == name]
        mine = min(run.offsets, default=after[0])
        run.write(rows(lake, f"{mine}-1"), offsets={mine: "1"})
        run.publish()
    old.reaches("t0-1", t0="1")
    lake.drain()
    assert {*lake.rejected().values()} == {"PositionTaken"} and len(lake.rejected()) == 6
    assert lake.keys() == sorted(f"{channel}-1" for channel in CHANNELS)
    lake.clock.move(seconds=2)
    for run in early.values():
        run.write(rows(lake, "more"), offsets=dict(run.offsets))
        with pytest.raises(Fenced):
            run.publish()


def test_an_instance_with_the_former_number_begins_no_channel_anew(lake: Lake) -> None:
    filled(lake)
    done(lake, 5)
    moved = next(channel for channel in CHANNELS if found(lake)[channel] not in ("orders-00", "orders-01"))
    run = writer(lake, slot_of("orders", moved, 2))
    assert moved not in run.offsets
    with pytest.raises(NotPossible, match=f"{moved} is read by {found(lake)[moved]}") as refused:
        run.write(rows(lake, f"{moved} 1"), offsets={moved: "1"})
    assert "rehash" in refused.value.hint and run.unpublished_rows == 0


def test_a_crash_at_any_operation_moves_all_or_none_and_the_command_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    lake = Lake(root)
    filled(lake)
    saved, before, after = lake.saved(), found(lake), {item: slot_of("orders", item, 5) for item in CHANNELS}
    act = lambda faults: done(lake, 5, faults)  # noqa: E731
    points, outcomes = recorded(act), list[bool]()
    assert any("commit_table" in name for name in points) and any(
        "replace folder/marks.json" in name for name in points
    )
    for point in crash_points(points):
        saved.restore()
        assert crashed(act, point), point
        assert found(lake) in (before, after), point
        outcomes.append(found(lake) == after)
        for name in {*before.values()}:  # a run that starts now, perhaps from a marks.json that is behind
            mine = [channel for channel in before if before[channel] == name]
            run = writer(lake, name)
            with_offsets = {channel: "2" for channel in mine if channel in run.offsets}
            run.write(rows(lake, *[f"{channel}-2" for channel in with_offsets]), offsets=with_offsets)
            if with_offsets:
                run.publish()
        lake.drain()
        _delete_rejected(lake)
        assert {*lake.rejected().values()} <= {"PositionTaken"}
        done(lake, 5)
        assert found(lake) == after, point
        for name in {*after.values()}:
            with writer(lake, name) as slot:
                for channel, at in slot.offsets.items():
                    if at == "1":
                        slot.write(rows(lake, f"{channel}-2"), offsets={channel: "2"})
        lake.drain()
        assert lake.keys() == sorted(f"{channel}-{count}" for channel in CHANNELS for count in "12"), point
    assert {*outcomes} == {True, False}


def _delete_rejected(lake: Lake) -> None:
    """As a person does with what the command does not pass over."""
    names = [name for name, error in lake.rejected().items() if error != "PositionTaken"]
    lake.folder.store.delete_many([f"rejected/{name}" for name in names])


def test_nothing_moves_while_a_txlog_of_a_slot_is_pending_or_rejected(lake: Lake) -> None:
    made = filled(lake)
    slot = made["orders-00"]
    mine = next(channel for channel in CHANNELS if slot_of("orders", channel, 2) == "orders-00")
    Writes(lake, "other").publish("other")
    waiting = slot.reaches("x", **{mine: "2"})
    with pytest.raises(NotPossible, match=f"pending/{waiting} is there"):
        asked(lake, 5)
    lake.drain()
    bad = slot.publish("b", position=b"9", previous_position=slot.position, offsets={mine: "3"}, table_uuid="another")
    lake.drain()
    with pytest.raises(NotPossible, match=f"rejected/{bad} is there"):
        asked(lake, 5)
    assert lake.rejected() == {str(bad): "WrongTable"}
    lake.folder.store.delete_many([f"rejected/{bad}"])
    fenced = made["orders-01"]
    fenced.position = b"99.x"
    fenced.reaches("y", **{mine: "3"})
    lake.drain()
    assert [*lake.rejected().values()] == ["PositionTaken"]
    done(lake, 5)
    assert found(lake) == {channel: slot_of("orders", channel, 5) for channel in CHANNELS}


def test_a_txlog_that_is_committed_meanwhile_makes_it_a_conflict(lake: Lake) -> None:
    slot = filled(lake)["orders-00"]
    mine = next(channel for channel in CHANNELS if slot_of("orders", channel, 2) == "orders-00")
    book, view = lake.book(), lake.view()
    moved = asked(lake, 5).marks
    assert moved is not None
    slot.reaches(f"{mine}-2", **{mine: "2"})
    lake.drain()
    with pytest.raises(CommitConflict):
        book.publisher.record(view, moved, "rehash orders")
    assert offsets_of(lake, "orders-00")[mine] == "2"


def test_the_next_run_of_a_keyed_table_comes_behind_the_runs_of_all_slots(tmp_path: Path) -> None:
    """Its clock may be behind: versions of a key are numbered by the time of the run."""
    lake = keyed_lake(tmp_path)
    for channel in CHANNELS:
        with writer(lake, slot_of("orders", channel, 2)) as run:
            run.upsert(pa.table({"id": [1], "value": [channel]}), offsets={channel: "1"})
        lake.clock.move(seconds=60)
        last = run.incarnation
    lake.drain()
    done(lake, 5)
    lake.clock.move(minutes=-30)
    for name in {*found(lake).values()}:
        assert started_ms(writer(lake, name).incarnation) > started_ms(last), name


def test_a_writer_that_is_only_named_like_a_slot_keeps_its_position(lake: Lake) -> None:
    """A file that `writer lines --name orders-07` has read would else be read again."""
    filled(lake)
    Writes(lake, "orders-07").goes_on(b"line 3", "a", "b")
    lake.drain()
    done(lake, 5)
    again = Writes(lake, "orders-07")
    again.publish("a", "b", position=b"line 3")
    lake.drain()
    assert [*lake.rejected().values()] == ["PositionTaken"]
    assert lake.keys() == sorted(["a", "b", *(f"{channel}-1" for channel in CHANNELS)])


def test_a_writer_that_would_become_a_slot_is_said(lake: Lake) -> None:
    filled(lake)
    Writes(lake, "orders-04").goes_on(b"line 3", "a", "b")
    lake.drain()
    with pytest.raises(NotPossible, match="orders-04 would be a slot of orders, and has another source"):
        done(lake, 5)
    assert lake.view().marks.writer("orders-04").position == b"line 3"


def test_a_slot_whose_channels_were_forgotten_is_moved_to(lake: Lake) -> None:
    filled(lake)
    with writer(lake, "orders-04") as early:
        early.write(rows(lake, "a"), offsets={"x": "1"})
        early.publish()
        lake.drain()
        early.publish(offsets={"x": FORGOTTEN}, alone=True)
        lake.drain()
    assert lake.view().marks.writer("orders-04").position is not None
    done(lake, 5)
    assert offsets_of(lake, "orders-04") and lake.view().marks.channels == len(CHANNELS)
    done(lake, 2)
    assert "orders-04" not in {name for name, known in lake.view().marks.writers.items() if known.position is not None}


def test_what_cannot_be_moved_is_said(lake: Lake) -> None:
    with pytest.raises(NotPossible, match="orders has no slot with offsets"):
        asked(lake, 5)
    filled(lake)
    Slot(lake, "orders-eu-00").reaches("x", x="1")
    lake.drain()
    with pytest.raises(NotPossible, match="order has no slot with offsets"):
        asked(lake, 5, "order")
    with pytest.raises(ConfigInvalid, match="is not valid"):
        asked(lake, 5, "o" * 61)
    most, now_ms = 4, epoch_ms(lake.clock.now)
    with pytest.raises(NotPossible, match=r"the table would have \d+ writers, it has room for 4"):
        rehash(lake.view().marks, lake.folder, "orders", 12, most, now_ms, b"0123456789")
    assert offsets_of(lake, "orders-eu-00") == {"x": "1"}
