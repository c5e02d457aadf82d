"""A lease that lasts for a while is kept through a pause that is longer."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.discover.discovery import LOOK, Listing
from bookkeeper.errors import StorageUnavailable
from bookkeeper.leases.lease import NoLease
from bookkeeper.leases.object_lease import LASTING, PutLease
from bookkeeper.serve.loop import TableLoop, repeat
from bookkeeper.stores.local import LocalStore
from bookkeeper.tick.tick import TickResult
from tests.discover.pending import Told

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = Daemon(every=timedelta(minutes=2))


class Resting:
    """The loop of one table with this lease, for ten minutes; every second `meanwhile` does something."""

    def __init__(
        self, lease: Any, meanwhile: Callable[[datetime], Any] = lambda now: None, discovery: Any = None
    ) -> None:
        self.now, self.meanwhile, self.waits, self.ticks = NOW, meanwhile, list[float](), list[float]()
        inbox = SimpleNamespace(discovery=discovery or Listing(), consumed=SimpleNamespace(wait=bool))
        book: Any = SimpleNamespace(lease=lease, inbox=inbox, result=TickResult(), tick=self.tick)
        self.slot = TableLoop("events", lambda: book)

    def run(self) -> "Resting":
        repeat(self.slot, SETTINGS, lambda: self.now, self.wait)
        return self

    def tick(self, now: datetime) -> TickResult:
        self.ticks.append((now - NOW).total_seconds())
        return TickResult()

    def wait(self, seconds: float, wakes: Any = tuple, woken: Callable[[], bool] = lambda: False) -> bool:
        self.waits.append(seconds)
        for _ in range(0 if woken() else round(seconds)):
            self.now += timedelta(seconds=1)
            self.meanwhile(self.now)
        return self.now >= NOW + timedelta(minutes=10) or len(self.ticks) > 20


def test_a_standby_never_gets_a_lease_that_is_shorter_than_the_pause(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    mine, other = PutLease(store, "lease", "me"), PutLease(store, "lease", "other")
    got: list[datetime] = []
    resting = Resting(mine, lambda now: got.append(now) if other.hold(now) else None).run()
    assert resting.ticks == [0, 120, 240, 360, 480]
    assert got == [] and not resting.slot.standby


def test_a_lease_that_ends_with_its_process_is_not_asked_for_in_between() -> None:
    assert Resting(NoLease()).run().waits == [120] * 5


class Lasting(NoLease):
    """One that lasts for a while; `asked` is told each time."""

    lasting = LASTING

    def __init__(self, asked: Callable[[], object]) -> None:
        self.asked = asked

    def hold(self, now: datetime) -> bool:
        self.asked()
        return True


def test_a_storage_that_is_down_in_a_pause_is_the_next_ticks_business(caplog: pytest.LogCaptureFixture) -> None:
    times = count()

    def asked() -> None:
        if next(times) in (1, 2):
            raise StorageUnavailable("down")

    resting = Resting(Lasting(asked)).run()
    assert resting.ticks == [0, 120, 240, 360, 480] and not caplog.records
    assert next(times) > 100


def test_a_lease_that_is_asked_for_in_a_pause_and_does_not_answer_counts_as_a_tick_that_does_not_end() -> None:
    seen: list[datetime | None] = []
    resting = Resting(Lasting(lambda: seen.append(resting.slot.ticking_since)))
    resting.run()
    assert len(seen) > 100 and None not in seen
    assert resting.slot.ticking_since is None


def test_a_hint_ends_the_pause_of_a_lease_that_is_kept() -> None:
    times = count()
    resting = Resting(Lasting(lambda: next(times)), discovery=Told(LOOK)).run()
    assert resting.ticks == [0] * 21 and next(times) == 21
