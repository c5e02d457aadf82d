"""
Where a consumer may go on that lost rows: snapshots that it had not read are expired, or main was rolled back.

What an expired snapshot added may still be live, and a live file tells by its sequence number whether it came after the
place. A rewrite mixes rows that were read with rows that were not: so the files past the place are offered only while
each of them still is what a txlog named.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.consumers.place import Place
from bookkeeper.consumers.place_on_main import after_lost, ahead
from bookkeeper.consumers.snapshot_files import AllFiles, SnapshotFiles, TableFile
from bookkeeper.contract.file_names import owner_of
from bookkeeper.errors import NotPossible, PlaceExpired
from bookkeeper.history.main_history import MainHistory, is_append

_HINT = "restart() reads all rows of the table again; skip_lost() passes over those that came in between."


@dataclass(frozen=True, slots=True)
class Skipped:
    """
    Where a consumer goes on, and what it passes over: `files` with `rows` that are live and came after its last place.

    `exact` is False where the table cannot tell which rows it had read: then they are that many at most.
    """

    place: Place
    files: int = 0
    rows: int = 0
    exact: bool = True

    def __str__(self) -> str:
        most = "" if self.exact else "at most "
        return f"{most}{self.rows:,} live rows in {self.files:,} files are passed over"


def skipped(table: Table, place: Place, is_ours: Callable[[TableFile], bool]) -> Skipped:
    """
    Where a consumer of the files that are `is_ours` goes on after rows that are lost to it, and what that passes over.

    Raises Missing, StorageUnavailable.
    """
    after = after_lost(MainHistory(table.metadata), place)
    oldest = table.metadata.snapshot_by_id(after.snapshot) if after.snapshot is not None else None
    if after == place or after.files is None or oldest is None:
        return Skipped(after)
    found = _Oldest.of(table, oldest, place)
    passed = [file for file in found.unread if not found.is_read_next(file) and is_ours(file)]
    rows = sum(file.record_count for file in passed)
    exact = found.in_doubt(place) is None and not found.all.may_be_hidden and all(map(_is_as_committed, passed))
    return Skipped(after, len(passed), rows, exact)


def caught_up(table: Table, place: Place) -> Place:
    """
    The place from which a consumer reads every live row that it has not read, and no other; `place` if it may go on.

    Raises NotPossible where the table cannot tell which these are, RolledBack, Missing, StorageUnavailable.
    """
    history = MainHistory(table.metadata)
    try:
        ahead(history, place)
        return place
    except PlaceExpired:
        oldest = history.snapshots[0]
    found = _Oldest.of(table, oldest, place)
    doubt = found.in_doubt(place) or _odd(found.unread)
    if found.all.may_be_hidden:
        doubt = "delete files hide rows of the files"
    if doubt is not None:
        raise NotPossible(f"which live rows came after the place cannot be told: {doubt}", hint=_HINT)
    read = len(found.all.files) - len(found.unread)
    ancestors = history.ancestors(oldest.snapshot_id, place.passed)
    return Place(place.table, oldest.snapshot_id, read, whole=True, at=oldest.timestamp_ms, ancestors=ancestors)


@dataclass(frozen=True)
class _Oldest:
    """
    The oldest snapshot that is kept, and the files that were in the table then.

    `number` is the sequence number of the place's snapshot, None where nothing in the table tells it.
    """

    snapshot: Snapshot
    all: AllFiles
    number: int | None

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot, place: Place) -> "_Oldest":
        found = SnapshotFiles().all(table.io, snapshot)
        return cls(snapshot, found, _number_of(place, found))

    @property
    def unread(self) -> list[TableFile]:
        """The files that came after the place, or may have."""
        return [file for file in self.all.files if self.number is None or file.file_sequence_number > self.number]

    def is_read_next(self, file: TableFile) -> bool:
        """Whether this snapshot, which is read next, added the file."""
        return file.snapshot_id == self.snapshot.snapshot_id and is_append(self.snapshot)

    def in_doubt(self, place: Place) -> str | None:
        """Why the number does not tell what was read; None where it does."""
        if place.files is not None:
            return f"its snapshot {place.snapshot} is read in part, and expired"
        if self.number is None:
            return f"nothing in the table came with its snapshot {place.snapshot} any more"
        return None


def _number_of(place: Place, found: AllFiles) -> int | None:
    """
    The sequence number of the place's snapshot: what it wrote and what is still there tells, and proves that the oldest
    snapshot descends from it. Of a snapshot that is read in part all files count as unread.
    """
    if place.snapshot is None:
        return 0
    if place.whole:
        return None
    came = [item.sequence_number for item in found.manifests if item.added_snapshot_id == place.snapshot]
    came += [file.file_sequence_number for file in found.files if file.snapshot_id == place.snapshot]
    number = max(came, default=0)
    return None if not number else number if place.files is None else number - 1


def _is_as_committed(file: TableFile) -> bool:
    """
    Whether the file is what a txlog named: a rewrite's has another name, and mostly the number of an older file.
    """
    named = owner_of(file.file_path.rpartition("/")[2])
    return named is not None and file.sequence_number == file.file_sequence_number


def _odd(files: Iterable[TableFile]) -> str | None:
    other = next((file for file in files if not _is_as_committed(file)), None)
    if other is None:
        return None
    path = other.file_path[:300]
    return f"{path} is not named after a txlog, so a rewrite may have made it of rows that were read and others"
