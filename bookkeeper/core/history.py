"""
Whether marks.json knows of a commit that the table has never seen: somebody has put an older table in its place.

Only marks.json can tell: marks and `main` go back together. It must be read before the table is loaded, for it is
written after the commit it tells of.
"""

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.core.folder import MarksCopy


def is_older(metadata: TableMetadata, snapshot: int | None, copy: MarksCopy | None) -> bool:
    """
    Whether this metadata, whose marks came with `snapshot`, is older than the commit that `copy` tells of.
    """
    if copy is None or copy.table_uuid != str(metadata.table_uuid) or copy.marks.snapshot in (None, snapshot):
        return False
    return copy.sequence_number >= came_with(metadata, snapshot)


def came_with(metadata: TableMetadata, snapshot: int | None) -> int:
    """
    The sequence number of the snapshot the marks came with, 0 before the first; when it is expired, at most this.
    """
    if snapshot is None:
        return 0
    kept = metadata.snapshot_by_id(snapshot)
    last = getattr(metadata, "last_sequence_number", 0)
    return last if kept is None else kept.sequence_number or 0
