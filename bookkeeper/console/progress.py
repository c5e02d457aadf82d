"""
Progress on stderr: on a terminal one line that is written over, elsewhere a plain line now and then.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TextIO

from bookkeeper.console.output import heading, human

_ON_TERMINAL = timedelta(milliseconds=200)


class Progress:
    """
    Shows the facts it is told, at most once per `every`; nothing at all when quiet.
    """

    def __init__(
        self,
        label: str,
        clock: Callable[[], datetime],
        stream: TextIO,
        *,
        every: timedelta = timedelta(seconds=5),
        quiet: bool = False,
    ) -> None:
        self._label, self._clock, self._stream, self._quiet = label, clock, stream, quiet
        self._terminal = stream.isatty()
        self._every = _ON_TERMINAL if self._terminal else every
        self._next = clock() + self._every

    def tell(self, facts: Mapping[str, Any]) -> None:
        """
        Show the facts if it is time to.
        """
        now = self._clock()
        if now >= self._next:
            self._next = now + self._every
            self._write(facts, end="" if self._terminal else "\n")

    def close(self, facts: Mapping[str, Any]) -> None:
        """
        Show the last facts, whatever the time.
        """
        self._write(facts, end="\n")

    def _write(self, facts: Mapping[str, Any], end: str) -> None:
        if self._quiet:
            return
        text = ", ".join(f"{heading(key)} {human(key, value)}" for key, value in facts.items())
        start = "\r\x1b[K" if self._terminal else ""
        self._stream.write(f"{start}{self._label}: {text}{end}")
        self._stream.flush()
