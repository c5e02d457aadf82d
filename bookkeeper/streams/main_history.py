"""
The history of main: the snapshots that a stream walks along, oldest first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import accumulate

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.core.history import walk

MAIN = "main"
#: bytes of a snapshot in metadata.json beside its manifest list and summary, its line of the log included
_BARE_BYTES = 255
#: how far back the ancestors of a snapshot are: each of the newest 64, then at twice the distance
_BACK = (*range(1, 65), *(2**power for power in range(7, 24)))


class MainHistory:
    """
    The snapshots of main that are kept, oldest first, and the index of each by its id.

    `by_id` holds every snapshot of the table; `newest_append` is an index, 0 where there is no append.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self.by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        main = metadata.refs.get(MAIN)
        self.snapshots = list(walk(self.by_id, main.snapshot_id))[::-1] if main else []
        self.index = {snapshot.snapshot_id: index for index, snapshot in enumerate(self.snapshots)}
        self.newest_append = max((index for index, item in enumerate(self.snapshots) if is_append(item)), default=0)

    def beside(self) -> list[Snapshot]:
        """The snapshots that are not on main, oldest first."""
        others = (item for item in self.by_id.values() if item.snapshot_id not in self.index)
        return sorted(others, key=lambda item: (item.timestamp_ms, item.sequence_number or 0))

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


def _bytes(snapshot: Snapshot) -> int:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return _BARE_BYTES + len(snapshot.manifest_list) + sum(len(key) + len(value) + 6 for key, value in summary.items())


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


def counted(snapshot: Snapshot, key: str) -> int:
    """
    A count in the snapshot's summary, 0 where it has none.
    """
    return int(snapshot.summary.additional_properties.get(key, 0)) if snapshot.summary else 0


def added_by(
    snapshot: Snapshot, io: FileIO, reading: Callable[[str], AbstractContextManager[object]] = nullcontext
) -> Iterator[DataFile]:
    """
    The data files a snapshot added, in the order of its manifests; each file is read within `reading` of its path.
    """
    with reading(snapshot.manifest_list):
        manifests = snapshot.manifests(io)
    for manifest in manifests:
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.content == ManifestContent.DATA:
            with reading(manifest.manifest_path):
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            yield from (entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED)
