"""
The history of `main`: the snapshots that a stream walks along, and whether it still is what our last commit made of it.

The latter is never guessed, only proven:

1. Marks and `main` go back together, so marks.json shows an older table in its place. It must be read before the
   table is loaded, because it is written after the commit it was made for.
2. Parents never change; pyiceberg only forgets those that expire. So an older metadata file that still knows the
   snapshot of our marks, and a child of it that is an ancestor of `main` now, proves that `main` was not rolled back
   behind it.
   Example: `main` is 5, and of 1 ← 2 ← 3 ← 4 ← 5 only 4 and 5 are kept. The marks came with 2. A metadata file from
   before the expiry says that 2 is the parent of 3 and 3 that of 4: main descends from 2.
3. Without such a file neither is proven, and the table is halted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import accumulate

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.catalogs.statistics_kinds import with_any_statistics
from bookkeeper.contract.marks_json import MarksCopy

Parents = dict[int, int | None]
MAIN = "main"
#: in the summary of a `delete` snapshot with the delete files of a commit: the sequence numbers that the commit takes
#: up to this snapshot's own
NUMBERS = "bookkeeper.numbers"
#: bytes of a snapshot in metadata.json beside its manifest list and summary, its line of the log included
_BARE_BYTES = 255
#: how far back the ancestors of a snapshot are: each of the newest 64, then at twice the distance
_BACK = (*range(1, 65), *(2**power for power in range(7, 24)))


class MainHistory:
    """
    The snapshots of main that are kept, oldest first, and the index of each by its id.

    `by_id` holds every snapshot of the table, whose uuid is `table`; `newest_append` is an index, 0 where there is no
    append.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self.table = str(metadata.table_uuid)
        self.by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        main = metadata.refs.get(MAIN)
        self.snapshots = list(walk(self.by_id, main.snapshot_id))[::-1] if main else []
        self.index = {snapshot.snapshot_id: index for index, snapshot in enumerate(self.snapshots)}
        self.newest_append = max((index for index, item in enumerate(self.snapshots) if is_append(item)), default=0)
        self._was_main = {entry.snapshot_id for entry in metadata.snapshot_log}

    def beside(self) -> list[Snapshot]:
        """The snapshots that are not on main, oldest first."""
        others = (item for item in self.by_id.values() if item.snapshot_id not in self.index)
        return sorted(others, key=lambda item: (item.timestamp_ms, item.sequence_number or 0))

    @cached_property
    def is_whole(self) -> bool:
        """Whether none of main is expired, as its oldest that is kept is its first ever; True in an empty history."""
        if not self.snapshots:
            return True
        first = self.snapshots[0]
        # Numbers that commits to branches took, and staged ones, came to no snapshot of main.
        others = sum(
            (item.sequence_number or 0) < (first.sequence_number or 0)
            for item in self.by_id.values()
            if item.snapshot_id not in self.index and item.snapshot_id not in self._was_main
        )
        return is_first(first, others)

    def first_since(self, moment: datetime) -> int | None:
        """
        The index of the first commit at or after `moment`: past the last one where all are earlier, None where it may
        be expired.
        """
        at_ms = moment.timestamp() * 1000
        index = next((at for at, item in enumerate(self.snapshots) if item.timestamp_ms >= at_ms), len(self.snapshots))
        return None if index == 0 and not self.is_whole else index

    def begins_behind(self, snapshot: int | None) -> bool:
        """
        Whether the oldest that is kept is the child of this one (None: the first ever); True in an empty history.
        """
        if snapshot is None or not self.snapshots:
            return self.is_whole
        return self.snapshots[0].parent_snapshot_id == snapshot

    @cached_property
    def bytes_after(self) -> Sequence[int]:
        """
        By index on main: the bytes that later snapshots take up in metadata.json, to within some percent.
        """
        sizes = (_bytes(item) for item in reversed(self.snapshots[1:]))
        return list(accumulate(sizes, initial=0))[::-1] if self.snapshots else []

    def ancestors(self, snapshot: int | None, known: Iterable[int] = ()) -> tuple[int, ...]:
        """
        The ids of snapshots of main before this one, newest first: the last 64, and a few of those before.

        Of `known` ancestors, newest first, those that are expired follow: a tag may keep one, and main go back to it.
        """
        index = self.index.get(snapshot, 0) if snapshot is not None else 0
        found = [self.snapshots[index - back].snapshot_id for back in _BACK if back <= index]
        return tuple([*found, *(item for item in known if item not in self.index)][: len(_BACK)])

    def rows_before(self, snapshot: int | None, position: int) -> int:
        """
        Rows that appends added before file `position` of this snapshot (None: the oldest), from their summaries.

        Of a snapshot that is half read, the share of its files counts.
        """
        index = 0 if snapshot is None else self.index[snapshot]
        rows = sum(counted(item, "added-records") for item in self.snapshots[:index] if is_append(item))
        if snapshot is None or not is_append(self.snapshots[index]):
            return rows
        here = self.snapshots[index]
        files = counted(here, "added-data-files") or 1
        return rows + counted(here, "added-records") * min(position, files) // files

    def is_unread(self, snapshot: int | None, position: int) -> bool:
        """
        Whether a stream that has read so many files of this snapshot (None: nothing yet) has any left.
        """
        start = 0 if snapshot is None else self.index[snapshot]
        read = 0 if snapshot is None else position
        return any(
            is_append(item) and counted(item, "added-data-files") > (read if index == 0 else 0)
            for index, item in enumerate(self.snapshots[start:])
        )


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


