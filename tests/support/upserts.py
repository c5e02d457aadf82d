"""
What a keyed table holds once its pending txlogs are committed, by the spec's rule alone: a row is dead if a delete of
its key, in its partition or in all, has a greater sequence number.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.contract.card import Card
from bookkeeper.contract.txlog import Txlog
from bookkeeper.format.entries import DataFile
from tests.support.desk import Desk

KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "value", StringType(), required=False),
    NestedField(3, "op", StringType(), required=False),
    NestedField(4, "seq", LongType(), required=False),
    identifier_field_ids=[1],
)
COLUMNS = {"op-field-id": 3, "order-field-id": 4}
#: upserts move rows between its partitions, so its deletes are global
BY_VALUE = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "value_part"), spec_id=1)
#: the key says the partition, so its deletes are bound to it
BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "id_bucket"), spec_id=1)


def keyed_card(
    desk: Desk, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, deletes: int = 0, columns: Any = None, **more: Any
) -> Card:
    """Makes the desk's table a keyed one, with op- and order-column unless `columns` says otherwise."""
    specs = {item.spec_id: item for item in (UNPARTITIONED_PARTITION_SPEC, spec)}
    said = COLUMNS if columns is None else columns
    shape: dict[str, Any] = {
        "specs": tuple(item.model_dump(mode="json", by_alias=True) for item in specs.values()),
        "upserts": {"delete-spec-id": deletes, **said},
    }
    return desk.set_card(**{"schema": KEYED, "spec": spec, **shape, **more})


def table(rows: Iterable[tuple[int, str | None]]) -> pa.Table:
    """Rows of `id` and `value`."""
    pairs = list(rows)
    ids, values = [key for key, _ in pairs], [value for _, value in pairs]
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array(values, pa.string())})


def keys(*ids: int) -> pa.Table:
    """Keys to delete."""
    return pa.table({"id": pa.array(ids, pa.int64())})


@dataclass(frozen=True)
class Item:
    """A row, or the key of a delete, with its absolute sequence number and partition; None is all partitions."""

    row: dict[str, Any]
    number: int
    partition: tuple[Any, ...] | None

    def hides(self, other: "Item") -> bool:
        """Whether this delete applies to that row."""
        near = self.partition is None or self.partition == other.partition
        return near and self.number > other.number and self.row["id"] == other.row["id"]


def committed(desk: Desk, txlogs: Iterable[Txlog]) -> tuple[list[Item], list[Item]]:
    """Rows and deletes of txlogs that are committed in this order."""
    base, rows, deletes = 0, list[Item](), list[Item]()
    for txlog in txlogs:
        numbers = txlog.numbers or (0,) * len(txlog.files)
        for file, number in zip(txlog.files, numbers, strict=True):
            rows += [Item(row, base + number, file.partition) for row in _rows(desk, file)]
        for file, number in _deletes(txlog):
            deletes += [Item(row, base + number, file.partition or None) for row in _rows(desk, file)]
        base += txlog.span
    return rows, deletes


def _rows(desk: Desk, file: DataFile) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = desk.read(file).to_pylist()
    assert len(found) == file.record_count
    return found


def _deletes(txlog: Txlog) -> Iterator[tuple[DataFile, int]]:
    if txlog.deletes is not None:
        for entry, number in zip(txlog.deletes.body.entries, txlog.deletes.numbers, strict=True):
            yield entry.data_file, number


def state(desk: Desk, txlogs: Iterable[Txlog]) -> dict[int, str | None]:
    """What a batch reader sees, by key; fails where a key is there twice."""
    rows, deletes = committed(desk, txlogs)
    live = [item.row for item in rows if not any(delete.hides(item) for delete in deletes)]
    assert len({row["id"] for row in live}) == len(live), f"a key is live twice: {live}"
    assert all(row.get("op", "U") != "D" for row in live), "a tombstone is live"
    return {row["id"]: row["value"] for row in live}


def streamed(desk: Desk, txlogs: Iterable[Txlog]) -> list[dict[str, Any]]:
    """The rows that a stream sees, by the order-column; it ignores delete files."""
    rows, _ = committed(desk, txlogs)
    return sorted((item.row for item in rows), key=lambda row: row["seq"])


def merged(rows: Iterable[dict[str, Any]]) -> dict[int, str | None]:
    """The copy that a stream keeps: of each key the last version. Fails where two versions have one number."""
    copy, seen = dict[int, str | None](), set[tuple[int, int]]()
    for row in rows:
        assert (row["id"], row["seq"]) not in seen, f"two versions with one number: {row}"
        seen.add((row["id"], row["seq"]))
        copy.pop(row["id"], None)
        if row["op"] != "D":
            copy[row["id"]] = row["value"]
    return copy


def parquet(desk: Desk, file: DataFile) -> pq.ParquetFile:
    """A file as a Parquet reader opens it."""
    from bookkeeper.stores.open import open_store

    data = open_store(f"{desk.root}/data").read(file.path.removeprefix(f"{desk.root}/data/"))
    return pq.ParquetFile(io.BytesIO(data))
