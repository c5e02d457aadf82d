"""
Follows a table: a consumer with its place in memory, which gives every row that append snapshots add once.

Like Spark's stream it passes over `replace`, `delete` and `overwrite` snapshots, and needs the snapshots that it has
not read yet: once the reaper has expired them it raises PlaceExpired, because it guesses nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyiceberg.table import Table

from bookkeeper.consumers.followed import FollowedTable
from bookkeeper.consumers.place import Place
from bookkeeper.consumers.place_on_main import ahead, end
from bookkeeper.consumers.reader import Piece
from bookkeeper.consumers.selection import Selection
from bookkeeper.consumers.snapshot_files import TableFile
from bookkeeper.consumers.source import BEGINNING
from bookkeeper.consumers.unread import work
from bookkeeper.errors import FileGone, StorageUnavailable
from bookkeeper.format.python_rows import python_rows
from bookkeeper.history.main_history import MainHistory

_POSITION = re.compile(r"(\d+)(?::(all:)?(\d+))?")
#: of one piece of a file
MOST_ROWS, MOST_BYTES = 500, 2**24
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """
    A place as it is shown: the reader has seen `rows` rows of `snapshot` (None: all of them), and everything before.

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

    @classmethod
    def of(cls, place: Place) -> "Position":
        """A place at the begin of a snapshot or behind it."""
        return cls(place.snapshot, place.files, place.whole)

    def before(self, table: str, files: Sequence[TableFile] = ()) -> Place:
        """
        The place in the table of this uuid; `files` are those of the snapshot: without them, the begin of it.
        """
        if self.rows is None or self.snapshot is None:
            return Place(table, self.snapshot)
        read, rows = 0, self.rows if files else 0
        while read < len(files) and rows >= files[read].record_count:
            rows -= files[read].record_count
            read += 1
        return Place(table, self.snapshot, read, rows if read < len(files) else 0, self.whole)


class Seen(NamedTuple):
    """A row and the position after it; row None for the end of a snapshot."""

    row: Row | None
    position: Position


class Follower:
    """
    Gives every row of a table once, in the columns that were asked for and in that order, or in those that the table
    has by then; `load` loads the table.
    """

    def __init__(self, load: Callable[[], Table], columns: Selection, position: Position, uuid: str) -> None:
        self._columns, self._uuid, self.position = columns, uuid, position
        self._table = FollowedTable("tail", load, uuid, columns, another="Start again: --from beginning.")
        #: `overwrite` snapshots that were passed: no stream sees the rows that they added
        self.overwrites: list[int] = []

    def news(self) -> Iterator[Seen]:
        """
        The rows since the last call. Raises PlaceExpired, RolledBack, StorageUnavailable, CatalogUnavailable, and
        NotPossible for what cannot be decoded.

        A caller that stops in between and goes on from the last position that it was given misses nothing.
        """
        table = self._table.load()
        history = MainHistory(table.metadata)
        try:
            with self._table.unexpired(self._begin):
                place = self._place(table, history)
            unread = work(history, place, lambda item: self.overwrites.append(item.snapshot_id))
            with closing(self._table.read(table, unread, MOST_ROWS, MOST_BYTES, self._begin)) as pieces:
                for piece in pieces:
                    yield from self._seen(piece)
        except FileGone as exc:
            raise StorageUnavailable(f"{exc}") from exc  # it may be there again at the next call
        self.position = Position.of(end(history))
        yield Seen(None, self.position)

    def close(self) -> None:
        """Ends the threads that read ahead."""
        self._table.close(wait=False)

    def _begin(self) -> Place:
        """The place of the position, or the begin of its snapshot."""
        return self.position.before(self._uuid)

    def _place(self, table: Table, history: MainHistory) -> Place:
        """Raises as `ahead`, before files of a snapshot are looked for."""
        position = self.position
        ahead(history, self._begin())
        if not position.rows or position.snapshot is None:
            return self._begin()
        snapshot = history.by_id[position.snapshot]
        return position.before(self._uuid, self._table.files.of(table.io, snapshot, position.whole))

    def _seen(self, piece: Piece) -> Iterator[Seen]:
        snapshot, before = piece.start.snapshot, self.position
        number = (before.rows or 0) if before.snapshot == snapshot else 0
        for row in [] if piece.rows is None else python_rows(piece.rows):
            number += 1
            self.position = Position(snapshot, number, piece.start.whole)
            yield Seen({name: row[name] for name in self._columns.ids or row}, self.position)
        if piece.end.files is None:
            self.position = Position(snapshot)
            yield Seen(None, self.position)