def _bytes(snapshot: Snapshot) -> int:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return (
        _BARE_BYTES
        + len(snapshot.manifest_list)
        + sum(len(key) + len(str(value)) + 6 for key, value in summary.items())
    )


def is_append(snapshot: Snapshot) -> bool:
    """
    Whether a stream reads the files that this snapshot added; one without a summary counts as an append.
    """
    return snapshot.summary is None or snapshot.summary.operation == Operation.APPEND


def is_delete(snapshot: Snapshot) -> bool:
    """
    Whether it only takes rows away: by retention, a fold, or the delete files of a commit on a keyed table.
    """
    return snapshot.summary is not None and snapshot.summary.operation == Operation.DELETE


def is_overwrite(snapshot: Snapshot) -> bool:
    """
    Whether the snapshot changed rows in place: no stream passes it.
    """
    return snapshot.summary is not None and snapshot.summary.operation == Operation.OVERWRITE


def stated(snapshot: Snapshot | None, key: str) -> int | None:
    """
    A count in the snapshot's summary; None where it has none, or another program wrote something else there.
    """
    said = str(snapshot.summary.additional_properties.get(key, "")) if snapshot and snapshot.summary else ""
    return int(said) if said.isdecimal() and len(said) < 20 else None


def counted(snapshot: Snapshot | None, key: str) -> int:
    """
    A count in the snapshot's summary, 0 where it has none.
    """
    return stated(snapshot, key) or 0


def staged_as(snapshot: Snapshot) -> str:
    """
    The name under which it is staged, for a person or a job to publish it (write-audit-publish); "" where it is not.
    """
    return str(snapshot.summary.additional_properties.get("wap.id", "")) if snapshot.summary else ""


def is_ours(snapshot: Snapshot) -> bool:
    """
    Whether a bookkeeper made this snapshot: its summary then names txlogs or a reason.
    """
    keys = snapshot.summary.additional_properties if snapshot.summary else {}
    return any(key.startswith("bookkeeper.") for key in keys)


def is_first(snapshot: Snapshot, others: int = 0) -> bool:
    """
    Whether it is main's first one ever, where so many `others` have smaller numbers and never were main's. No parent is
    no proof: pyiceberg removes an expired one from its child.

    A commit with delete files takes a number for each of its steps, which its first snapshot tells. In a table that was
    of format v1 snapshots have the number 0, and the first one after these the number 1: so all files must be its own.
    """
    numbers = stated(snapshot, NUMBERS) or 1
    alone = counted(snapshot, "total-data-files") <= counted(snapshot, "added-data-files")
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 0) <= max(1, numbers) + others and alone


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
                file = table.io.new_input(entry.metadata_file)
                found = with_any_statistics(partial(FromInputFile.table_metadata, file))
            except FileNotFoundError:
                continue  # the reaper deletes them by age
        if found.table_uuid == table.metadata.table_uuid:
            yield found
