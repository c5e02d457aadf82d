"""
Whether `main` descends from a snapshot that is no longer kept: never guessed, only proven.

Parents never change; pyiceberg only forgets those that expire. So an older metadata file that still knows the snapshot,
and a child of it that is an ancestor of `main` now, proves that nobody rolled back behind it. Without such a file
nobody can tell.
"""

from collections.abc import Iterator

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.core import catalog as catalogs

Parents = dict[int, int | None]


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
