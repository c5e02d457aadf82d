"""
What lies in the table, by a decoder of its own (fastavro, pyarrow): nothing of what is tried is used.
"""

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from fastavro import parse_schema, schemaless_reader
from pyiceberg.table.snapshots import Snapshot

from tests.simulation.memory import Disk

EXISTING, DELETED = 0, 2
#: the order-column of tables that have one
ORDER = "number"
DATA, POSITION_DELETES, EQUALITY_DELETES = range(3)
_KINDS = {POSITION_DELETES: "position", EQUALITY_DELETES: "equality"}
#: the counters of a summary that say what it holds
COUNTERS = (
    *(f"total-{key}" for key in ("data-files", "records", "files-size", "delete-files")),
    *(f"total-{kind}-deletes" for kind in _KINDS.values()),
    *(f"{what}-files-size" for what in ("added", "removed")),
    *(f"{what}-{key}" for what in ("added", "deleted") for key in ("data-files", "records")),
    *(f"{what}-delete-files" for what in ("added", "removed")),
    *(f"{what}-{kind}-deletes" for what in ("added", "removed") for kind in _KINDS.values()),
    *(f"{what}-{kind}-delete-files" for what in ("added", "removed") for kind in _KINDS.values()),
)
#: pyiceberg's summaries count no partition of a table without partitions
PARTITIONS = "changed-partition-count"
#: the header of an Avro file, and what its blocks begin with
_FIELDS: dict[str, Any] = {
    "magic": {"type": "fixed", "name": "Magic", "size": 4},
    "meta": {"type": "map", "values": "bytes"},
    "sync": {"type": "fixed", "name": "Sync", "size": 16},
}
_HEADER = parse_schema(
    {"type": "record", "name": "Header", "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()]}
)
_LONG, _BYTES = parse_schema({"type": "long"}), parse_schema({"type": "bytes"})
_CODECS: dict[bytes, Callable[[Any], bytes]] = {
    b"null": bytes,
    b"deflate": lambda block: zlib.decompressobj(-15).decompress(block),
}


class Wrong(BaseException):
    """A promise is broken. No code under test may catch it."""


class Line(NamedTuple):
    """An entry of a manifest; without a number or a snapshot it has its manifest's."""

    status: int
    path: str
    content: int
    number: int | None
    snapshot: int | None
    rows: int
    bytes: int
    partition: str


class Listed(NamedTuple):
    """A line of a manifest list."""

    path: str
    number: int
    snapshot: int
    spec: int


def versions(table: pa.Table) -> list[str]:
    """What each row is known by: its value; a row that tells streams of a delete by its key and its order."""
    values = table["value"].to_pylist()
    if None not in values:
        return [value.decode() for value in values]
    rows = zip(table["key"].to_pylist(), values, table[ORDER].to_pylist(), strict=True)
    return [f"{key} was deleted, {order}" if value is None else value.decode() for key, value, order in rows]


@dataclass
class Decoder:
    """Reads manifest lists, manifests and Parquet files of a disk, each once."""

    disk: Disk
    _manifests: dict[str, tuple[Line, ...]] = field(default_factory=dict, init=False)
    _lists: dict[str, tuple[Listed, ...]] = field(default_factory=dict, init=False)
    #: what a manifest adds to each total; a manifest never changes
    _totals: dict[str, Counter[str]] = field(default_factory=dict, init=False)
    _rows: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict, init=False)
    _deletes: dict[str, tuple[Any, ...]] = field(default_factory=dict, init=False)

    def pairs(self, path: str) -> tuple[tuple[str, str], ...]:
        """Key and version of each row; a file is read once, when it is in the table for the first time."""
        if path not in self._rows:
            table = self._table(path, ["key", "value", ORDER])
            self._rows[path] = tuple(zip(table["key"].to_pylist(), versions(table), strict=True))
        return self._rows[path]

    def _table(self, path: str, columns: list[str] | None = None) -> Any:
        return pq.ParquetFile(pa.BufferReader(self._stored(path))).read(columns=columns, use_threads=False)

    def _stored(self, path: str) -> bytes:
        if not self.disk.has(path):
            raise Wrong(f"the table names {path}, which is not there")
        return self.disk.get(path).data

    def _manifests_of(self, snapshot: Snapshot) -> tuple[Listed, ...]:
        at = snapshot.manifest_list
        if at not in self._lists:
            lines = _records(self._stored(at))
            self._lists[at] = tuple(
                Listed(
                    line["manifest_path"],
                    line["sequence_number"],
                    line["added_snapshot_id"],
                    line["partition_spec_id"],
                )
                for line in lines
            )
        return self._lists[at]

    def _lines(self, manifest: str) -> tuple[Line, ...]:
        if manifest not in self._manifests:
            self._manifests[manifest] = tuple(
                Line(
                    entry["status"],
                    file["file_path"],
                    file.get("content") or 0,
                    entry["sequence_number"],
                    entry["snapshot_id"],
                    file["record_count"],
                    file["file_size_in_bytes"],
                    str(file["partition"]),
                )
                for entry in _records(self._stored(manifest))
                for file in [entry["data_file"]]
            )
        return self._manifests[manifest]

    def _files(self, snapshot: Snapshot) -> list[tuple[int, str, int]]:
        """Content, path and number of each live file."""
        return [
            (line.content, line.path, manifest.number if line.number is None else line.number)
            for manifest in self._manifests_of(snapshot)
            for line in self._lines(manifest.path)
            if line.status != DELETED
        ]

    def counted(self, snapshot: Snapshot) -> Counter[str]:
        """What each counter of the summary must say (Iceberg spec, Appendix F); one that it does not say is 0."""
        counts, partitions = Counter[str](), set[tuple[int, str]]()
        for manifest in self._manifests_of(snapshot):
            lines = self._lines(manifest.path)
            if manifest.path not in self._totals:
                live = [line for line in lines if line.status != DELETED]
                self._totals[manifest.path] = sum((_total(line) for line in live), Counter[str]())
            counts += self._totals[manifest.path]
            own = [line for line in lines if (line.snapshot or manifest.snapshot) == snapshot.snapshot_id]
            for line in own if manifest.snapshot == snapshot.snapshot_id else ():
                counts += _change(line)
                if line.status != EXISTING:
                    partitions.add((manifest.spec, line.partition))
        counts[PARTITIONS] = len(partitions)
        return counts

    def _deleted(self, path: str) -> tuple[Any, ...]:
        if path not in self._deletes:
            table = self._table(path)
            columns = [column.to_pylist() for column in table.columns]
            self._deletes[path] = tuple(columns[0] if len(columns) == 1 else zip(*columns, strict=True))
        return self._deletes[path]


