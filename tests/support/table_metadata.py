"""
Table metadata made of nothing: snapshots a minute apart, refs, properties.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

START = datetime(2030, 1, 1, tzinfo=UTC)
EMPTY = new_table_metadata(
    Schema(NestedField(1, "n", LongType(), required=False)),
    UNPARTITIONED_PARTITION_SPEC,
    UNSORTED_SORT_ORDER,
    "file:///t",
    {"format-version": "2"},
)


def minute(count: float) -> datetime:
    return START + timedelta(minutes=count)


def snapshot(number: int, parent: int | None, operation: str = "append", **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=int(minute(number).timestamp() * 1000),
        manifest_list=f"file:///t/metadata/snap-{number}.avro",
        summary=Summary(Operation(operation), **summary),
    )


def ref(number: int, kind: str = "tag") -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": number, "type": kind})


def table(
    *snapshots: Snapshot, head: int | None = None, properties: dict[str, str] | None = None, **refs: SnapshotRef
) -> TableMetadata:
    newest = max((item.timestamp_ms for item in snapshots), default=0)
    main = {"main": ref(head or snapshots[-1].snapshot_id, "branch")} if snapshots else {}
    changes: dict[str, Any] = {
        "snapshots": list(snapshots),
        "refs": {**main, **refs},
        "properties": properties or {},
        "last_updated_ms": newest,
    }
    return EMPTY.model_copy(update=changes)


def line(count: int, *operations: str) -> list[Snapshot]:
    """Snapshots 1 to `count`, a minute apart; the last ones have `operations`, the others append."""
    kinds = ["append"] * (count - len(operations)) + list(operations)
    return [snapshot(number, number - 1 or None, kind) for number, kind in enumerate(kinds, 1)]
