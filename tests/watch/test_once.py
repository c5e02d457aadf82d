"""With --once: how long what others have to do is waited for."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bookkeeper.errors import Backpressure, NotPossible, StorageUnavailable
from bookkeeper.leases.lease import NoLease
from tests.support.faults import Faults
from tests.watch.drops import Drops
from writers.watch import waiting

#: of the writers in drops.py, and of one wait for a commit
PATIENCE, LOOK = timedelta(minutes=5), timedelta(minutes=1)


def within_an_hour(drops: Drops, wait: Callable[[float], object]) -> Callable[[float], object]:
    """
    The same wait, which fails where it goes on for ever.
    """
    began = drops.desk.clock.now

    def bounded(seconds: float) -> object:
        assert drops.desk.clock.now - began < timedelta(hours=1)
        return wait(seconds)

    return bounded


def test_without_a_bookkeeper_it_ends_and_the_same_command_goes_on() -> None:
    drops = Drops()
    drops.put("a")
    watcher = drops.watcher(wait=within_an_hour(drops, drops.desk.clock.wait))
    began = drops.desk.clock.now
    with pytest.raises(
        Backpressure, match=r"a txlog of drops is published in .*/_bookkeeper, and not in the table yet"
    ):
        watcher.run()
    assert PATIENCE <= drops.desk.clock.now - began < PATIENCE + 2 * LOOK
    assert drops.dropped() == ["a"] and len(drops.desk.folder.pending()) == 1
    drops.run()
    assert drops.keys() == ["a"] and drops.dropped() == []


def test_a_clock_that_is_put_back_makes_no_wait_longer() -> None:
    drops, jumps = Drops(), iter([0.0, -3600.0])

    def wait(seconds: float) -> None:
        drops.desk.clock.wait(seconds)
        drops.desk.clock.move(seconds=next(jumps, 0.0))

    drops.put("a")
    with pytest.raises(Backpressure):
        drops.watcher(wait=wait).run()
    assert sum(drops.desk.clock.waits) < (PATIENCE + 3 * LOOK).total_seconds()


def test_another_instance_is_not_waited_for_any_longer_by_a_clock_that_is_put_back() -> None:
    drops, jumps = Drops(), iter([0.0, -3600.0])
    clock = drops.desk.clock

    def wait(seconds: float) -> None:
        clock.wait(seconds)
        clock.move(seconds=next(jumps, 0.0))

    class Another(NoLease):
        def hold(self, now: Any) -> bool:
            return False

    watcher = drops.watcher(wait=wait)
    watcher._lease = Another()
    with pytest.raises(NotPossible, match="another instance watches"):
        watcher.run()
    assert sum(clock.waits) < 120


def test_a_bookkeeper_that_was_away_for_less_long_each_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_OBJECTS", 1)
    drops, away = Drops(), list[float]()

    def wait(seconds: float) -> object:
        away.append(seconds)
        if sum(away) < 240:
            return drops.desk.clock.wait(seconds)
        away.clear()
        return drops.wait(seconds)

    began = drops.desk.clock.now
    drops.put("a", "b", "c")
    drops.run(wait=wait)
    assert drops.keys() == ["a", "b", "c"]
    assert drops.desk.clock.now - began > 2 * PATIENCE


@pytest.mark.parametrize("operation", ["read drops/a", "delete drops/a"])
def test_a_storage_that_refuses_for_ever_ends_it(operation: str) -> None:
    drops = Drops()
    drops.put("a")
    with pytest.raises(StorageUnavailable):
        drops.run(Faults().on(operation, "before", StorageUnavailable), wait=within_an_hour(drops, drops.wait))
    drops.run()
    assert drops.keys() == ["a"] and drops.dropped() == []


def test_without_it_nothing_ends_it() -> None:
    drops = Drops()
    drops.put("a")
    began, hour = drops.desk.clock.now, timedelta(hours=1)

    def wait(seconds: float) -> object:
        drops.desk.clock.wait(seconds)
        return drops.desk.clock.now - began > hour

    drops.run(wait=wait, once=False)
    assert drops.desk.clock.now - began > hour and drops.dropped() == ["a"]
