"""
A table that a reader follows: loaded again and again, and read from wherever the reader's place is kept.

The Python consumer has its place in the output, `follow` in memory; both ask `work` what is unread, and read it here.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from bookkeeper.consumers.place import Place
from bookkeeper.consumers.place_on_main import ahead
from bookkeeper.consumers.reader import Piece, Reader
from bookkeeper.consumers.selection import Selection
from bookkeeper.consumers.snapshot_files import SnapshotFiles, TableFile
from bookkeeper.consumers.unread import Work
from bookkeeper.errors import FileGone, Missing, PlaceRefused
from bookkeeper.history.main_history import MainHistory
from bookkeeper.threads import Threads

#: what is fetched ahead at once
THREADS = 8


class FollowedTable:
    """
    The table with this uuid, in these columns; the reader `name` reads the files that are `is_ours`.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Table],
        uuid: str,
        columns: Selection,
        is_ours: Callable[[TableFile], bool] = lambda file: True,
        another: str = PlaceRefused.hint,
    ) -> None:
        """`another` is what to do where the table is another one now."""
        self._load, self._uuid, self._columns, self._is_ours, self._another = load, uuid, columns, is_ours, another
        self.files = SnapshotFiles()
        self._threads = Threads(name, THREADS)

    def load(self) -> Table:
        """The table as it is now; raises PlaceRefused where it is another one, CatalogUnavailable."""
        table = self._load()
        if str(table.metadata.table_uuid) != self._uuid:
            raise PlaceRefused(f"{'.'.join(table.name())} is another table now", hint=self._another)
        return table

    def schema(self, table: Table) -> Schema:
        """The columns that are read, as the table has them now."""
        return self._columns.schema(table)

    def read(
        self, table: Table, items: Iterable[Work], most_rows: int, most_bytes: int, place: Callable[[], Place]
    ) -> Generator[Piece, None, None]:
        """
        The rows of these snapshots, in order, in pieces of at most so many rows and about so many bytes.

        Raises what `items` raises, StorageUnavailable, NotPossible for a file that cannot be read, and as `unexpired`.
        """
        reader = Reader(table, self.schema(table), self._is_ours, self.files, self._threads, most_rows, most_bytes)
        with self.unexpired(place), closing(reader.read(items)) as pieces:
            yield from pieces

    @contextmanager
    def unexpired(self, place: Callable[[], Place]) -> Iterator[None]:
        """For a file that is missing: raises PlaceExpired or RolledBack, if that is why, else FileGone."""
        try:
            yield
        except Missing as exc:
            # Expired while it was read, or lost: the table as it is now tells which.
            ahead(MainHistory(self.load().metadata), place())
            raise FileGone(f"{exc}") from exc

    def close(self, wait: bool) -> None:
        """Ends the threads; `wait`: until they have ended."""
        self._threads.shutdown(wait=wait, cancel_futures=True)
