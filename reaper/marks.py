"""
What the marks say to the reaper: which snapshot they came with, and whether the table may be an older one.
"""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.core import marks
from bookkeeper.core.folder import MarksCopy
from bookkeeper.core.history import is_older
from bookkeeper.errors import HistoryChanged, MarksLost


def marked_snapshot(metadata: TableMetadata) -> int | None:
    """
    The snapshot the marks came with; raises MarksLost when summaries show marks and the property is gone.
    """
    text = metadata.properties.get(marks.PROPERTY)
    if text is not None:
        return marks.loads(text).snapshot
    if any(_is_marked(snapshot) for snapshot in metadata.snapshots):
        # These snapshots are the evidence, and old metadata files may be the cure.
        raise MarksLost(f"snapshots show that marks were committed, but {marks.PROPERTY} is gone")
    return None


def marks_are_expired(metadata: TableMetadata) -> bool:
    """
    Whether somebody else expired the snapshot the marks came with: then old metadata files are all that proves descent.
    """
    marked = marked_snapshot(metadata)
    return marked is not None and metadata.snapshot_by_id(marked) is None


def check_not_older(metadata: TableMetadata, copy: MarksCopy | None) -> None:
    """
    Raises HistoryChanged when marks.json, read before the table, knows a later commit: the files of what came after
    would look like orphans, and they are what the table may still be put back with.
    """
    if is_older(metadata, marked_snapshot(metadata), copy):
        raise HistoryChanged(
            "marks.json knows a later commit than this table, so nothing is expired or deleted",
            hint="Was the catalog restored from a backup? Point it at the newest metadata file, or accept-rollback.",
        )


def _is_marked(snapshot: Snapshot) -> bool:
    keys = snapshot.summary.additional_properties if snapshot.summary else {}
    return any(key.startswith("bookkeeper.") for key in keys)
