"""
Rows on stdout as they come, flushed whenever no more are ready; a reader that closes the pipe is no error.
"""

import os
import select
import sys
from typing import IO

_CHUNK = 64 * 1024


class Pipe:
    """Stdout in whole lines; `closed` once the reader is known to be gone."""

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self._stream = stream or sys.stdout.buffer
        self._lines: list[bytes] = []
        self._bytes = 0
        self.closed = False

    def write(self, line: str) -> bool:
        """
        Add a line; returns whether it was flushed, with all before it.
        """
        self._lines.append(line.encode("utf-8", "backslashreplace") + b"\n")
        self._bytes += len(self._lines[-1])
        return self._bytes >= _CHUNK and self.flush()

    def flush(self) -> bool:
        """
        Flush all lines; False when the reader is gone.
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
        Whether the reader is gone, also while there is nothing to write.
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
        """Lines left in buffers would be written at exit, and be an error then."""
        self.closed = True
        if (number := self._number()) is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
