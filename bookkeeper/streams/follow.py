"""
Follows a table: every row that append snapshots add, in the order they were committed, each once.

Like Spark's stream it skips `replace`, `delete` and `overwrite` snapshots, and needs the snapshots that it has not read
yet: once the reaper has expired them it raises PositionExpired, because it guesses nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.core.history import is_first
from bookkeeper.errors import Missing, NotPossible, StorageUnavailable
from bookkeeper.streams.live_entries import live_files
from bookkeeper.streams.main_history import MainHistory, added_by, is_append, is_delete
from bookkeeper.streams.rows import reading

_POSITION = re.compile(r"(\d+)(?::(all:)?(\d+))?")
BEGINNING = "beginning"
Row = dict[str, Any]
#: (table, file, n) -> the rows of the file after the first n
Read = Callable[[Table, DataFile, int], Iterable[Row]]


class PositionExpired(NotPossible):
    """The rows after this position are unknown: their snapshots have expired."""

    hint = (
        "--from beginning shows all that is still in the table; `bookkeeper consumers add NAME --snapshot current "
        "--ttl 2h` makes the reaper wait for you."
    )


@dataclass(frozen=True, slots=True)
class Position:
    """
    How far a reader is: it has seen `rows` rows of `snapshot` (None: all of them), and everything before.

    With `whole` they are counted among all rows that were in the table then. Snapshot None: nothing was seen of a table
    that had no snapshot yet.
    """

    snapshot: int | None = None
    rows: int | None = None
    whole: bool = False

    def __str__(self) -> str:
        if self.snapshot is None:
            return BEGINNING
        within = "" if self.rows is None else f":{'all:' if self.whole else ''}{self.rows}"
        return f"{self.snapshot}{within}"

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """
        The position in `SNAPSHOT`, `SNAPSHOT:ROWS` or `SNAPSHOT:all:ROWS`; None when it is something else.
        """
        found = _POSITION.fullmatch(text)
        return found and cls(int(found[1]), int(found[3]) if found[3] else None, bool(found[2]))


class Seen(NamedTuple):
    """A row and the position after it; row None for the end of a snapshot."""

    row: Row | None
    position: Position


def beginning(metadata: TableMetadata) -> Position:
    """
    Before everything that the oldest kept snapshot holds.
    """
    first = next(iter(MainHistory(metadata).snapshots), None)
    if first is None:
        return Position()
    # Nothing was there before the table's first one; what another operation put there, a stream would pass over.
    return Position(first.snapshot_id, 0, whole=not (is_first(first) and (is_append(first) or is_delete(first))))


def oldest(metadata: TableMetadata) -> Position:
    """
    Before what the oldest kept snapshot added.
    """
    first = next(iter(MainHistory(metadata).snapshots), None)
    return Position() if first is None else Position(first.snapshot_id, 0)


def end(metadata: TableMetadata) -> Position:
    """
    After everything there is.
    """
    return Position(metadata.current_snapshot_id)


def since(metadata: TableMetadata, moment: datetime) -> Position:
    """
    Before the first commit at or after `moment`; raises PositionExpired when that may be expired.
    """
    snapshots, at_ms = MainHistory(metadata).snapshots, moment.timestamp() * 1000
    index = next((index for index, item in enumerate(snapshots) if item.timestamp_ms >= at_ms), None)
    if index is None:
        return end(metadata)
    later = snapshots[index]
    if is_first(later):
        return Position(later.snapshot_id, 0)
    if index == 0:
        oldest = from_epoch_ms(later.timestamp_ms).isoformat(timespec="seconds")
        raise PositionExpired(f"snapshots before {oldest} are expired: what came since {moment} is unknown")
    return Position(snapshots[index - 1].snapshot_id)


def ahead(metadata: TableMetadata, position: Position) -> list[Snapshot]:
    """
    The snapshots of main after the position, oldest first, the one that was seen in part included.

    Raises PositionExpired.
    """
    history = MainHistory(metadata)
    index = history.index.get(position.snapshot) if position.snapshot is not None else None
    if index is not None:
        return history.snapshots[index + (position.rows is None) :]
    if position.snapshot in history.by_id:
        raise PositionExpired(f"snapshot {position.snapshot} is not on main: the table was rolled back")
    if not history.snapshots:
        if position.snapshot is None:
            return []
        raise PositionExpired(f"the table has no snapshot {position.snapshot}")
    first = history.snapshots[0]
    # The snapshot itself may have expired, as long as no later one has.
    complete = is_first(first) if position.snapshot is None else first.parent_snapshot_id == position.snapshot
    if not complete or position.rows is not None:
        raise PositionExpired(
            f"position {position} is expired: the reaper has removed the snapshots before {first.snapshot_id}, and "
            "what they added cannot be told from what came before"
        )
    return history.snapshots


class Follower:
    """Gives every row of a table once; `load` loads the table."""

    def __init__(self, load: Callable[[], Table], read: Read, position: Position, uuid: str) -> None:
        self._load, self._read, self._uuid = load, read, uuid
        self.position = position
        #: `overwrite` snapshots that were passed: no stream sees the rows that they added
        self.overwrites: list[int] = []

    def news(self) -> Iterator[Seen]:
        """
        The rows since the last call. Raises PositionExpired, StorageUnavailable, CatalogUnavailable.

        A caller that stops in between and goes on from the last position that it was given misses nothing.
        """
        table = self._load()
        if str(table.metadata.table_uuid) != self._uuid:
            raise NotPossible(f"{'.'.join(table.name())} is another table now", hint="Start again: --from beginning.")
        for snapshot in ahead(table.metadata, self.position):
            try:
                yield from self._of(table, snapshot)
            except Missing as exc:
                # Expired while it was read, or lost: the table as it is now tells which.
                ahead(self._load().metadata, self.position)
                raise StorageUnavailable(f"snapshot {snapshot.snapshot_id}: {exc}") from exc

    def _of(self, table: Table, snapshot: Snapshot) -> Iterator[Seen]:
        whole = self.position.whole and self.position.snapshot == snapshot.snapshot_id
        if whole or is_append(snapshot):
            yield from self._rows(table, snapshot, whole)
        elif snapshot.summary and snapshot.summary.operation.value == "overwrite":
            self.overwrites.append(snapshot.snapshot_id)
        self.position = Position(snapshot.snapshot_id)
        yield Seen(None, self.position)

    def _rows(self, table: Table, snapshot: Snapshot, whole: bool) -> Iterator[Seen]:
        skip = (self.position.rows or 0) if self.position.snapshot == snapshot.snapshot_id else 0
        number = skip
        files = live_files(table.io, snapshot) if whole else added_by(snapshot, table.io, reading)
        for file in files:
            if skip >= file.record_count:
                skip -= file.record_count
                continue
            for row in self._read(table, file, skip):
                number += 1
                self.position = Position(snapshot.snapshot_id, number, whole)
                yield Seen(row, self.position)
            skip = 0
