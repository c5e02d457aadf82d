"""
What lies in the table, by a decoder of its own (fastavro, pyarrow): nothing of what is tried is used.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.avro_files import Damaged, records
from tests.simulation.disk import Disk
from tests.simulation.extra import NAMES as EXTRA
from tests.simulation.table_state import Snapshot

P, T = ParamSpec("P"), TypeVar("T")
EXISTING, ADDED, DELETED = range(3)
#: the order-column of tables that have one
ORDER = "number"
DATA, POSITION_DELETES, EQUALITY_DELETES = range(3)
KINDS = {POSITION_DELETES: "position", EQUALITY_DELETES: "equality"}
_EPOCH = date(1970, 1, 1)
#: of an entry's data file: what must be the same wherever the file is listed
_FACTS = (
    *("file_format", "record_count", "file_size_in_bytes", "column_sizes", "value_counts", "null_value_counts"),
    *("nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata", "split_offsets", "equality_ids"),
    "sort_order_id",
)


class Wrong(BaseException):
    """A promise is broken. No code under test may catch it."""


def never_caught(act: Callable[P, T]) -> Callable[P, T]:
    """A defect of the oracle is no error that the code under test could handle."""

    @wraps(act)
    def acted(*given: P.args, **named: P.kwargs) -> T:
        try:
            return act(*given, **named)
        except Exception as error:
            raise Wrong(f"a defect of the oracle: {error!r}") from error

    return acted


class Line(NamedTuple):
    """An entry of a manifest; without numbers or a snapshot it has its manifest's."""

    status: int
    path: str
    content: int
    number: int | None
    file_number: int | None
    snapshot: int | None
    rows: int
    bytes: int
    partition: tuple[int | None, ...]
    #: all else that it says of the file, in the order of _FACTS
    facts: tuple[Any, ...]

    def counts(self, what: str) -> dict[int, int]:
        """One of the file's counts by column, empty where it has none."""
        return _map(self.facts[_FACTS.index(what)])

    def bounds(self, what: str) -> dict[int, bytes]:
        """One of the file's bounds by column, empty where it has none."""
        return _map(self.facts[_FACTS.index(what)])

    @property
    def equality_ids(self) -> list[int]:
        return list(self.facts[_FACTS.index("equality_ids")] or ())


class Listed(NamedTuple):
    """A line of a manifest list; `files` and `rows` are its counts by status: P, T = ParamSpec("P"), TypeVar("T")
    EXISTING, ADDED, DELETED."""

    path: str
    length: int
    spec: int
    content: int
    number: int
    least: int
    snapshot: int
    files: tuple[int | None, ...]
    rows: tuple[int | None, ...]
    #: of each partition field: whether it contains null, and its bounds
    partitions: tuple[tuple[bool, bytes | None, bytes | None], ...] | None


class Live(NamedTuple):
    """A live file of a snapshot, with its data sequence number, its spec, and the snapshot that added it."""

    line: Line
    number: int
    spec: int
    added_by: int


