"""
Consumers for a day in minutes: real Spark streams, or a walker that leaves a checkpoint like theirs.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from benchmarks.independent import Independent


class Follower(Protocol):
    """Reads what is new whenever it is told to, and knows every row it has seen."""

    name: str
    checkpoint: Path

    def drain(self) -> None:
        """Read everything up to the end of the table."""

    def keys(self) -> Counter[str]:
        """How often each row was seen."""


class Walker:
    """Walks main as Spark's stream does, and keeps its place as Spark does."""

    def __init__(self, name: str, root: Path, table: Independent) -> None:
        self.name, self.checkpoint, self.table = name, root / f"cp-{name}", table
        self.batch, self.last, self.seen = -1, None, Counter[str]()
        self._write("sources/0/offsets/0", _offset(-1, -1))

    def drain(self) -> None:
        """One micro-batch: planned, read, committed."""
        data = self.table.metadata()
        snapshots = {item["snapshot-id"]: item for item in data["snapshots"]}
        line, current = [], data.get("refs", {}).get("main", {}).get("snapshot-id")
        while current != self.last and (current in snapshots or self.last is not None):
            # As Spark: a hole in history, or an expired offset, ends the query.
            line.append(snapshots[current])
            current = line[-1].get("parent-snapshot-id")
        if self.last is not None:
            assert self.last in snapshots, "the offset's snapshot was expired"
        appends = [item for item in reversed(line) if item["summary"]["operation"] == "append"]
        if not appends:
            return
        end = appends[-1]["snapshot-id"]
        self.batch += 1
        added = [self._added(item) for item in appends]
        self._write(f"offsets/{self.batch}", f"v1\n{{}}\n{_offset(end, len(added[-1]))}")
        for path in (path for paths in added for path in paths):
            self.seen.update(pq.read_table(path.removeprefix("file://"), columns=["key"])["key"].to_pylist())
        self._write(f"commits/{self.batch}", "v1\n{}")
        self.last = end

    def _added(self, snapshot: Any) -> list[str]:
        paths = []
        for manifest in self.table.own(snapshot["manifest-list"], snapshot["snapshot-id"]):
            paths += self.table.added(manifest, snapshot["snapshot-id"])
        assert len(paths) == int(snapshot["summary"]["added-data-files"])
        return paths

    def _write(self, key: str, text: str) -> None:
        path = self.checkpoint / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def keys(self) -> Counter[str]:
        """How often each row was seen."""
        return self.seen


def _offset(snapshot: int, position: int) -> str:
    data = {"version": 1, "snapshot_id": snapshot, "position": position, "scan_all_files": False}
    return json.dumps(data, separators=(",", ":"))


class Stream:
    """A Spark stream into a table of its own, started anew for every drain."""

    def __init__(self, name: str, root: Path, spark: Any, table: str, read: Callable[[], Any]) -> None:
        self.name, self.checkpoint, self.spark, self.table, self.read = name, root / f"cp-{name}", spark, table, read

    def drain(self) -> None:
        """Everything that is there, with the trigger available-now."""
        from spark_jobs import query, read_stream

        stream = read_stream.read(self.spark, self.table, max_files=2000)
        started = read_stream.start(
            stream, f"table:seen.{self.name}", self.table.split(".")[0], str(self.checkpoint), "available-now"
        )
        query.follow(started, lambda: False)

    def keys(self) -> Counter[str]:
        """How often each row was seen."""
        return Counter(self.read())
