"""A bookkeeper that fails does not keep the table from another that would work, and does not hide that it fails."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.discover.discovery import Listing
from bookkeeper.errors import CatalogUnavailable
from bookkeeper.leases.lease import Lease
from bookkeeper.leases.object_lease import PutLease
from bookkeeper.serve.health import HALTED, NOT_READY, STANDBY, health
from bookkeeper.serve.loop import STEADY, TableLoop, repeat, tick_once
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from bookkeeper.tick.result import TickResult
from tests.serve.test_loop import NOW, SECOND

SETTINGS = Daemon(every=SECOND, backoff_most=timedelta(seconds=8), not_ready_after=3)


class Instance:
    """One of two bookkeepers of a table; `works`: its ticks succeed."""

    def __init__(self, store: Store, name: str, works: bool) -> None:
        self.name, self.works, self.ticks = name, works, 0
        inbox = SimpleNamespace(discovery=Listing(), consumed=SimpleNamespace(wait=lambda: None))
        self.lease: Lease = PutLease(store, "lease", name)
        book: Any = SimpleNamespace(lease=self.lease, inbox=inbox, result=TickResult(), tick=self.tick)
        self.slot = TableLoop("events", lambda: book)

    def tick(self, now: datetime) -> TickResult:
        self.ticks += 1
        if not self.works:
            raise CatalogUnavailable(f"not from {self.name}")
        return TickResult()

    def state(self, now: datetime) -> tuple[str, bool]:
        found = health(self.slot, SETTINGS, now)
        return found.state, found.ready


def after(seconds: float, *instances: Instance, since: datetime = NOW) -> datetime:
    """Each second, each instance in turn; the time then."""
    for second in range(int(seconds)):
        for one in instances:
            tick_once(one.slot, SETTINGS, since + second * SECOND)
    return since + int(seconds) * SECOND


def test_another_takes_over_from_one_that_fails() -> None:
    store = open_store("memory://failing")
    first, second = Instance(store, "a", works=False), Instance(store, "b", works=True)

    now = after(20, first, second)

    assert (first.ticks, first.state(now)) == (3, (NOT_READY, False))
    assert second.ticks > 10
    first.works = True
    now = after(STEADY.total_seconds() - 30, first, second, since=now)
    assert first.state(now) == (NOT_READY, False)  # it has not shown that it works
    now = after(60, first, second, since=now)
    assert first.state(now) == (STANDBY, True)
    assert first.ticks == 3


def test_two_that_fail_do_not_take_turns_at_being_well() -> None:
    store = open_store("memory://failing")
    both = Instance(store, "a", works=False), Instance(store, "b", works=False)
    now = after(60, *both)
    for _ in range(600):
        now = after(1, *both, since=now)
        assert [one.state(now) for one in both] == [(NOT_READY, False)] * 2
    both[1].works = True
    now = after(30, *both, since=now)
    assert [one.state(now)[1] for one in both] == [False, True]


def test_one_alone_goes_on_once_it_can() -> None:
    alone = Instance(open_store("memory://failing"), "a", works=False)
    now = after(60, alone)
    assert not alone.state(now)[1]
    alone.works = True
    now = after(9, alone, since=now)
    assert alone.state(now) == ("ready", True)


def test_a_lease_that_was_given_up_is_not_taken_in_a_pause() -> None:
    """A pause that is longer than a lease keeps it: not one that another is to get."""
    store, settings = open_store("memory://failing"), Daemon(every=timedelta(minutes=1), not_ready_after=1)
    one, other, now, got = Instance(store, "a", works=False), PutLease(store, "lease", "b"), [NOW], list[bool]()

    def wait(seconds: float, *more: object) -> bool:
        now[0] += timedelta(seconds=seconds)
        got.append(other.hold(now[0]))
        return True

    repeat(one.slot, settings, lambda: now[0], wait)

    assert got == [True] and now[0] == NOW + timedelta(minutes=1)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_few_failures_give_nothing_up(failures: int) -> None:
    store = open_store("memory://failing")
    one, other = Instance(store, "a", works=False), PutLease(store, "lease", "b")
    for number in range(failures):
        tick_once(one.slot, SETTINGS, NOW + 4 * number * SECOND)
    assert not other.hold(NOW + 5 * SECOND)
    assert one.state(NOW)[0] not in (NOT_READY, HALTED)
