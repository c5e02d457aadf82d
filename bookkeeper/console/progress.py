"""
Progress on stderr: on a terminal one line below the log that is written over, elsewhere a line of text or JSON now and
then.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TextIO

from bookkeeper.console import status_line
from bookkeeper.console.logs import stamp
from bookkeeper.console.output import heading, human, plain

_ON_TERMINAL = timedelta(milliseconds=200)


class Progress:
    """
    Shows facts, at most once per `every`; nothing at all when quiet.
    """

    def __init__(
        self,
        label: str,
        clock: Callable[[], datetime],
        stream: TextIO,
        *,
        every: timedelta = timedelta(seconds=5),
        quiet: bool = False,
        as_json: bool = False,
    ) -> None:
        self._label, self._clock, self._stream, self._quiet = label, clock, stream, quiet
        self._as_json, self._terminal = as_json, stream.isatty() and not as_json
        self._every = _ON_TERMINAL if self._terminal else every
        self._next = clock() + self._every

    def tell(self, facts: Mapping[str, Any]) -> None:
        """
        Show the facts if it is time to.
        """
        now = self._clock()
        if now >= self._next:
            self._next = now + self._every
            self._write(facts)

    def close(self, facts: Mapping[str, Any]) -> None:
        """
        Show the last facts, whatever the time.
        """
        self._write(facts, last=True)

    def _write(self, facts: Mapping[str, Any], last: bool = False) -> None:
        if self._quiet:
            return
        if self._as_json:
            about = {"time": stamp(self._clock()), "level": "info", "message": "progress", "action": self._label}
            self._stream.write(json.dumps({**about, **facts}, default=plain) + "\n")
            self._stream.flush()
            return
        text = ", ".join(f"{heading(key)} {human(key, value)}" for key, value in facts.items())
        if self._terminal:
            (status_line.finish if last else status_line.draw)(self._stream, f"{self._label}: {text}")
            return
        self._stream.write(f"{self._label}: {text}\n")
        self._stream.flush()
