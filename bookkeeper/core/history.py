"""
The history of `main`: its snapshots, newest first, and whether it still is what our last commit made of it.

That is never guessed, only proven:

1. Marks and `main` go back together, so marks.json shows an older table in its place. It must be read before the
   table is loaded, because it is written after the commit it was made for.
2. Parents never change; pyiceberg only forgets those that expire. So an older metadata file that still knows the
   snapshot of our marks, and a child of it that is an ancestor of `main` now, proves that `main` was not rolled back
   behind it.
   Example: `main` is 5, and of 1 ← 2 ← 3 ← 4 ← 5 only 4 and 5 are kept. The marks came with 2. A metadata file from
   before the expiry says that 2 is the parent of 3 and 3 that of 4: main descends from 2.
3. Without such a file neither is proven, and the table is halted.
"""

from collections.abc import Iterator, Mapping

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.catalogs import open as catalogs
from bookkeeper.core.folder import MarksCopy

Parents = dict[int, int | None]
#: in the summary of a table's first snapshot ever, where its sequence number is not 1
FIRST = "bookkeeper.first"


def ancestors(metadata: TableMetadata, start: int | None = None) -> Iterator[Snapshot]:
    """
    The snapshot `start` (None: the head of `main`) and its ancestors, as far as they are kept, newest first.
    """
    kept = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    return walk(kept, metadata.current_snapshot_id if start is None else start)


def walk(kept: Mapping[int, Snapshot], start: int | None) -> Iterator[Snapshot]:
    """
    The snapshot `start` and its ancestors, as far as they are `kept`, newest first.
    """
    met = set[int]()  # each once, whatever the parents say
    while start is not None and start in kept and start not in met:
        met.add(start)
        yield kept[start]
        start = kept[start].parent_snapshot_id


def is_ours(snapshot: Snapshot) -> bool:
    """
    Whether a bookkeeper made this snapshot: its summary then names txlogs or a reason.
    """
    keys = snapshot.summary.additional_properties if snapshot.summary else {}
    return any(key.startswith("bookkeeper.") for key in keys)


def is_older(metadata: TableMetadata, snapshot: int | None, copy: MarksCopy | None) -> bool:
    """
    Whether this metadata, whose marks came with `snapshot`, is older than the commit that `copy` was made for.
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

    Raises CatalogUnavailable when one of those cannot be read now; one that was deleted proves nothing.
    """
    head, parents = table.metadata.current_snapshot_id, _parents(table.metadata)
    if _leads_to(snapshot_id, head, parents):
        return True
    if snapshot_id in parents:
        return False  # it is kept, but not on main: main was rolled back
    for earlier in older(table):
        parents |= _parents(earlier)  # they know parents that later ones may have forgotten
        if _leads_to(snapshot_id, head, parents):
            return True
    return False


def is_ancestor(metadata: TableMetadata, snapshot_id: int) -> bool:
    """
    Whether the snapshot is `main` or one of its ancestors, by what is kept in this metadata alone.
    """
    return _leads_to(snapshot_id, metadata.current_snapshot_id, _parents(metadata))


def _parents(metadata: TableMetadata) -> Parents:
    return {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}


def _leads_to(wanted: int, start: int | None, parents: Parents) -> bool:
    """Whether `wanted` is `start` or an ancestor; it need not be kept itself, a child that names it is enough."""
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
