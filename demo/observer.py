"""
Observes the queue from outside while it runs: writes the evidence, and counts for the live view.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.contract.names import TxlogName
from demo import evidence
from demo.evidence import Committed, Published
from demo.latency import percentiles
from demo.pending import PendingWatch, SeenTxlog
from demo.table import TableWatch, path_of, txlogs_in

_RECENT_BATCHES, _SILENT_MS = 5, 5_000


@dataclass(frozen=True, slots=True)
class Counts:
    """What the live view shows."""

    pending: int = 0
    commits: int = 0
    published: int = 0
    committed: int = 0
    consumed: int = 0
    latency: timedelta | None = None
    files: int = 0
    snapshots: int = 0

    @property
    def settled(self) -> bool:
        """Whether everything published has been consumed."""
        return self.pending == 0 and self.published <= self.committed <= self.consumed


def logged(line: Mapping[str, Any]) -> Published:
    """
    The txlog of one line of a close log: rows number `first` to `last` of a run are published.
    """
    name = TxlogName.parse(line["name"])
    keys = [f"{name.writer}/{name.incarnation}/{number:012d}" for number in range(line["first"], line["last"] + 1)]
    return Published(line["name"], keys, line["closed_ms"], line["published_ms"], logged=True)


class Observer:
    """
    Each `look` reads what is published before what is committed and consumed, so that it knows every row it sees there.

    `now` is the time in seconds.
    """

    def __init__(
        self, folder: Path, close_logs: Path, pending: PendingWatch, table: TableWatch, now: Callable[[], float]
    ) -> None:
        self._folder, self._close_logs, self._pending, self.table, self._now = folder, close_logs, pending, table, now
        self._rows: dict[str, int] = {}
        self._keys: dict[Path, list[str]] = {}
        self._closed: dict[str, int] = {}
        self._read: dict[Path, int] = {}
        self._batches: dict[str, int] = {}
        self._latency: list[list[int]] = []
        self._latest_ms = 0
        self._commits = self._committed = 0

    def look(self) -> Counts:
        """Record everything that is new; returns the counts so far."""
        for txlog in self._pending.take():
            self._see(txlog)
        for path in sorted(self._close_logs.glob("*.jsonl")):
            self._read_log(path)
        for snapshot, files in self.table.look():
            self._commit(snapshot, files)
        self._consume()
        return self._facts()

    def _see(self, txlog: SeenTxlog) -> None:
        files = [path_of(entry["data_file"]["file_path"]) for entry in fastavro.reader(BytesIO(txlog.data))]
        keys = [key for path in files for key in self._keys_in(path)]
        closed = max((path.stat().st_mtime_ns // 1_000_000 for path in files), default=txlog.published_ms)
        self._publish(Published(str(txlog.name), keys, closed, txlog.published_ms))

    def _keys_in(self, path: Path) -> list[str]:
        if path not in self._keys:
            self._keys[path] = pq.read_table(path, columns=["key"])["key"].to_pylist()
        return self._keys[path]

    def _publish(self, item: Published) -> None:
        self._rows[item.txlog] = len(item.keys)
        self._closed |= dict.fromkeys(item.keys, item.closed_ms)
        evidence.write(self._folder, item)

    def _read_log(self, path: Path) -> None:
        with path.open("rb") as log:
            log.seek(self._read.get(path, 0))
            for line in log:
                if not line.endswith(b"\n"):
                    break  # being written, or cut off by a kill
                self._read[path] = self._read.get(path, 0) + len(line)
                self._publish(logged(json.loads(line)))

    def _commit(self, snapshot: Snapshot, files: list[Path]) -> None:
        keys = {str(path): self._keys_in(path) for path in files}
        names = [str(name) for name in txlogs_in(snapshot)]
        evidence.write(self._folder, Committed(snapshot.snapshot_id, snapshot.timestamp_ms, names, keys))
        self._commits += 1
        self._committed += sum(map(len, keys.values()))

    def _consume(self) -> None:
        for name, batch in evidence.batches(self._folder, self._batches).items():
            self._batches[name] = len(batch.keys)
            closed = (self._closed[key] for key in batch.keys if key in self._closed)
            self._latency = [*self._latency[1 - _RECENT_BATCHES :], [batch.seen_ms - at for at in closed]]
            self._latest_ms = batch.seen_ms

    def _facts(self) -> Counts:
        recent = percentiles(latency for batch in self._latency for latency in batch)
        silent = self._now() * 1000 - self._latest_ms > _SILENT_MS
        return Counts(
            self._pending.now,
            self._commits,
            sum(self._rows.values()),
            self._committed,
            sum(self._batches.values()),
            recent.p50 if recent and not silent else None,
            self.table.live_files,
            self.table.snapshots,
        )
