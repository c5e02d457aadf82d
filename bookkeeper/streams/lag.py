"""
How far behind a consumer is: the rows that a stream would still read, from the summaries of main's snapshots.

As exact as the summaries, which streams trust too; the rest of a half-read snapshot is counted from its manifests.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.errors import StorageUnavailable
from bookkeeper.streams.checkpoint import Offset
from bookkeeper.streams.consumer_state import ConsumerState
from bookkeeper.streams.main_history import MainHistory, added_by, counted, is_append

#: a snapshot, and its unread files, rows and bytes
Part = tuple[Snapshot, int, int, int]
#: rows and bytes of the files a snapshot added, in the order a stream reads them
Added = Callable[[Snapshot], Iterable[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Lag:
    """Unread snapshots with rows, files, rows and bytes; and the age of the oldest of them."""

    snapshots: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    behind: timedelta = timedelta(0)


def lag(consumer_state: ConsumerState, metadata: TableMetadata, added: Added, now: datetime) -> Lag | None:
    """
    The lag of a consumer, or None when it is unknown (unreadable, not started, cut off, lapsed).

    Raises StorageUnavailable when the manifests of a half-read snapshot cannot be read.
    """
    history, offsets = MainHistory(metadata), consumer_state.checkpoint_read.offsets
    if consumer_state.first is None or not offsets or consumer_state.checkpoint_read.trouble:
        return None
    start = offsets[0]
    if start.snapshot is None:
        parts, later = [], history.snapshots
    elif start.snapshot in history.index:
        index = history.index[start.snapshot]
        parts, later = [_rest(history.snapshots[index], start, added)], history.snapshots[index + 1 :]
    else:
        return None
    parts += [_whole(snapshot) for snapshot in later if is_append(snapshot)]
    parts = [part for part in parts if part[1]]
    if not parts:
        return Lag()
    oldest = from_epoch_ms(min(part[0].timestamp_ms for part in parts))
    files, rows, size = (sum(part[index] for part in parts) for index in (1, 2, 3))  # type: ignore[misc]
    return Lag(len(parts), files, rows, size, max(now - oldest, timedelta(0)))


def _whole(snapshot: Snapshot) -> Part:
    files, rows, size = (counted(snapshot, key) for key in ("added-data-files", "added-records", "added-files-size"))
    return snapshot, files, rows, size


def _all_live(snapshot: Snapshot) -> Part:
    files, rows, size = (counted(snapshot, key) for key in ("total-data-files", "total-records", "total-files-size"))
    return snapshot, files, rows, size


def _rest(snapshot: Snapshot, offset: Offset, added: Added) -> Part:
    key = "total-data-files" if offset.whole else "added-data-files"
    unread = counted(snapshot, key) - offset.position
    if unread <= 0 or not (offset.whole or is_append(snapshot)):
        return snapshot, 0, 0, 0
    if not offset.position:
        return _all_live(snapshot) if offset.whole else _whole(snapshot)
    files = list(added(snapshot))[offset.position :] if not offset.whole else []
    return snapshot, unread, sum(rows for rows, _ in files), sum(size for _, size in files)


def added_files(io: FileIO) -> Added:
    """
    Reads what a snapshot added from its manifests; raises StorageUnavailable.
    """

    def read(snapshot: Snapshot) -> Iterable[tuple[int, int]]:
        try:
            return [(file.record_count, file.file_size_in_bytes) for file in added_by(snapshot, io)]
        except Exception as exc:
            # Expired meanwhile, or the storage is unreachable: pyiceberg's file systems share no root of errors.
            raise StorageUnavailable(f"the manifests of snapshot {snapshot.snapshot_id}: {exc}") from exc

    return read
