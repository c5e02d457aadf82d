"""
The article's load: rows of timestamp, key and value; each key names its writer, so that every row can be looked for.

The key is `<writer>/<run>/<number:012d>`; the value is seeded text of 27 letters, which compresses about 1.7 times.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from writers.timing import millis
from writers.writer import Writer

_LETTERS = b"abcdefghijklmnopqrstuvwxyz "
_TO_LETTERS = bytes(_LETTERS[byte % 27] for byte in range(256))
_CHUNK_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Load:
    """What to generate; equal loads give equal rows."""

    writer: str
    run: str
    records: int = 20_000
    value_bytes: int = 1_700
    seed: int = 0

    def rows(self, first: int, count: int, at: datetime) -> pa.Table:
        """Rows number `first` to `first + count - 1`, all of the time `at`."""
        times = pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), count)
        numbers = pa.array(range(first, first + count), pa.int64()).cast(pa.string())
        keys = pc.binary_join_element_wise(self.writer, self.run, pc.utf8_lpad(numbers, 12, "0"), "/")
        return pa.table({"timestamp": times, "key": keys, "value": self._values(first, count)})

    def file(self, number: int, at: datetime) -> Iterator[pa.Table]:
        """The rows of the file `number` (from 0), in pieces that fit into memory."""
        most = max(_CHUNK_BYTES // max(self.value_bytes, 1), 1)
        start, end = number * self.records, (number + 1) * self.records
        for first in range(start, end, most):
            yield self.rows(first, min(most, end - first), at)

    def _values(self, first: int, count: int) -> pa.Array:
        size = self.value_bytes
        seed = f"{self.seed}/{self.writer}/{first}".encode()
        letters = hashlib.shake_128(seed).digest(count * size).translate(_TO_LETTERS)
        ends = array("q", range(0, count * size + 1, size)) if size else array("q", [0] * (count + 1))
        return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)])


def publish_file(writer: Writer, load: Load, number: int, clock: Callable[[], datetime]) -> dict[str, Any]:
    """
    Write and publish one file of the load; returns its record for a close log.

    `closed_ms`: its data files were complete and durable; `published_ms`: so was the txlog.
    """
    for rows in load.file(number, clock()):
        writer.write(rows)
    writer.roll()
    closed = clock()
    name = writer.publish()
    first = number * load.records
    return {
        "name": str(name),
        "rows": load.records,
        "first": first,
        "last": first + load.records - 1,
        "closed_ms": millis(closed),
        "published_ms": millis(clock()),
    }
