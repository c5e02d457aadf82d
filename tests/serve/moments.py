"""
Time for threads: it stands still while any of them works, and moves on when all of them wait for it.

So whatever takes no time by this clock starts to the microsecond when it should, or something held it up. A thread that
hangs does not count as working: time goes on without it, as it does in the world.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
#: no bound on anything: only a deadlock takes so long
_DEADLOCK_SECONDS = 60


@dataclass(eq=False)
class Sleeper:
    """A thread that waits for a moment, or until it is woken."""

    until: datetime
    woken: Callable[[], bool]
    awake: bool = False


@dataclass
class Moments:
    """The clock, and which thread sleeps until when."""

    now: datetime = NOW
    working: int = 0
    hung: int = 0
    thawed: bool = False
    sleepers: list[Sleeper] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self) -> datetime:
        return self.now

    def wish(self) -> "Wished":
        """What `console.stopping.Stop` is, on this clock."""
        return Wished(self)

    def sleep(self, seconds: float, woken: Callable[[], bool] = lambda: False) -> None:
        """Of a thread that works: it does not while it sleeps. One that is woken before it sleeps goes on at once."""
        with self.changed:
            if woken():  # asked here, where no `wake` can come between the answer and the sleep
                return
            one = Sleeper(self.now + timedelta(seconds=seconds), woken)
            self.sleepers.append(one)
            self.working -= 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: one.awake)

    def wake(self) -> None:
        """The threads that were woken work from now on."""
        with self.changed:
            for one in [one for one in self.sleepers if one.woken()]:
                self._rouse(one)

    def _rouse(self, one: Sleeper) -> None:
        self.sleepers.remove(one)
        one.awake = True
        self.working += 1
        self.changed.notify_all()

    def hang(self) -> None:
        """Of a thread that waits for an answer which no clock brings."""
        with self.changed:
            if self.thawed:
                return
            self.hung += 1
            self.working -= 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.thawed)

    def thaw(self) -> None:
        """Every thread that hangs, now or later, has its answer."""
        with self.changed:
            self.thawed = True
            self.working += self.hung
            self.hung = 0
            self.changed.notify_all()

    def count(self, more: int) -> None:
        """So many threads more work."""
        with self.changed:
            self.working += more
            self.changed.notify_all()

    def move(self, seconds: float) -> None:
        """Lets so much time pass: every sleeper wakes at its moment, one after the other."""
        until = self.now + timedelta(seconds=seconds)
        with self.changed:
            while True:
                if not self.changed.wait_for(lambda: self.working == 0, _DEADLOCK_SECONDS):
                    raise AssertionError(f"{self.working} threads neither sleep nor hang: something holds them up")
                due = min(self.sleepers, key=lambda one: one.until, default=None)
                if due is None or due.until > until:
                    break
                self.now = max(self.now, due.until)
                self._rouse(due)
            self.now = until

    def spawn(self, act: Callable[[], object], name: str = "") -> None:
        """A thread that works until it ends."""
        self.count(+1)

        def run() -> None:
            try:
                act()
            finally:
                self.count(-1)

        threading.Thread(target=run, name=name, daemon=True).start()


class Wished:
    """`console.stopping.Stop` by such a clock; a thread that it tells to stop works no more."""

    def __init__(self, moments: Moments) -> None:
        self.moments, self.requested = moments, False

    def request(self) -> None:
        self.requested = True
        self.moments.wake()

    def wait(
        self, seconds: float, wakes: Callable[[], Collection[int]] = tuple, woken: Callable[[], bool] = lambda: False
    ) -> bool:
        self.moments.sleep(seconds, lambda: self.requested or woken())
        return self.requested

    def wakes(self) -> Collection[int]:
        return ()

    def asked(self) -> bool:
        return self.requested
