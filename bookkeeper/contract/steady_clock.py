"""
Steady time: compares this machine's clock with its monotonic clock, which cannot be set.

A clock that advanced more than the time that passed was set: rightly (NTP after a pause of the machine) or wrongly. A
process cannot know which. The storage's clock shows it, unless the storage is on this machine.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock

from bookkeeper.stores.locations import local_path
from bookkeeper.stores.store import Store

#: NTP corrects by less all the time, and so far may a commit be ahead of other bookkeepers
SMALL = timedelta(seconds=30)
#: a correction that small is taken over once it has lasted so many seconds
_LASTING_SECONDS = 3600.0
NO_JUMP = timedelta(0)


class Steady:
    """
    A clock (UTC) that knows how far it was set ahead since it was last trusted; one for all tables of a process.

    `elapsed` counts seconds, also while the machine sleeps; without it no jump is ever seen.
    """

    def __init__(self, clock: Callable[[], datetime], elapsed: Callable[[], float] | None = None) -> None:
        self.clock, self.elapsed = clock, elapsed
        self._lock = Lock()
        self._base, self._since = self._look()

    def __call__(self) -> datetime:
        return self.clock()

    def _look(self) -> tuple[datetime, float]:
        """The time at which the monotonic clock would have begun, and what that shows now."""
        passed = self.elapsed() if self.elapsed else 0.0
        return self.clock() - timedelta(seconds=passed), passed

    def ahead(self) -> timedelta:
        """How far the clock was set ahead since it was last trusted; never negative."""
        if self.elapsed is None:
            return NO_JUMP
        base, passed = self._look()
        with self._lock:
            lasting = passed - self._since >= _LASTING_SECONDS
            if base < self._base or (lasting and base - self._base <= SMALL):
                self._base, self._since = base, passed
            return base - self._base

    def time(self) -> datetime:
        """The time without such jumps: never later than the clock."""
        return self.clock() - self.ahead()

    def trust(self) -> None:
        """Trusts the clock as it is now."""
        base, passed = self._look()
        with self._lock:
            self._base, self._since = base, passed


def keeps_time(store: Store) -> bool:
    """
    Whether the storage's clock is another than this machine's, so that the two prove each other.
    """
    return not store.url.startswith("memory:") and local_path(store.url) is None
