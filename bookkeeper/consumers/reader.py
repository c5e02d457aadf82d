"""
Reads what a consumer has to read, in order: the files that each snapshot added, and their rows.

On a local disk one thing at a time. Elsewhere each step is a round trip: lists of files, and small files as a whole,
are fetched ahead in threads. Rows are decoded one file at a time, so that memory is bounded: by the bytes that are
fetched ahead, and by what of one file is decoded at once.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from bookkeeper.consumers.place import Place
from bookkeeper.consumers.read_ahead import each_ahead
from bookkeeper.consumers.reading import reading
from bookkeeper.consumers.rows import Projection
from bookkeeper.consumers.snapshot_files import SnapshotFiles, TableFile
from bookkeeper.consumers.unread import Unread, Work, unread
from bookkeeper.errors import NotPossible
from bookkeeper.stores.locations import local_path

#: a file up to this size is fetched whole and ahead, where that hides round trips; no further one beyond so much
FETCHED_BYTES, AHEAD_BYTES = 8 * 2**20, 16 * 2**20


class Piece(NamedTuple):
    """Rows (None: the end of what has none), and the places before and after them."""

    rows: pa.RecordBatch | None
    start: Place
    end: Place


@dataclass
class Reader:
    """
    Reads the files of a table that are `is_ours`, in the columns of the schema `wanted`.

    A piece has at most `most_rows` rows and about `most_bytes` bytes.
    """

    table: Table
    wanted: Schema
    is_ours: Callable[[TableFile], bool]
    files: SnapshotFiles
    threads: Executor
    most_rows: int
    most_bytes: int

    def __post_init__(self) -> None:
        self._projection = Projection(self.table, self.wanted)
        self._is_local = local_path(self.table.metadata.location) is not None

    def read(self, items: Iterable[Work]) -> Generator[Piece, None, None]:
        """
        The rows of these snapshots, in order.

        Raises what `items` raises, Missing, StorageUnavailable, and NotPossible for a file that cannot be read.
        """
        with closing(self._files(items)) as files, closing(self._fetched(files)) as fetched:
            for item, data in fetched:
                yield from self._pieces(item, data)

    def _files(self, items: Iterable[Work]) -> Generator[Unread, None, None]:
        def look(item: Work) -> Sequence[TableFile]:
            return self.files.of(self.table.io, item.snapshot, item.whole)

        listed = ((item, look(item)) for item in items) if self._is_local else each_ahead(self.threads, items, look)
        with closing(listed):
            for item, files in listed:
                yield from unread(item, files, self.is_ours)

    def _fetched(self, files: Iterable[Unread]) -> Generator[tuple[Unread, bytes | None], None, None]:
        """Each file, with its bytes if it was fetched."""
        if self._is_local:
            yield from ((item, None) for item in files)
            return
        yield from each_ahead(self.threads, files, self._fetch, weigh=_size, most=AHEAD_BYTES)

    def _fetch(self, item: Unread) -> bytes | None:
        """The bytes of a small file; None for one that is not, whatever its entry says."""
        if item.file is None or item.file.file_size_in_bytes > FETCHED_BYTES:
            return None
        path = item.file.file_path
        with reading(path), self.table.io.new_input(path).open() as source:
            data = source.read(FETCHED_BYTES + 1)
        return data if len(data) <= FETCHED_BYTES else None

    def _pieces(self, item: Unread, data: bytes | None) -> Iterator[Piece]:
        """The rows of a file; raises NotPossible when it has not as many as the table counts."""
        file, here, end = item
        if file is not None:
            rows = here.rows
            for batch in self._projection.batches(file, rows, self.most_rows, self.most_bytes, data):
                rows += batch.num_rows
                after = end if rows == file.record_count else replace(item.start, rows=rows)
                if rows <= file.record_count:
                    yield Piece(batch, here, after)
                here = after
            if rows != file.record_count:
                raise NotPossible(f"{file.file_path} has {rows} rows, the table counts {file.record_count}")
        if here != end:
            yield Piece(None, here, end)


def _size(item: Unread) -> int:
    """The memory that a fetched file takes, bytes."""
    size = 0 if item.file is None else item.file.file_size_in_bytes
    return size if size <= FETCHED_BYTES else 0
