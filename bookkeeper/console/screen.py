"""
A terminal in full-screen mode, redrawn again and again, and restored at the end.

Our own: the alternate screen, single keys, and lines cut at the terminal's width. rich would replace the drawing (35 of
these lines), not keys, resizes and ^Z, and costs 28 to 55 ms at the start.
"""

import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Collection, Sequence
from types import FrameType, TracebackType
from typing import Any

from bookkeeper.console.readable import readable

_TAKE = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_GIVE_BACK = "\x1b[?7h\x1b[?25h\x1b[?1049l"
#: keys that end what is shown
QUIT = frozenset("qQ\x03\x04")
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


class Screen:
    """The terminal on `number` (stdin's) and `out`, within a `with` block."""

    def __init__(self, number: int | None = None, out: Any = None) -> None:
        self._in = sys.stdin.fileno() if number is None else number
        self._out = out or sys.stdout
        self._wake, self._resized = os.pipe()
        for end in (self._wake, self._resized):
            os.set_blocking(end, False)
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Screen":
        self._before = termios.tcgetattr(self._in)
        handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
            signal.SIGWINCH: lambda *_: self._note(),
            signal.SIGTSTP: lambda *_: self._suspended(),
        }
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in (self._wake, self._resized):
            os.close(end)

    def _take(self) -> None:
        tty.setcbreak(self._in)
        self._write(_TAKE)

    def _give_back(self) -> None:
        self._write(_GIVE_BACK)
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _suspended(self) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._note()

    def _note(self) -> None:
        try:
            os.write(self._resized, b"x")
        except BlockingIOError:
            return

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            return  # the terminal is gone

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines as they are now."""
        try:
            return os.get_terminal_size(self._out.fileno())
        except OSError:
            return os.terminal_size((80, 24))

    def wakes(self) -> Collection[int]:
        """What to wait for: a key, another size."""
        return (self._in, self._wake)

    def resized(self) -> bool:
        """Whether the terminal has another size than when this was last asked."""
        try:
            return bool(os.read(self._wake, 64))
        except BlockingIOError:
            return False

    def key(self) -> str:
        """The keys pressed since, "" for none; a terminal that hung up is a `q`."""
        if not readable([self._in], 0):
            return ""
        try:
            return os.read(self._in, 64).decode("utf-8", "replace") or "q"
        except OSError:
            return "q"

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, as far as there is room, in place of what was shown."""
        columns, most = self.size
        shown = [cut(line, columns) for line in lines[:most]]
        self._write("\x1b[H" + "\x1b[K\n".join(shown) + "\x1b[K\x1b[J")


def cut(line: str, columns: int) -> str:
    """
    The first `columns` columns of the line; style codes take no column.
    """
    left, kept = columns, []
    for index, part in enumerate(_STYLE.split(line)):
        if index % 2:
            kept.append(part)
        else:
            kept.append(part[:left])
            left -= min(left, len(part))
    return "".join(kept)
