"""
The bytes of txlogs that all tables of a bookkeeper read at once: what bounds the memory of many tables with backlogs.

No tick ever waits for its part: it is given a part of what is free and reads no more than that. A table that is blocked
in the middle of a tick keeps its part from the others and never holds them up.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from bookkeeper.tick.select import READ_BYTES

#: a part that a tick holds for longer than this is given to others too: the tick is blocked, or all but done
FORGOTTEN = timedelta(minutes=2)


class ReadBudget:
    """A number of bytes, shared by any number of tables and threads."""

    def __init__(self, size: int = READ_BYTES) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._parts: dict[object, tuple[int, datetime]] = {}

    @contextmanager
    def part(self, wanted: int, now: datetime) -> Iterator[int]:
        """
        Reserves bytes for the block: what was wanted, or half of what is free if that is less; may be 0.
        """
        key = object()
        with self._lock:
            taken = sum(size for size, since in self._parts.values() if abs(now - since) < FORGOTTEN)
            given = min(wanted, max(self.size - taken, 0) // 2)
            self._parts[key] = (given, now)
        try:
            yield given
        finally:
            with self._lock:
                del self._parts[key]
