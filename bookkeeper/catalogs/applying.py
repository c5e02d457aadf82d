"""
Updates of a commit, applied to the metadata that its committer has loaded.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
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
    context = _TableMetadataUpdateContext()
    metadata = base
    for item in updates:
        metadata = _apply_table_update(item, metadata, context)
    metadata = _update_table_metadata_log(metadata, location, base.last_updated_ms)
    if metadata.last_updated_ms == base.last_updated_ms:
        # Only snapshots bring a time of their own; for the rest a catalog has its own clock, as in pyiceberg.
        now_ms = datetime_to_millis(datetime.now(UTC))  # noqa: TID251
        metadata = metadata.model_copy(update={"last_updated_ms": max(now_ms, base.last_updated_ms)})
    return metadata
