"""
How far behind a consumer is: the rows that a stream would still read, from the summaries of main's snapshots.

As exact as the summaries, which streams trust too; the rest of a half-read snapshot is counted from its manifests, and
so is an append with a summary that counts no files, as some programs write it. The lag of a consumer that is cut off is
a lower bound: what the kept snapshots added is unread, and so is what is expired.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.consumers.place import parse
from bookkeeper.consumers.snapshot_files import SnapshotFiles
from bookkeeper.errors import BookkeeperError, PlaceRefused, StorageUnavailable
from bookkeeper.history.checkpoint import Offset
from bookkeeper.history.consumer_state import ASIDE, CUT_OFF, ConsumerState
from bookkeeper.history.main_history import MainHistory, counted, is_append, stated
from bookkeeper.history.registry import Consumer

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
    The lag of a consumer, or None when it is unknown (unreadable, not started, aside, lapsed). Of one that is cut off
    it is at least that, and how long its place is behind: where only Spark knows that, how long the oldest snapshot is.

    Raises StorageUnavailable when the manifests of a half-read snapshot cannot be read.
    """
    history, offsets = MainHistory(metadata), consumer_state.checkpoint_read.offsets
    if consumer_state.state == CUT_OFF:
        return _of_cut_off(consumer_state.checkpoint_read.consumer, metadata, history, added, now)
    if consumer_state.state == ASIDE:
        return None
    if consumer_state.first is None or not offsets or consumer_state.checkpoint_read.trouble:
        return None
    start = offsets[0]
    if start.snapshot is None or start.snapshot not in history.by_id:  # live all the same: main begins behind it
        parts, later = [], history.snapshots
    else:
        index = history.index[start.snapshot]
        parts, later = [_rest(history.snapshots[index], start, added)], history.snapshots[index + 1 :]
    return _sum([*parts, *_appended(later, added)], now)


def _of_cut_off(consumer: Consumer, metadata: TableMetadata, history: MainHistory, added: Added, now: datetime) -> Lag:
    found = _sum(_appended(history.snapshots, added), now)
    with suppress(PlaceRefused):
        place = parse(consumer.place, str(metadata.table_uuid), "the record")
        return replace(found, behind=max(now - from_epoch_ms(place.at), found.behind))
    return found


def _appended(snapshots: Iterable[Snapshot], added: Added) -> list[Part]:
    return [_whole(snapshot, added) for snapshot in snapshots if is_append(snapshot)]


def _sum(parts: Iterable[Part], now: datetime) -> Lag:
    parts = [part for part in parts if part[1]]
    if not parts:
        return Lag()
    oldest = from_epoch_ms(min(part[0].timestamp_ms for part in parts))
    files, rows, size = (sum(part[index] for part in parts) for index in (1, 2, 3))  # type: ignore[misc]
    return Lag(len(parts), files, rows, size, max(now - oldest, timedelta(0)))


def _whole(snapshot: Snapshot, added: Added) -> Part:
    if snapshot.summary is not None and stated(snapshot, "added-data-files") is None:
        sizes = list(added(snapshot))
        return snapshot, len(sizes), sum(rows for rows, _ in sizes), sum(size for _, size in sizes)
    files, rows, size = (counted(snapshot, key) for key in ("added-data-files", "added-records", "added-files-size"))
    return snapshot, files, rows, size


def _rest(snapshot: Snapshot, offset: Offset, added: Added) -> Part:
    if offset.whole:
        return _rest_of_all(snapshot, offset.position)
    whole = _whole(snapshot, added)
    unread = whole[1] - offset.position
    if unread <= 0 or not is_append(snapshot):
        return snapshot, 0, 0, 0
    if not offset.position:
        return whole
    files = list(added(snapshot))[offset.position :]
    return snapshot, unread, sum(rows for rows, _ in files), sum(size for _, size in files)


def _rest_of_all(snapshot: Snapshot, read: int) -> Part:
    """Of all files that were live then; of those that are unread it is not listed which they are: their mean counts."""
    files, rows, size = (counted(snapshot, key) for key in ("total-data-files", "total-records", "total-files-size"))
    unread = max(0, files - read)
    return snapshot, unread, rows * unread // max(1, files), size * unread // max(1, files)


def added_files(io: FileIO) -> Added:
    """
    Reads what a snapshot added from its manifests; raises StorageUnavailable.
    """

    files = SnapshotFiles()

    def read(snapshot: Snapshot) -> Iterable[tuple[int, int]]:
        try:
            return files.sizes_added(io, snapshot)
        except BookkeeperError as exc:
            # Expired meanwhile, unreachable, or damaged: this consumer's lag is unknown.
            raise StorageUnavailable(f"the manifests of snapshot {snapshot.snapshot_id}: {exc}") from exc

    return read
