"""
Which of many locations are not among many others, in memory that does not grow with either.

Both go into buckets by a hash of the location, on this machine's temporary disk once they are large; then one
bucket at a time is compared.
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


class Sieve:
    """Keeps `candidates`, takes away what is `named`; a bucket takes up to `in_memory` bytes. A context manager."""

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._open = ExitStack()
        self._candidates = [self._bucket() for _ in range(BUCKETS)]
        self._named = [self._bucket() for _ in range(BUCKETS)]
        self.candidates = self.named = 0

    def _bucket(self) -> IO[bytes]:
        return self._open.enter_context(SpooledTemporaryFile(self._in_memory))

    def __enter__(self) -> "Sieve":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def put(self, location: str, facts: Any) -> None:
        """A candidate, with whatever is known of it (JSON)."""
        self._candidates[_bucket(location)].write(json.dumps([location, facts]).encode() + b"\n")
        self.candidates += 1

    def name(self, locations: Iterable[str]) -> None:
        """These are named."""
        for location in locations:
            self._named[_bucket(location)].write(json.dumps(location).encode() + b"\n")
            self.named += 1

    def unnamed(self) -> Iterator[tuple[str, Any]]:
        """The candidates that nothing names."""
        for candidates, named in zip(self._candidates, self._named, strict=True):
            candidates.seek(0)
            named.seek(0)
            lines = set(named)
            for line in candidates:
                location, facts = json.loads(line)
                if json.dumps(location).encode() + b"\n" not in lines:
                    yield location, facts


def _bucket(location: str) -> int:
    return zlib.crc32(location.encode("utf-8", "surrogateescape")) % BUCKETS
