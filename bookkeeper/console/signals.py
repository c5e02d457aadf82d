"""
SIGTERM, SIGINT and SIGHUP as wishes: a handler only takes a note, the loop reads it between two turns.
"""

import math
import os
import select
import signal
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType


class _Asked:
    """
    Something that may be asked for, and a pipe that is readable once it was.
    """

    def __init__(self) -> None:
        # A pipe, no threading.Event: setting that in a handler can deadlock with the wait it interrupted.
        self._read, self._write = _pipe_of(self)
        self.requested = False

    def wakes(self) -> Collection[int]:
        """
        The file descriptor that is readable while it is asked for: for whoever waits for something else as well.
        """
        return (self._read,)

    def asked(self) -> bool:
        """
        Whether it was asked for.
        """
        return self.requested


class StopSignal(_Asked):
    """
    Whether something was asked to stop, and a pause that ends at once when it is.
    """

    @classmethod
    def on_signals(cls) -> "StopSignal":
        """
        One that SIGTERM and SIGINT trigger; a second SIGINT interrupts hard.
        """
        stop = cls()
        signal.signal(signal.SIGTERM, stop._note)
        signal.signal(signal.SIGINT, stop._note)
        return stop

    def request(self) -> None:
        """
        Ask for the stop.
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
        Sleep `seconds`, or until asked to stop; says whether it was.

        Also ends when `woken` says so, which is asked whenever a file descriptor of `wakes` is readable.
        """
        until = time.monotonic() + seconds
        while not self.requested and not woken():
            left = until - time.monotonic()
            _readable([self._read, *wakes()], max(left, 0.0))
            if left <= 0:
                break
        return self.requested


def _pipe_of(owner: object) -> tuple[int, int]:
    """A pipe that is closed when nobody refers to its owner any more: until then somebody may be waiting on it."""
    ends = os.pipe()
    for end in ends:
        weakref.finalize(owner, os.close, end).atexit = False
    return ends


def _readable(numbers: Collection[int], seconds: float) -> None:
    # select() refuses numbers from 1024 on, and a few hundred tables have more files open than that.
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    poll.poll(math.ceil(seconds * 1000))


class ReloadSignal(_Asked):
    """
    Something that is asked for from time to time: noted by a signal's handler, taken by whoever waits.
    """

    def __init__(self) -> None:
        super().__init__()
        for end in (self._read, self._write):
            os.set_blocking(end, False)

    @classmethod
    def on_signal(cls, number: int) -> "ReloadSignal":
        """
        One that this signal asks for.
        """
        wish = cls()
        signal.signal(number, lambda *_: wish.request())
        return wish

    def request(self) -> None:
        """
        Ask for it; asking twice before it is taken is asking once.
        """
        self.requested = True
        with suppress(BlockingIOError):
            os.write(self._write, b"x")

    def take(self) -> bool:
        """
        Whether it was asked for since it was taken last; what is asked for from here on counts anew.
        """
        asked = self.requested
        # Only what was asked for is taken, and before the pipe is emptied: a signal that comes in between is then
        # either taken with it or asked for anew, and never in the pipe alone, which would end every wait at once.
        if asked:
            self.requested = False
        with suppress(BlockingIOError):
            os.read(self._read, 4096)
        return asked
