"""
How fast a compactor reads and writes, and when it stops.
"""

from collections.abc import Callable

from bookkeeper.errors import Retry

#: how long it waits before it asks again whether it should stop
_ASK_EVERY = 1.0


class Stopped(Retry):
    """The rewrite was given up before it was published, because the process stops: nothing has changed."""


class Pacing:
    """At most so many bytes a second, read and written together; raises Stopped once `stopped`."""

    def __init__(
        self,
        bytes_per_second: int | None,
        stopped: Callable[[], bool],
        wait: Callable[[float], object],
        clock: Callable[[], float],
    ) -> None:
        self._per_second, self._stopped, self._wait, self._clock = bytes_per_second, stopped, wait, clock
        #: when all that was moved so far is paid for
        self._paid_at = clock()

    def check(self) -> None:
        """Raises Stopped once the process is to stop."""
        if self._stopped():
            raise Stopped

    def spend(self, count: int) -> None:
        """Waits as long as moving so many bytes may take; raises Stopped."""
        self.check()
        if self._per_second is None:
            return
        now = self._clock()
        # What was slower than allowed is no credit for later.
        self._paid_at = max(self._paid_at, now) + count / self._per_second
        left = self._paid_at - now
        while left > 0:
            self._wait(min(left, _ASK_EVERY))
            self.check()
            left -= _ASK_EVERY