class Contents(NamedTuple):
    """The rows of a data file: key and version of each, and the least and the largest of their times and keys."""

    pairs: tuple[tuple[str, str], ...]
    #: None where all are null, as of rows that tell streams of deletes
    times: tuple[datetime, datetime] | None
    null_times: int
    keys: tuple[str, str]
    #: by row, by what is unique of it: the column that writers asked for, and its value there
    extra: Mapping[str, tuple[str, str] | None]


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
    _contents: dict[str, Contents] = field(default_factory=dict, init=False)
    _deletes: dict[str, tuple[Any, ...]] = field(default_factory=dict, init=False)
    _live: dict[int, tuple[Live, ...]] = field(default_factory=dict, init=False)

    def contents(self, path: str) -> Contents:
        """Of a data file, which is read once, when it is in the table for the first time."""
        if path not in self._contents:
            table = self._table(path)
            keys, times = table["key"].to_pylist(), table["timestamp"].to_pylist()
            known = [time for time in times if time is not None]
            pairs = tuple(zip(keys, versions(table), strict=True))
            span = (min(known), max(known)) if known else None
            extra = _extra(table, [value for _, value in pairs])
            self._contents[path] = Contents(pairs, span, len(times) - len(known), (min(keys), max(keys)), extra)
        return self._contents[path]

    def pairs(self, path: str) -> tuple[tuple[str, str], ...]:
        """Key and version of each row of a data file."""
        return self.contents(path).pairs

    def deleted(self, path: str) -> tuple[Any, ...]:
        """Of a delete file: keys, or pairs of a location and a position."""
        if path not in self._deletes:
            columns = [column.to_pylist() for column in self._table(path).columns]
            self._deletes[path] = tuple(columns[0] if len(columns) == 1 else zip(*columns, strict=True))
        return self._deletes[path]

    def _table(self, path: str) -> Any:
        return pq.ParquetFile(pa.BufferReader(self.stored(path))).read(use_threads=False)

    def stored(self, path: str) -> bytes:
        """The bytes of a file that the table names."""
        if not self.disk.has(path):
            raise Wrong(f"the table names {path}, which is not there")
        return self.disk.get(path).data

    def _records(self, path: str) -> list[Any]:
        try:
            return [*records(self.stored(path))]
        except Damaged as error:
            raise Wrong(f"{path}: {error}") from error

    def manifests(self, snapshot: Snapshot) -> tuple[Listed, ...]:
        """The manifests of a snapshot."""
        at = snapshot.manifest_list
        if at not in self._lists:
            self._lists[at] = tuple(_listed(record) for record in self._records(at))
        return self._lists[at]

    def is_known(self, manifest: str) -> bool:
        """Whether this manifest was read before."""
        return manifest in self._manifests

    def lines(self, manifest: str) -> tuple[Line, ...]:
        """The entries of a manifest."""
        if manifest not in self._manifests:
            self._manifests[manifest] = tuple(_line(record) for record in self._records(manifest))
        return self._manifests[manifest]

    def live(self, snapshot: Snapshot) -> tuple[Live, ...]:
        """The live files of a snapshot, data files and delete files; each data file must be live once."""
        if snapshot.id not in self._live:
            found = tuple(
                Live(
                    line,
                    manifest.number if line.number is None else line.number,
                    manifest.spec,
                    manifest.snapshot if line.snapshot is None else line.snapshot,
                )
                for manifest in self.manifests(snapshot)
                for line in self.lines(manifest.path)
                if line.status != DELETED
            )
            times = Counter(item.line.path for item in found if item.line.content == DATA)
            if twice := [path for path, count in times.items() if count > 1]:
                raise Wrong(f"files are live twice: {twice}")
            self._live[snapshot.id] = found
        return self._live[snapshot.id]

    def data_files(self, snapshot: Snapshot | None) -> frozenset[str]:
        """Locations of the live data files."""
        live = self.live(snapshot) if snapshot is not None else ()
        return frozenset(item.line.path for item in live if item.line.content == DATA)

    def delete_files(self, snapshot: Snapshot | None) -> frozenset[str]:
        """Locations of the live delete files."""
        live = self.live(snapshot) if snapshot is not None else ()
        return frozenset(item.line.path for item in live if item.line.content != DATA)

    def visible(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Key and version of each row that a reader sees, by the spec's rule for a table without partitions."""
        files, by_key, by_place = self.live(snapshot), dict[str, int](), dict[tuple[str, int], int]()
        for item in files:
            kept: dict[Any, int] = by_key if item.line.content == EQUALITY_DELETES else by_place
            for what in self.deleted(item.line.path) if item.line.content != DATA else ():
                kept[what] = max(kept.get(what, 0), item.number)
        return [
            (key, value)
            for item in files
            if item.line.content == DATA
            for place, (key, value) in enumerate(self.pairs(item.line.path))
            if by_key.get(key, 0) <= item.number and by_place.get((item.line.path, place), -1) < item.number
        ]


def _extra(table: pa.Table, rows: list[str]) -> dict[str, tuple[str, str] | None]:
    found = dict[str, tuple[str, str] | None].fromkeys(rows)
    for name in table.column_names:
        if name in EXTRA:
            pairs = zip(rows, table[name].to_pylist(), strict=True)
            found |= {row: (name, value) for row, value in pairs if value is not None}
    return found


def _listed(raw: Mapping[str, Any]) -> Listed:
    def counts(what: str) -> tuple[int | None, ...]:
        of = ("existing", "added", "deleted")
        return tuple(raw.get(f"{status}_{what}_count", raw.get(f"{status}_data_{what}_count")) for status in of)

    fields = raw["partitions"]
    return Listed(
        raw["manifest_path"],
        raw["manifest_length"],
        raw["partition_spec_id"],
        raw["content"],
        raw["sequence_number"],
        raw["min_sequence_number"],
        raw["added_snapshot_id"],
        counts("files"),
        counts("rows"),
        fields and tuple((item["contains_null"], item["lower_bound"], item["upper_bound"]) for item in fields),
    )


def _line(raw: Mapping[str, Any]) -> Line:
    file = raw["data_file"]
    return Line(
        raw["status"],
        file["file_path"],
        file.get("content") or 0,
        raw["sequence_number"],
        raw["file_sequence_number"],
        raw["snapshot_id"],
        file["record_count"],
        file["file_size_in_bytes"],
        tuple(map(_value, file["partition"].values())),
        tuple(file.get(key) for key in _FACTS),
    )


def _value(value: Any) -> int | None:
    """A partition's value as Iceberg has it: fastavro makes dates of days."""
    number: int | None = (value - _EPOCH).days if isinstance(value, date) else value
    return number


def _map(pairs: Any) -> dict[int, Any]:
    return {item["key"]: item["value"] for item in pairs or ()}
