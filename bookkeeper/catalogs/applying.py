"""
Updates of a commit, applied to the metadata that its committer has loaded.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.utils.datetime import datetime_to_millis


def applied(base: TableMetadata, updates: Sequence[TableUpdate], location: str) -> TableMetadata:
    """
    pyiceberg's own application of `updates`, without its closing deep copy of everything.
    """
    if _concern_new_snapshots(base, updates):
        # pyiceberg looks through all snapshots for each of these: 3 ms a commit at 10,000 of them.
        few = _updated(base.model_copy(update={"snapshots": []}), updates)
        metadata = few.model_copy(update={"snapshots": base.snapshots + few.snapshots})
    else:
        metadata = _updated(base, updates)
    metadata = _update_table_metadata_log(metadata, location, base.last_updated_ms)
    if metadata.last_updated_ms == base.last_updated_ms:
        # Only snapshots bring a time of their own; for the rest a catalog has its own clock, as in pyiceberg.
        now_ms = datetime_to_millis(datetime.now(UTC))  # noqa: TID251
        metadata = metadata.model_copy(update={"last_updated_ms": max(now_ms, base.last_updated_ms)})
    return metadata


def _updated(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> TableMetadata:
    context = _TableMetadataUpdateContext()
    for item in updates:
        metadata = _apply_table_update(item, metadata, context)
    return metadata


def _concern_new_snapshots(base: TableMetadata, updates: Sequence[TableUpdate]) -> bool:
    """Whether no update needs to know a snapshot of `base`, and none adds one that is there already."""
    added = {item.snapshot.snapshot_id for item in updates if isinstance(item, AddSnapshotUpdate)}
    return all(_concerns(item, added) for item in updates) and added.isdisjoint(
        map(attrgetter("snapshot_id"), base.snapshots)
    )


def _concerns(item: TableUpdate, added: set[int]) -> bool:
    if isinstance(item, SetSnapshotRefUpdate):
        return item.snapshot_id in added
    return isinstance(item, AddSnapshotUpdate | SetPropertiesUpdate | RemovePropertiesUpdate)
