"""Clocks that are wrong: ours, the storage's, a writer's. Nothing is condemned, dropped or lost for it."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Retention
from bookkeeper.contract.steady_clock import Steady
from bookkeeper.errors import ClockAhead, ClockBehind
from bookkeeper.stores.locations import local_path
from bookkeeper.tick.tick import Bookkeeper
from tests.support.faults import Faults
from tests.support.lake import Clock, Lake, Writes


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


def test_a_bookkeeper_whose_clock_is_hours_behind_rejects_none_as_from_the_future(lake: Lake, writer: Writes) -> None:
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


def test_a_tick_that_slept_in_its_listing_rejects_none_as_from_the_future(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = lake.book()
    look = book.folder.look

    def slept() -> Any:
        lake.clock.move(hours=2, minutes=13)
        writer.publish("a")
        return look()

    began = lake.clock.now
    with monkeypatch.context() as once:
        once.setattr(book.folder, "look", slept)
        with pytest.raises(ClockBehind, match="after this tick began"):
            book.tick(began)
    assert (lake.keys(), lake.rejected()) == ([], {})
    book.tick(lake.clock.now)
    assert (lake.keys(), lake.rejected()) == (["a"], {})


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
    """A table that was stamped with next year's date would take no commit until then."""
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


def test_a_txlog_dated_in_the_future_hides_no_clock_that_is_ahead(lake: Lake, writer: Writes) -> None:
    """As of one that was copied with its time (rsync -t) from a machine whose clock was ahead: it says no time."""
    name = writer.publish("a")
    writer.publish("b")
    jumps(lake, hours=3)
    later = (lake.clock.now + timedelta(days=1)).timestamp()
    os.utime(f"{local_path(lake.folder.store.url)}/pending/{name}", (later, later))
    before = lake.table().metadata.last_updated_ms
    with pytest.raises(ClockAhead):
        lake.book().tick(lake.clock.now)
    assert lake.table().metadata.last_updated_ms == before


def test_the_storage_is_asked_for_its_time_only_when_something_is_dropped_by_it(tmp_path: Path) -> None:
    rule = Retention(keep=timedelta(hours=1), brake=1.0, every=timedelta(seconds=1))
    lake, faults = Lake(tmp_path / "lake", retention=rule, marks_keep=timedelta(hours=3)), Faults()
    writer, book = Writes(lake), lake.book(faults)
    lake.put("x.tmp", b"unfinished")

    def asked() -> int:
        return faults.seen.count("replace folder/clock/probe")

    writer.publish("a")
    lake.tick(book)
    for _ in range(50):
        lake.tick(book, minutes=1)
    assert (lake.keys(), asked()) == (["a"], 0)
    lake.tick(book, minutes=20)
    assert (lake.keys(), asked()) == ([], 1)
    for _ in range(10):
        lake.tick(book, minutes=20)
    assert asked() == 1
    Writes(lake, "w2").publish("b")
    lake.tick(book)
    assert (lake.view().marks.mark(writer.name), asked()) == (None, 2), "an idle incarnation was pruned"
    lake.tick(book, days=4)
    assert "x.tmp" not in {item.key for item in lake.folder.store.list("")}


def test_retention_that_a_clock_held_back_asks_it_at_each_turn_until_it_is_right(tmp_path: Path) -> None:
    dropping = Lake(
        tmp_path / "lake", retention=Retention(keep=timedelta(hours=1), brake=1.0, every=timedelta(seconds=1))
    )
    writer, faults = Writes(dropping), Faults()
    book = dropping.book(faults)
    for key in "abc":
        writer.publish(key)
        dropping.tick(book)
    book.folder.store.store.clock = Clock(dropping.clock.now)  # type: ignore[attr-defined]
    for _ in range(3):
        dropping.tick(book, hours=2)
        assert "clock" in book.duties.retention.held_back
    assert dropping.operations() == ["append"] * 3
    assert faults.seen.count("replace folder/clock/probe") == 3
    book.folder.store.store.clock = dropping.clock  # type: ignore[attr-defined]
    dropping.tick(book)
    assert "clock" not in book.duties.retention.held_back


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


class Machine:
    """A machine whose wall clock can be set; time passes on both of its clocks."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.seconds = lake, 0.0
        self.steady = Steady(lake.clock, lambda: self.seconds)

    def passes(self, **span: float) -> None:
        self.seconds += timedelta(**span).total_seconds()
        self.lake.clock.move(**span)

    def is_set(self, **span: float) -> None:
        """The wall clock, and with it the local disk's."""
        self.lake.clock.move(**span)

    def tick(self, book: Bookkeeper, **span: float) -> None:
        self.passes(**(span or {"seconds": 1}))
        book.tick(self.lake.clock.now)


@pytest.fixture
def dropping(tmp_path: Path) -> Lake:
    rule = Retention(keep=timedelta(hours=1), every=timedelta(seconds=1))
    return Lake(tmp_path / "dropping", retention=rule)


