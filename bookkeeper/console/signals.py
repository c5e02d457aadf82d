"""
SIGTERM, SIGINT and SIGHUP as requests: a handler only sets a flag, which the loop reads between two ticks.
"""

import os
import signal
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType

from bookkeeper.console.readable import readable


class _Request:
    """
    A flag that a signal's handler sets, and a pipe that is readable once it is set.
    """

    def __init__(self) -> None:
        # A pipe, no threading.Event: setting that in a handler can deadlock with the wait it interrupted.
        self._read, self._write = _pipe_of(self)
        self.requested = False

    def wakes(self) -> Collection[int]:
        """
        The file descriptor that is readable once it is requested, for a wait on several.
        """
        return (self._read,)

    def asked(self) -> bool:
        """
        Whether it is requested.
        """
        return self.requested


class StopSignal(_Request):
    """
    A request to stop, and a pause that ends at once when it comes.
    """

    @classmethod
    def on_signals(cls) -> "StopSignal":
        """
        One that SIGTERM and SIGINT request; a second SIGINT raises KeyboardInterrupt.
        """
        stop = cls()
        signal.signal(signal.SIGTERM, stop._note)
        signal.signal(signal.SIGINT, stop._note)
        return stop

    def request(self) -> None:
        """
        Request the stop.
        """
        if not self.requested:
            self.requested = True
            os.write(self._write, b"x")

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.request()

    def wait(
        self, seconds: float, wakes: Callable[[], Collection[int]] = tuple, woken: Callable[[], bool] = lambda: False
    ) -> bool:
        """
        Sleep `seconds`, or until a stop is requested; returns whether it is.

        Also ends when `woken` returns True; it is called whenever a file descriptor of `wakes` is readable.
        """
        until = time.monotonic() + seconds
        while not self.requested and not woken():
            left = until - time.monotonic()
            readable([self._read, *wakes()], max(left, 0.0))
            if left <= 0:
                break
        return self.requested


def _pipe_of(owner: object) -> tuple[int, int]:
    """A pipe that is closed when its owner is collected: until then a thread may be waiting on it."""
    ends = os.pipe()
    for end in ends:
        weakref.finalize(owner, os.close, end).atexit = False
    return ends


class ReloadSignal(_Request):
    """
    A request that may come again and again: a signal's handler sets it, the waiting loop takes it.
    """

    def __init__(self) -> None:
        super().__init__()
        for end in (self._read, self._write):
            os.set_blocking(end, False)

    @classmethod
    def on_signal(cls, number: int) -> "ReloadSignal":
        """
        One that this signal requests.
        """
        reload = cls()
        signal.signal(number, lambda *_: reload.request())
        return reload

    def request(self) -> None:
        """
        Request it; two requests before it is taken are one.
        """
        self.requested = True
        with suppress(BlockingIOError):
            os.write(self._write, b"x")

    def take(self) -> bool:
        """
        Whether there was a request since the last `take`; a later request is a new one.
        """
        asked = self.requested
        # The flag is cleared only if it was set, and before the pipe is emptied: a signal in between is then either
        # taken with it or a new request, and never in the pipe alone, which would end every wait at once.
        if asked:
            self.requested = False
        with suppress(BlockingIOError):
            os.read(self._read, 4096)
        return asked
