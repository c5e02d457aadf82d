"""
Writes manifests and manifest lists; each is durable when the function returns.

A crash leaves files that no snapshot names; nobody here deletes them (an attempt that was refused may have been
sent twice), the orphan sweep does.
"""

import io
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from pyiceberg.io import OutputFile, OutputStream
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary, write_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DecimalType

from bookkeeper.core.locations import join
from bookkeeper.core.store import Store
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import ADDED, Entry
from bookkeeper.format.layout import parse_layout
from bookkeeper.format.summaries import summarise

EXISTING = 0
DELETED = 2
UNASSIGNED = -1


def write_manifest(
    store: Store, key: str, schema: Schema, spec: PartitionSpec, entries: Sequence[Entry], snapshot_id: int
) -> ManifestFile:
    """
    One data manifest under `key`, and its line for the manifest list; sequence numbers are inherited.
    """
    header = manifest_format.header(schema, spec)
    data = manifest_format.encode(header, entries)
    store.create(key, data)
    live = [entry.sequence_number for entry in entries if entry.status != DELETED and entry.sequence_number is not None]
    partition = parse_layout(header["avro.schema"]).partition
    decimals = [isinstance(field.field_type, DecimalType) for field in spec.partition_type(schema).fields]
    kinds = [(kind, decimal) for (_, kind), decimal in zip(partition, decimals, strict=True)]
    counts: dict[str, Any] = _counts(entries)
    return ManifestFile.from_args(
        manifest_path=join(store.url, key),
        manifest_length=len(data),
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DATA,
        sequence_number=UNASSIGNED,
        min_sequence_number=min(live, default=UNASSIGNED),
        added_snapshot_id=snapshot_id,
        partitions=_summaries(kinds, entries),
        key_metadata=None,
        **counts,
    )


def _counts(entries: Sequence[Entry]) -> dict[str, int]:
    counts = {}
    for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
        files = [entry.data_file for entry in entries if entry.status == status]
        counts[f"{name}_files_count"] = len(files)
        counts[f"{name}_rows_count"] = sum(file.record_count for file in files)
    return counts


def _summaries(kinds: Sequence[tuple[Any, bool]], entries: Sequence[Entry]) -> list[PartitionFieldSummary]:
    return [
        PartitionFieldSummary(found.contains_null, found.contains_nan, found.lower, found.upper)
        for found in summarise(kinds, [entry.data_file.partition for entry in entries])
    ]


def write_list(
    store: Store,
    key: str,
    manifests: Sequence[ManifestFile],
    snapshot_id: int,
    parent: Snapshot | None,
    sequence: int,
) -> str:
    """
    The manifest list of a new snapshot under `key`; returns its location.
    """
    output = _Memory(join(store.url, key))
    parent_id = parent.snapshot_id if parent else None
    with write_manifest_list(2, output, snapshot_id, parent_id, sequence, "deflate") as writer:
        writer.add_manifests(list(manifests))
    store.create(key, output.data)
    return output.location


class _Memory(OutputFile):
    """Takes what pyiceberg writes, so that our store can make it durable."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.data = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> Any:
        raise NotImplementedError("write only")

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)


class _Stream(io.BytesIO):
    def __init__(self, target: _Memory) -> None:
        super().__init__()
        self.target = target

    def close(self) -> None:
        if not self.closed:
            self.target.data = self.getvalue()
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
