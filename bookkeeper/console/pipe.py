"""
Rows on stdout as they come: nothing is held back while nothing comes, and a reader that has enough is no error.
"""

import os
import select
import sys
from typing import IO

_CHUNK = 64 * 1024


class Pipe:
    """Stdout in whole lines; `closed` once it is known that nobody reads it any more."""

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self._stream = stream or sys.stdout.buffer
        self._lines: list[bytes] = []
        self._bytes = 0
        self.closed = False

    def write(self, line: str) -> bool:
        """
        Add a line; says whether it was handed over, and all before it.
        """
        self._lines.append(line.encode("utf-8", "backslashreplace") + b"\n")
        self._bytes += len(self._lines[-1])
        return self._bytes >= _CHUNK and self.flush()

    def flush(self) -> bool:
        """
        Hand over what there is; False when nobody takes it.
        """
        data, self._lines, self._bytes = b"".join(self._lines), [], 0
        try:
            self._stream.write(data)
            self._stream.flush()
        except BrokenPipeError:
            self._silence()
        return not self.closed

    def gone(self) -> bool:
        """
        Whether the reader has gone, also while there is nothing to write.
        """
        if not self.closed and (number := self._number()) is not None:
            poll = select.poll()
            poll.register(number, 0)
            self.closed = any(event & select.POLLERR for _, event in poll.poll(0))
        return self.closed

    def _number(self) -> int | None:
        try:
            return self._stream.fileno()
        except (OSError, ValueError):
            return None

    def _silence(self) -> None:
        """What is left in buffers would be written at the end, and be an error then."""
        self.closed = True
        if (number := self._number()) is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
