"""
Batches of a consumer: rows with the places before and after them, as many as its limits allow.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.consumers.place import Place
from bookkeeper.consumers.reader import Piece
from bookkeeper.errors import BookkeeperError

MOST_ROWS, MOST_BYTES = 65_536, 64 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch: rows, and Arrow bytes, which one piece of a file may exceed."""

    rows: int = MOST_ROWS
    bytes: int = MOST_BYTES


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Rows as an Arrow table, in the columns that the table has now; `start` is the place before them, `place` after.

    A batch without rows moves the place past snapshots that added none. It is committed like any other.
    """

    table: pa.Table
    start: Place
    place: Place
    #: of two runs of one consumer the later one has the greater number; 0 where its place has none (`ParquetPlace`)
    epoch: int = 0

    @property
    def key(self) -> str:
        """
        A name for what is written of this batch; a run that reads again from the same place gives the same name.
        """
        start = self.start
        files = "all" if start.files is None else f"{'whole' if start.whole else ''}{start.files}"
        return f"{start.snapshot or 0}-{files}-{start.rows}"


def gather(
    pieces: Iterable[Piece], place: Place, schema: pa.Schema, limits: Callable[[], Limits], epoch: int = 0
) -> Iterator[Batch]:
    """
    The pieces after `place` as batches, as large as allowed, and what is left at the end; `limits` is asked for each.

    An error of the pieces is raised after the batch of what came before it.
    """
    start, found, rows, size = place, list[pa.RecordBatch](), 0, 0
    error: BookkeeperError | None = None
    try:
        for piece in pieces:
            done, count = 0, 0 if piece.rows is None else piece.rows.num_rows
            while done < count:
                part = _part(piece.rows, done, limits().rows - rows)
                found.append(part if part.schema is schema or part.schema == schema else part.cast(schema))
                done, rows, size = done + part.num_rows, rows + part.num_rows, size + part.nbytes
                place = piece.end if done == count else replace(piece.start, rows=piece.start.rows + done)
                if rows >= limits().rows or size >= limits().bytes:
                    yield Batch(pa.Table.from_batches(found, schema), start, place, epoch)
                    start, found, rows, size = place, [], 0, 0
            place = piece.end
    except BookkeeperError as exc:
        error = exc
    if place != start:
        yield Batch(pa.Table.from_batches(found, schema), start, place, epoch)
    if error is not None:
        raise error


def _part(rows: pa.RecordBatch, first: int, most: int) -> pa.RecordBatch:
    return rows if not first and rows.num_rows <= most else rows.slice(first, most)
