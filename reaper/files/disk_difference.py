"""
The difference of two large sets of locations, on disk: memory does not grow with either.

Both go into buckets by a hash of the location's last segment, on this machine's temporary disk once they are large.
Then one bucket at a time is compared.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Any

BUCKETS = 32
_IN_MEMORY = 2**18


class DiskDifference:
    """
    The locations that were added and not subtracted, in whichever order; a context manager.

    A bucket takes up to `in_memory` bytes of memory; `added` and `subtracted` count.
    """

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._open = ExitStack()
        self._added = [self._bucket() for _ in range(BUCKETS)]
        self._subtracted = [self._bucket() for _ in range(BUCKETS)]
        self.added = self.subtracted = 0

    def _bucket(self) -> IO[bytes]:
        return self._open.enter_context(SpooledTemporaryFile(self._in_memory))

    def __enter__(self) -> "DiskDifference":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def add(self, location: str, facts: Any) -> None:
        """A location, with facts about it (JSON)."""
        self._added[_bucket(location)].write(json.dumps([location, facts]).encode() + b"\n")
        self.added += 1

    def subtract(self, locations: Iterable[str]) -> None:
        """Removes these locations, whether they were added or not; a last segment alone removes all that end in it."""
        for location in locations:
            self._subtracted[_bucket(location)].write(json.dumps(location).encode() + b"\n")
            self.subtracted += 1

    def remaining(self) -> Iterator[tuple[str, Any]]:
        """Location and facts of each remaining one."""
        for added, subtracted in zip(self._added, self._subtracted, strict=True):
            added.seek(0)
            subtracted.seek(0)
            lines = set(subtracted)
            for line in added:
                location, facts = json.loads(line)
                if lines.isdisjoint(json.dumps(name).encode() + b"\n" for name in (location, _last(location))):
                    yield location, facts


def _last(location: str) -> str:
    return location.rpartition("/")[2]


def _bucket(location: str) -> int:
    return zlib.crc32(_last(location).encode("utf-8", "surrogateescape")) % BUCKETS
