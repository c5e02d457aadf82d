"""
What the writers' tests share: a card made by hand, a clock that only moves when told, stores that fail on purpose.
"""

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import BinaryType, NestedField, StringType, TimestamptzType

from bookkeeper.contract import txlog
from bookkeeper.contract.card import Card
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.txlog import Txlog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Fenced, FileMissing, PositionTaken, Reject, UnknownOutcome
from bookkeeper.format.entries import DataFile
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.support import cards
from tests.support.wrapped import WrappedStore
from writers.writer import Writer

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "key", StringType(), required=True),
    NestedField(3, "value", BinaryType(), required=False),
)
BY_DAY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "timestamp_day"))
PLAIN = UNPARTITIONED_PARTITION_SPEC


class Clock:
    """Time as the test wants it; `wait` moves it and takes a note."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now
        self.waits: list[float] = []

    def __call__(self) -> datetime:
        return self.now

    def move(self, **span: float) -> None:
        self.now += timedelta(**span)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.move(seconds=seconds)


def card(root: str, schema: Schema = SCHEMA, spec: PartitionSpec = BY_DAY, **changes: Any) -> Card:
    """A table as `bookkeeper init` would describe it, with its folder and data below `root`."""
    where = {"folder": f"{root}/_bookkeeper", "location": root, "data_path": f"{root}/data"}
    shape: dict[str, Any] = {
        "table_schema": json.loads(schema.model_dump_json()),
        "specs": (json.loads(spec.model_dump_json()),),
        "spec_id": spec.spec_id,
    }
    return cards.card(**{**where, **shape, **changes})


@dataclass
class Desk:
    """One table's folder and data on a store, and writers on it."""

    root: str
    clock: Clock = field(default_factory=Clock)
    stores: Callable[[str], Store] = open_store
    runs: int = 0

    def __post_init__(self) -> None:
        self.folder = Folder(open_store(f"{self.root}/_bookkeeper"))
        if self.root.startswith("file:"):
            Path(self.root.removeprefix("file://"), "_bookkeeper").mkdir(parents=True, exist_ok=True)

    def set_card(self, schema: Schema = SCHEMA, spec: PartitionSpec = BY_DAY, **changes: Any) -> Card:
        made = card(self.root, schema, spec, **changes)
        self.folder.write_card(made)
        return made

    def writer(self, name: str = "w1", **options: Any) -> Writer:
        """A new run; runs are numbered, so that incarnations repeat from test to test."""
        self.runs += 1
        seed = self.runs.to_bytes(10, "big")
        given: dict[str, Any] = {"clock": self.clock, "wait": self.clock.wait, "random": lambda n: seed[:n]}
        folder = Folder(self.stores(f"{self.root}/_bookkeeper"))
        return Writer.open(folder, name, **{**given, "stores": self.stores, **options})

    def txlogs(self) -> list[Txlog]:
        """What is pending, decoded."""
        names = [item.name for item in self.folder.pending()]
        read = self.folder.read(names)
        return [txlog.decode(name, read[name], 2**28) for name in names]

    def has_files(self, item: Txlog) -> bool:
        """Whether all that a txlog names is there."""
        data = open_store(f"{self.root}/data")
        return {*item.every_path} <= {f"{self.root}/data/{found.key}" for found in data.list("")}

    def stand_still(self, committed: Iterable[Txlog] = ()) -> None:
        """Past orphan-age; meanwhile the reaper sweeps all that neither these nor pending txlogs name."""
        self.clock.move(milliseconds=self.folder.card().orphan_age_ms + 1)
        named = {path for item in (*committed, *self.txlogs()) for path in item.every_path}
        data = open_store(f"{self.root}/data")
        data.delete_many([found.key for found in data.list("") if f"{self.root}/data/{found.key}" not in named])

    def rows(self, files: Iterable[DataFile] | None = None) -> list[dict[str, Any]]:
        """The rows of the files (of all pending txlogs), read from the store."""
        named = [file for item in self.txlogs() for file in item.files] if files is None else files
        return [row for file in named for row in self.read(file).to_pylist()]

    def read(self, file: DataFile) -> pa.Table:
        root = open_store(f"{self.root}/data")
        data = root.read(file.path.removeprefix(f"{self.root}/data/"))
        assert len(data) == file.size_bytes
        return pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)

    def keys(self) -> list[str]:
        return sorted(row["key"] for row in self.rows())

    def left(self) -> set[str]:
        """What lies in the txlog folder, but for what a crash left of a write."""
        return {item.key for item in self.folder.store.list("") if not item.key.endswith(".tmp")}


