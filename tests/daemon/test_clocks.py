"""Clocks that are wrong: ours, the storage's, a writer's. Nothing is condemned, dropped or lost for it."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.core.errors import ClockAhead, ClockBehind
from bookkeeper.core.settings import Retention
from tests.daemon.lake import Clock, Lake, Writes
from tests.faults.faults import Faults


def times(lake: Lake) -> list[int]:
    return [snapshot.timestamp_ms for snapshot in lake.table().metadata.snapshots]


def test_a_clock_31_s_behind_commits_nothing_until_it_has_caught_up(lake: Lake, writer: Writes) -> None:
    lake.clock.move(minutes=1)
    writer.publish("a")
    lake.tick()
    writer.publish("b")
    with pytest.raises(ClockBehind, match="31 s"):
        lake.tick(seconds=-31)
    assert (lake.keys(), len(lake.pending()), lake.rejected()) == (["a"], 1, {})
    lake.tick(seconds=2)
    assert lake.keys() == ["a", "b"]


def test_snapshot_times_never_go_back_when_the_clock_does(lake: Lake, writer: Writes) -> None:
    lake.clock.move(minutes=1)
    for number, move in enumerate((0, -10, -10, -9, 5, 0)):
        writer.publish(f"a{number}")
        lake.tick(seconds=move or 1)
    assert times(lake) == sorted(set(times(lake)))
    log = [entry.timestamp_ms for entry in lake.table().metadata.snapshot_log]
    assert log == sorted(log)
    assert len(lake.keys()) == 6


def test_a_bookkeeper_whose_clock_is_hours_behind_rejects_nobody_as_from_the_future(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    writer.publish("b")
    behind = Clock(lake.clock.now)
    behind.move(hours=-3)
    with pytest.raises(ClockBehind):
        lake.book(clock=behind).tick(behind.now)
    assert (lake.rejected(), len(lake.pending())) == ({}, 1)


def test_a_table_that_was_quiet_for_days_does_not_hide_that_our_clock_is_behind(lake: Lake, writer: Writes) -> None:
    """Its last update tells nothing then, but the storage's clock does."""
    lake.clock.move(days=3)
    writer.publish("b")
    behind = Clock(lake.clock.now)
    behind.move(hours=-3)
    with pytest.raises(ClockBehind, match="storage"):
        lake.book(clock=behind).tick(behind.now)
    assert lake.rejected() == {}
    lake.tick()
    assert lake.keys() == ["b"]


def test_a_writer_whose_clock_is_hours_ahead_is_rejected_and_no_other(lake: Lake, writer: Writes) -> None:
    ahead = int(lake.clock.now.timestamp() * 1000) + 2 * 3_600_000
    bad = Writes(lake, "w2").publish("x", created_ms=ahead)
    writer.publish("a")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a"], {str(bad): "FromTheFuture"})


def test_a_jump_back_and_forth_reloads_the_table_and_loses_nothing(lake: Lake, writer: Writes) -> None:
    book = lake.book()
    for number, seconds in enumerate((1, 3600, -20, 40, 86400)):
        writer.publish(f"a{number}")
        lake.tick(book, seconds=seconds)
    assert len(lake.keys()) == 5


def jumps(lake: Lake, **span: float) -> None:
    """Our clock moves, the storage's goes on as it was."""
    lake.disk_clock = Clock(lake.clock.now)
    lake.folder = lake.book().folder
    lake.clock.move(**span)


def test_a_jump_far_ahead_of_the_storages_clock_stamps_nothing(lake: Lake, writer: Writes) -> None:
    """A table that was stamped with next year's date would take nobody's commit until then."""
    book = lake.book()
    writer.publish("a")
    lake.tick(book)
    stamped = lake.table().metadata.last_updated_ms
    writer.publish("b")
    jumps(lake, days=365)
    for running in (lake.book(), lake.book()):
        with pytest.raises(ClockAhead, match="ahead of the storage"):
            running.tick(lake.clock.now)
    assert (lake.table().metadata.last_updated_ms, lake.rejected(), len(lake.pending())) == (stamped, {}, 1)
    lake.clock.now = lake.disk_clock.now
    lake.tick()
    assert lake.keys() == ["a", "b"]


def test_a_running_bookkeeper_notices_a_jump_too_and_steady_time_asks_nothing(lake: Lake, writer: Writes) -> None:
    faults = Faults()
    book = lake.book(faults)
    for number in range(5):
        writer.publish(f"a{number}")
        lake.tick(book)
    probes = faults.seen.count("replace folder/clock/probe")
    for number in range(5, 10):
        writer.publish(f"a{number}")
        lake.tick(book)
    assert faults.seen.count("replace folder/clock/probe") == probes
    writer.publish("b")
    book.folder.store.store.clock = Clock(lake.clock.now)  # type: ignore[attr-defined]
    lake.clock.move(days=365)
    with pytest.raises(ClockAhead):
        book.tick(lake.clock.now)


def test_a_machine_whose_clock_and_disk_jump_ahead_together_drops_nothing(tmp_path: Path) -> None:
    """Nothing tells the jump then; the brake holds, because all of it would go at once."""
    rule = Retention(keep=timedelta(days=1), max_age=timedelta(days=7), every=timedelta(seconds=1))
    lake = Lake(tmp_path / "lake", retention=rule)
    writer = Writes(lake)
    for number in range(6):
        writer.publish(f"a{number}")
    lake.tick()
    book = lake.book()
    lake.tick(book, days=365)
    assert len(lake.keys()) == 6
    assert lake.operations() == ["append"]
