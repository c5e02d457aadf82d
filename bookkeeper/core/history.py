"""
Whether `main` still is what our last commit made of it: never guessed, only proven.

An older table in its place is known by marks.json, for marks and `main` go back together; it must be read before the
table is loaded, for it is written after the commit it tells of. And parents never change, pyiceberg only forgets those
that expire: an older metadata file that still knows a snapshot, and a child of it that is an ancestor of `main` now,
proves that nobody rolled back behind it. Without such a file nobody can tell.
"""

from collections.abc import Iterator

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs import open as catalogs
from bookkeeper.core.folder import MarksCopy

Parents = dict[int, int | None]


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


def descends(table: Table, snapshot_id: int) -> bool:
    """
    Whether the snapshot is `main` or one of its ancestors, by what is kept and by older metadata files.

    Raises CatalogUnavailable when one of those cannot be read now; one that is gone proves nothing.
    """
    head, parents = table.metadata.current_snapshot_id, _parents(table.metadata)
    if _leads(head, snapshot_id, parents):
        return True
    if snapshot_id in parents:
        return False
    for earlier in older(table):
        parents |= _parents(earlier)  # they know parents that later ones may have forgotten
        if _leads(head, snapshot_id, parents):
            return True
    return False


def _parents(metadata: TableMetadata) -> Parents:
    return {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}


def _leads(start: int | None, wanted: int, parents: Parents) -> bool:
    for _ in range(len(parents) + 1):
        if start is None or start == wanted:
            break
        start = parents.get(start)
    return start == wanted


def older(table: Table) -> Iterator[TableMetadata]:
    """
    The metadata files before this one that are still there, newest first; raises CatalogUnavailable.
    """
    for entry in reversed(table.metadata.metadata_log):
        with catalogs.asked(f"read {entry.metadata_file}"):
            try:
                found = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            except FileNotFoundError:
                continue  # the reaper deletes them by age
        if found.table_uuid == table.metadata.table_uuid:
            yield found