def rows(*keys: str, at: datetime = START, value: bytes | None = b"v") -> pa.Table:
    """One row per key."""
    return pa.table(
        {
            "timestamp": pa.array([at] * len(keys), pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.string()),
            "value": pa.array([value] * len(keys), pa.binary()),
        }
    )


def noisy_rows(keys: Sequence[str], value_bytes: int) -> pa.Table:
    """One row per key, with a value that does not compress."""
    values = pa.array([os.urandom(value_bytes) for _ in keys])
    return rows(*keys).set_column(2, "value", values)


class Broken(BaseException):
    """The process dies here; nothing may catch it."""


class Tampered(WrappedStore):
    """
    A store that asks `before(operation, key)` and tells `after(operation, key)` around every call.
    """

    def __init__(
        self,
        store: Store,
        before: Callable[[str, str], None] = lambda operation, key: None,
        after: Callable[[str, str], None] = lambda operation, key: None,
    ) -> None:
        def around(name: str, act: Callable[..., Any], key: Any, *rest: Any, **more: Any) -> Any:
            before(name, str(key))
            try:
                return act(key, *rest, **more)
            finally:
                after(name, str(key))

        super().__init__(store, around)


class Ledger:
    """
    A bookkeeper of a few lines: prefixes, marks, and the compare-and-swap on positions; keeps what it committed.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.marks = Marks(folder=desk.root)
        self.files: list[DataFile] = []
        self.txlogs: list[Txlog] = []

    def tick(self) -> None:
        for item in self.desk.txlogs():
            if self.marks.is_in(item.name):
                self.desk.folder.delete([item.name])
            elif item.position is not None and item.previous_position != self._committed(item.name.writer):
                self._reject(item)
            elif not self.desk.has_files(item):
                self._reject(item, FileMissing("a data file is gone"))
            else:
                self._commit(item)

    def finish(self, copy: Callable[[], object]) -> None:
        """Copies until the source is read, each time by a new run, and all of it is committed."""
        for _ in range(3):
            with suppress(Fenced, UnknownOutcome):
                copy()
            self.tick()
        self.tick()

    def _committed(self, writer: str) -> bytes | None:
        return self.marks.writer(writer).position

    def _commit(self, item: Txlog) -> None:
        positions: Mapping[str, bytes] = {} if item.position is None else {item.name.writer: item.position}
        self.marks = self.marks.advanced([item.name], positions, 1, {item.name.writer: item.offsets})
        self.files += item.files
        self.txlogs.append(item)
        self._publish_marks(item)
        self.desk.folder.delete([item.name])

    def give_up(self, item: Txlog) -> None:
        """As the txlog was rejected, its copy in rejected/ deleted, and `bookkeeper discard` given."""
        self._reject(item)
        self.desk.folder.discard_rejected([item.name])
        self.marks = self.marks.discarded(item.name, (), 1)
        self._publish_marks(item)

    def _publish_marks(self, item: Txlog) -> None:
        from bookkeeper.contract.marks_json import MarksCopy

        self.desk.folder.publish_marks(MarksCopy(item.table_uuid, len(self.files), self.marks))

    def _reject(self, item: Txlog, why: Reject | None = None) -> None:
        self.desk.folder.reject(item.name, why or PositionTaken(), self.desk.clock())

    def keys(self) -> list[str]:
        return sorted(row["key"] for row in self.desk.rows(self.files))


def only(items: Sequence[Any]) -> Any:
    """The single item of a sequence."""
    (item,) = items
    return item
