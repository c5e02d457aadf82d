"""
The article's load: rows of timestamp, key and value; each key names its writer, so that every row can be looked for.

The key is `<writer>/<run>/<number:012d>`; the value is seeded text of 27 letters, which compresses about 1.7 times.
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import NotPossible
from writers.timing import Clock, millis
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


@dataclass(frozen=True, slots=True)
class Schedule:
    """When `writer generate` ends, how long it pauses between two files, and the file for its log of txlogs."""

    files: int | None
    seconds: float | None
    pause: timedelta
    close_log: Path | None

    def over(self, number: int, elapsed: float) -> bool:
        """Whether to end after `number` files and `elapsed` seconds."""
        return number == self.files or (self.seconds is not None and elapsed >= self.seconds)


def run_generate(
    writer: Writer, load: Load, schedule: Schedule, stop: StopSignal, progress: Progress, clock: Clock
) -> None:
    """
    Publish generated files until the schedule is over or a stop is requested.
    """
    began, number = clock(), 0

    def elapsed() -> float:
        return (clock() - began).total_seconds()

    def counts() -> dict[str, Any]:
        rows = number * load.records
        rate = round(rows / max(elapsed(), 0.001))
        return {"txlogs": number, "rows": rows, "bytes": rows * load.value_bytes, "rows/s": rate}

    if schedule.close_log is not None:
        _check_writable(schedule.close_log)
    while not (stop.requested or schedule.over(number, elapsed())):
        closed = publish_file(writer, load, number, clock)
        number += 1
        if schedule.close_log is not None:
            with schedule.close_log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(closed) + "\n")
        progress.tell(counts())
        stop.wait(schedule.pause.total_seconds())
    progress.close(counts())


def _check_writable(path: Path) -> None:
    """Checked before anything is published: afterwards it would be too late for the log."""
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as exc:
        hint = "Name a file in a folder that is there and may be written."
        raise NotPossible(f"--close-log {path} cannot be written: {exc.strerror}", hint=hint) from exc
