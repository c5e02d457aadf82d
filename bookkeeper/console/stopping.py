"""
SIGTERM and SIGINT as a wish: the handler only takes a note, the loop reads it between two turns.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection
from types import FrameType


class Stop:
    """
    Whether the process was asked to stop, and a pause that ends at once when it is.
    """

    def __init__(self) -> None:
        # A pipe, no threading.Event: setting that in a handler can deadlock with the wait it interrupted.
        self._read, self._write = os.pipe()
        self.requested = False

    @classmethod
    def on_signals(cls) -> "Stop":
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
            select.select([self._read, *wakes()], [], [], max(left, 0.0))
            if left <= 0:
                break
        return self.requested