def _total(line: Line) -> Counter[str]:
    """What a live file adds to the totals."""
    own = {"data-files": 1, "records": line.rows} if line.content == DATA else {"delete-files": 1, **_deletes(line)}
    return Counter({f"total-{key}": count for key, count in own.items()}) + Counter({"total-files-size": line.bytes})


def _change(line: Line) -> Counter[str]:
    """What a file that a snapshot adds or removes is counted as."""
    if line.status == EXISTING:
        return Counter()
    adds = line.status != DELETED
    if line.content == DATA:
        what, own = "added" if adds else "deleted", {"data-files": 1, "records": line.rows}
    else:
        kind = _KINDS[line.content]
        what, own = "added" if adds else "removed", {"delete-files": 1, f"{kind}-delete-files": 1, **_deletes(line)}
    size = {("added" if adds else "removed") + "-files-size": line.bytes}
    return Counter({f"{what}-{key}": count for key, count in own.items()} | size)


def _deletes(line: Line) -> dict[str, int]:
    return {f"{_KINDS[line.content]}-deletes": line.rows}


def _records(data: bytes) -> Iterator[Any]:
    """The records of an Avro file, by fastavro, which would parse the schema of each file anew."""
    stream = io.BytesIO(data)
    header: Any = schemaless_reader(stream, _HEADER, None)
    schema, unpack = _parsed(header["meta"]["avro.schema"]), _CODECS[header["meta"].get("avro.codec", b"null")]
    while stream.tell() < len(data):
        count: Any = schemaless_reader(stream, _LONG, None)
        payload = io.BytesIO(unpack(schemaless_reader(stream, _BYTES, None)))
        if stream.read(16) != header["sync"]:
            raise Wrong("a sync marker of an Avro file is not that of its header")
        for _ in range(count):
            yield schemaless_reader(payload, schema, None)


@lru_cache(maxsize=64)
def _parsed(schema: bytes) -> Any:
    return parse_schema(json.loads(schema))