def filled(lake: Lake, machine: Machine) -> tuple[Writes, Bookkeeper]:
    writer, book = Writes(lake), lake.book(clock=machine.steady)
    for number in range(6):
        writer.publish(f"old{number}")
        machine.tick(book)
    return writer, book


def test_rows_a_minute_old_outlive_a_jump_of_two_hours_though_writers_go_on_by_it(dropping: Lake) -> None:
    """New files, dated by the same clock, would release the brake: it counts those that stay."""
    machine = Machine(dropping)
    writer, book = filled(dropping, machine)
    before = dropping.keys()
    machine.is_set(hours=2)
    for number in range(8):
        writer.publish(f"new{number}")
        machine.tick(book)
    assert set(before) < set(dropping.keys()) and "delete" not in dropping.operations()
    machine.is_set(hours=-2)
    machine.tick(book, minutes=59)
    machine.tick(book, minutes=2)
    machine.tick(book, hours=2)
    assert dropping.keys() != [], "the brake holds what would all go at once"
    writer.publish(*"xyz")
    for key in "abcdefghijklmnop":
        writer.publish(key)
    machine.tick(book)
    assert not set(before) & set(dropping.keys())


def test_after_a_jump_commits_go_on_with_stamps_that_lie_in_no_clocks_future(dropping: Lake) -> None:
    machine = Machine(dropping)
    writer, book = filled(dropping, machine)
    machine.is_set(hours=2)
    for number in range(3):
        writer.publish(f"new{number}")
        machine.tick(book)
    right = Clock(dropping.clock.now - timedelta(hours=2))
    assert dropping.table().metadata.last_updated_ms <= right.now.timestamp() * 1000 + 1
    marks = dropping.view().marks
    assert marks.mark(writer.name).seen_ms <= right.now.timestamp() * 1000 + 1  # type: ignore[union-attr]
    dropping.clock.now = right.now
    writer.publish("by another")
    dropping.tick(dropping.book())
    assert dropping.keys()[-1] == "old5" and dropping.keys()[0] == "by another"


def test_a_clock_that_was_set_right_after_a_pause_is_taken_over_where_the_storage_proves_it(dropping: Lake) -> None:
    machine = Machine(dropping)
    filled(dropping, machine)
    machine.is_set(hours=2)
    assert machine.steady.ahead() == timedelta(hours=2)
    book = dropping.book(clock=machine.steady)
    remote = book.folder.store
    book.folder.store = Elsewhere(remote)  # type: ignore[assignment]
    machine.tick(book)
    assert machine.steady.ahead() == timedelta(0)


class Elsewhere:
    """The same store, reached over a network: its clock is not this machine's."""

    def __init__(self, store: Any) -> None:
        self.store, self.url = store, "s3://bucket/folder"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_a_clock_55_minutes_ahead_stamps_the_storages_time_and_the_next_bookkeeper_commits_at_once(
    lake: Lake, writer: Writes, caplog: Any
) -> None:
    writer.publish("a")
    jumps(lake, minutes=55)
    ahead = lake.book()
    ahead.tick(lake.clock.now)
    stamped = lake.table().metadata.last_updated_ms / 1000
    assert stamped <= lake.disk_clock.now.timestamp() + 1
    assert "55 m ahead" in next(record.cause for record in caplog.records if record.getMessage() == "clock ahead")
    lake.clock.now = lake.disk_clock.now
    writer.publish("b")
    lake.tick()
    assert lake.keys() == ["a", "b"]


def test_retention_and_renewed_marks_are_stamped_like_commits(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    jumps(lake, minutes=2)
    ahead = lake.book()
    view = ahead.ledger.load(lake.folder.card().folder)
    after = ahead.ledger.record(view, view.marks, "renew")
    assert after.metadata.last_updated_ms / 1000 <= lake.disk_clock.now.timestamp() + 1
    lake.clock.move(days=1)
    with pytest.raises(ClockAhead):
        ahead.ledger.record(after, view.marks, "renew")


def test_a_correction_of_some_seconds_is_taken_over_after_an_hour_and_a_larger_one_never() -> None:
    clock, passed = Clock(), [0.0]
    steady = Steady(clock, lambda: passed[0])

    def pass_by(seconds: float, jump: float = 0) -> timedelta:
        passed[0] += seconds
        clock.move(seconds=seconds + jump)
        return steady.ahead()

    assert pass_by(60, jump=20) == timedelta(seconds=20)
    assert pass_by(3600) == timedelta(0) == pass_by(1)
    assert pass_by(60, jump=40) == timedelta(seconds=40) == pass_by(7200)
    assert pass_by(1, jump=-40) == timedelta(0)
    assert pass_by(1, jump=-3600) == timedelta(0), "set back: nothing is younger than it seems"
    assert pass_by(1, jump=1800) == timedelta(seconds=1800), "counted from where it stood last"
