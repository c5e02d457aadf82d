"""
A consumer in Python: every appended row of a table once, as Arrow batches, with a place that survives it.

Like Spark's stream it reads what `append` snapshots of main added and passes over `replace` and `delete`: rewrites and
retention change no row that it has still to read. It reads from a committed place on, and whatever stops it, the next
run begins there: with the place in the output each row counts exactly once.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.config.settings import Settings
from bookkeeper.config.share import share_of
from bookkeeper.errors import (
    BookkeeperError,
    FileGone,
    Missing,
    NotPossible,
    Overwritten,
    PlaceExpired,
    PlaceRefused,
    Retry,
)
from bookkeeper.stores.locations import local_path
from bookkeeper.streams.added_files import AddedFiles
from bookkeeper.streams.keepers import PlaceKeeper
from bookkeeper.streams.main_history import MainHistory, is_append
from bookkeeper.streams.place import Place, after_lost, ahead, parse
from bookkeeper.streams.read_ahead import each_ahead
from bookkeeper.streams.registration import FolderPlace, Registration
from bookkeeper.streams.rows import Projection
from bookkeeper.streams.source import BEGINNING, Clock, Source, begun, selected, start_of

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
#: waits so many seconds; returns True when the caller should wait no longer
Wait = Callable[[float], object]

#: pause between two loads of the table while there is nothing to read
EVERY = timedelta(milliseconds=100)
MOST_ROWS, MOST_BYTES = 65_536, 64 * 2**20
#: how often the record in the folder follows the place, at most
REGISTER_EVERY = timedelta(seconds=10)
#: how long storage or catalog may be away before `batches` raises
PATIENCE = timedelta(minutes=1)
#: files up to this size are read ahead, in threads, where that hides a round trip; on a local disk threads only take
#: the interpreter from each other: twice the CPU time
SMALL_BYTES = 2**20
THREADS = 8
#: what is kept of such a file; 1 MiB with a dictionary can be 10 GiB of rows
AHEAD_BYTES = 8 * 2**20
#: how often a place moves that passes no rows, at most
MOVE_EVERY = timedelta(minutes=1)


def utc_now() -> datetime:
    """The time of this machine."""
    return datetime.now(UTC)  # noqa: TID251 the default of an argument


def pause(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)  # noqa: TID251 the default of an argument


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Rows as an Arrow table, in the columns that the table has now; `start` is the place before them, `place` after.

    A batch without rows moves the place past snapshots that added none. It is committed like any other.
    """

    table: pa.Table
    start: Place
    place: Place

    @property
    def key(self) -> str:
        """
        A name for what is written of this batch; a run that reads again from the same place gives the same name.
        """
        start = self.start
        return f"{start.snapshot or 0}-{'all' if start.files is None else start.files}-{start.rows}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch: rows, and Arrow bytes (soft: one piece of a file more at most)."""

    rows: int = MOST_ROWS
    bytes: int = MOST_BYTES


LIMITS = Limits()


class Consumer:
    """
    One run of a consumer: `with Consumer.open("config.toml", "events", name="sums", place=...) as consumer`.

    Each batch of `batches()` is committed with `commit()` before the next. Not for several threads at once. A new run
    takes over from every earlier one, which then gets ConsumerFenced at its next commit.
    """

    def __init__(
        self,
        load: Callable[[], Table],
        keeper: PlaceKeeper,
        registration: Registration,
        place: Place,
        *,
        limits: Limits = LIMITS,
        skip_overwrites: bool = False,
        columns: Iterable[str] = (),
        share: tuple[int, int] = (1, 1),
        clock: Clock = utc_now,
        wait: Wait = pause,
    ) -> None:
        self.name, self.place = registration.name, place
        #: bounds of the next batch
        self.limits = limits
        self._load, self._keeper, self._registration = load, keeper, registration
        self._skip_overwrites, self._columns = skip_overwrites, tuple(columns)
        self._share, self._clock, self._wait = share, clock, wait
        self._added = AddedFiles()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"consumer {self.name}")
        #: the metadata file of which everything is read
        self._read_up: str | None = None
        self._registered_at = clock()
        self._moved_at: datetime | None = None
        self._owes_move = False

    @classmethod
    def open(
        cls,
        config: str | os.PathLike[str] | Settings,
        table: str | None = None,
        *,
        name: str,
        place: PlaceKeeper | None = None,
        start: str | datetime = BEGINNING,
        skip_overwrites: bool = False,
        columns: Iterable[str] = (),
        limits: Limits = LIMITS,
        clock: Clock = utc_now,
        wait: Wait = pause,
    ) -> "Consumer":
        """
        The consumer `name` of `table` (a section of the configuration), at the place where its last run ended.

        A new one begins at `start`: "beginning" (all rows that the table holds), "end", or a time (the first commit at
        or after it). `place` says where the place is kept, by default in the txlog folder. `columns` are read, all
        without it. `config` is Settings, or the path of a configuration whose variables come from the environment.

        Raises ConfigInvalid, NotPossible (the name is taken by a query; the output has lost its place), PlaceRefused,
        CatalogUnavailable, StorageUnavailable.
        """
        columns = tuple(columns)
        return cls.at(
            Source.of(config, table, columns),
            name,
            place or FolderPlace(),
            start,
            limits=limits,
            skip_overwrites=skip_overwrites,
            columns=columns,
            clock=clock,
            wait=wait,
        )

    @classmethod
    def at(cls, source: "Source", name: str, keeper: PlaceKeeper, start: str | datetime, **how: Any) -> "Consumer":
        """The same, of a table that was opened already; `how` goes to the constructor."""
        registration = source.registration(name, how.get("clock", utc_now))
        if isinstance(keeper, FolderPlace):
            keeper.registration = registration
        return cls(source.load, keeper, registration, begun(source.load, keeper, registration, start), **how)

    def batches(self, *, follow: bool = True, every: timedelta = EVERY) -> Iterator[Batch]:
        """
        The rows after the place, in commit order; with `follow` it waits for more and ends when `wait` returns True.

        Without rows to read the table is loaded again after `every`. Raises PlaceExpired, RolledBack, Overwritten,
        FileGone; StorageUnavailable and CatalogUnavailable at once without `follow`, else after a minute of them; and
        NotPossible when a batch was not committed.
        """
        trouble: datetime | None = None
        while True:
            try:
                for batch in self._news():
                    trouble = None
                    yield batch
                    self._follow_place(REGISTER_EVERY)
                trouble = None
                self._follow_place(REGISTER_EVERY)
            except Retry:
                now = self._clock()
                trouble = trouble or now
                if not follow or abs(now - trouble) >= PATIENCE:
                    raise
            if not follow or self._wait(every.total_seconds()) is True:
                return

    def commit(self, batch: Batch, output: pa.Table | None = None) -> None:
        """
        Moves the place past the batch. `output`: the rows to write, where the place is in a file beside them.

        In a database this is a statement in the transaction that is open: rows and place become durable together.
        Raises ConsumerFenced, and then that transaction must be rolled back; NotPossible without a transaction.
        """
        if batch.start != self.place:
            raise NotPossible(f"the batch begins at {batch.start.brief}, and {self.name} is at {self.place.brief}")
        self._keeper.commit(self.name, str(batch.start), str(batch.place), output)
        self.place = batch.place

    def skip_lost(self) -> Place:
        """
        Goes on after rows that are lost to this consumer (PlaceExpired, RolledBack): moves the place, durably.

        Returns the place, which is unchanged when nothing is lost.
        """
        table = self._table()
        place = after_lost(table.metadata, self.place)
        if place != self.place:
            self._move(place, table)
        return place

    def _move(self, place: Place, table: Table) -> None:
        """A crash behind the first step leaves the record behind the place: the reaper keeps more."""
        like = schema_to_pyarrow(selected(table, self._columns), include_field_ids=False)
        self._keeper.move(self.name, str(self.place), str(place), like)
        self.place = place
        self._follow_place(timedelta(0))

    def close(self) -> None:
        """Ends the threads, and registers the place that is durable. The name stays registered."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with suppress(Retry):  # the record stays behind: the reaper keeps more
            self._follow_place(timedelta(0))

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _follow_place(self, every: timedelta) -> None:
        """Lets the record follow, by what the output says: a place in an open transaction may never become durable."""
        now = self._clock()
        if abs(now - self._registered_at) < every:
            return
        text = self._keeper.durable(self.name)
        if text is not None:
            self._registration.follow(parse(text, self.place.table, f"the output of {self.name}"))
            self._registered_at = now

    def _table(self) -> Table:
        table = self._load()
        if str(table.metadata.table_uuid) != self.place.table:
            raise PlaceRefused(f"{'.'.join(table.name())} is another table now")
        return table

    def _news(self) -> Iterator[Batch]:
        """The batches of one load of the table."""
        table = self._table()
        if table.metadata_location == self._read_up:
            return
        self._begin_later(table)
        with closing(self._pieces(table)) as pieces:
            for batch in self._gathered(table, pieces):
                yield batch
                if self.place != batch.place:
                    raise NotPossible(
                        f"the batch before {batch.place.brief} was not committed",
                        hint="Call commit(batch) in the loop: a place that does not move would read its rows again.",
                    )
                self._moved_at = self._clock()
        self._read_up = None if self._owes_move else table.metadata_location

    def _begin_later(self, table: Table) -> None:
        """
        Moves a beginning that expired before anything was read to what is the beginning now.

        A reaper that was about to commit when this consumer registered does not know of it. What its expiry left is all
        that the table holds.
        """
        place = self.place
        if place.files != 0 or place.rows or place != self._registration.start:
            return
        try:
            ahead(MainHistory(table.metadata), place)
        except PlaceExpired:
            self._move(start_of(table.metadata, BEGINNING), table)

    def _gathered(self, table: Table, pieces: "Generator[_Piece, None, None]") -> Iterator[Batch]:
        """Pieces as batches: as large as allowed, and what is left at the end, also when that is an error."""
        start = place = self.place
        schema = schema_to_pyarrow(selected(table, self._columns), include_field_ids=False)
        found: list[pa.RecordBatch] = []
        rows = size = 0
        error: BookkeeperError | None = None
        try:
            for rest, before, after in pieces:
                done, count = 0, rest.num_rows if rest is not None else 0
                while rest is not None and done < count:
                    part = rest.slice(done, self.limits.rows - rows)
                    found.append(part if part.schema == schema else part.cast(schema))
                    done, rows, size = done + part.num_rows, rows + part.num_rows, size + part.nbytes
                    place = after if done == count else replace(before, rows=before.rows + done)
                    if rows >= self.limits.rows or size >= self.limits.bytes:
                        yield Batch(pa.Table.from_batches(found, schema), start, place)
                        start, found, rows, size = place, [], 0, 0
                place = after
        except BookkeeperError as exc:
            error = exc
        # Without rows a place moves now and then only: of a group each member would commit with each append.
        self._owes_move = place != start and not found and not self._is_move_due()
        if place != start and not self._owes_move:
            yield Batch(pa.Table.from_batches(found, schema), start, place)
        if error is not None:
            raise error

    def _is_move_due(self) -> bool:
        return self._moved_at is None or abs(self._clock() - self._moved_at) >= MOVE_EVERY

    def _pieces(self, table: Table) -> "Generator[_Piece, None, None]":
        """The rows after the place, with the places before and after them; None for the end of what has no rows."""
        try:
            projection = Projection(table, selected(table, self._columns))
            files, read_small = self._unread(table), partial(self._read_small, projection)
            with closing(self._ahead_of(table, files, read_small)) as read:
                for unread, small in read:
                    yield from self._checked(unread, self._batches(projection, unread) if small is None else small)
        except Missing as exc:
            # Expired while it was read, or lost: the table as it is now tells which.
            ahead(MainHistory(self._table().metadata), self.place)
            raise FileGone(f"{exc}") from exc

    def _checked(self, unread: "_Unread", found: Iterable[pa.RecordBatch]) -> "Generator[_Piece, None, None]":
        """The batches of a file; raises NotPossible when it has not as many rows as the table counts."""
        here, rows = unread.start, unread.start.rows
        counted = unread.file.record_count if unread.file is not None else 0
        for batch in found:
            rows += batch.num_rows
            after = unread.end if rows == counted else replace(unread.start, rows=rows)
            if rows <= counted:
                yield batch, here, after
            here = after
        if unread.file is not None and rows != counted:
            raise NotPossible(f"{unread.file.file_path} has {rows} rows, the table counts {counted}")
        if here != unread.end:
            yield None, here, unread.end

    def _read_small(self, projection: Projection, unread: "_Unread") -> list[pa.RecordBatch] | None:
        """What a small file holds; None for one that is large, or whose rows are: it is read batch by batch."""
        if unread.file is None or unread.file.file_size_in_bytes > SMALL_BYTES:
            return None
        found: list[pa.RecordBatch] = []
        size = 0
        for batch in self._batches(projection, unread, whole=True):
            found.append(batch)
            size += batch.nbytes
            if size > AHEAD_BYTES:
                return None
        return found

    def _batches(self, projection: Projection, unread: "_Unread", whole: bool = False) -> Iterable[pa.RecordBatch]:
        if unread.file is None:
            return ()
        return projection.batches(unread.file, unread.start.rows, self.limits.rows, self.limits.bytes, whole)

    def _unread(self, table: Table) -> "Generator[_Unread, None, None]":
        """The files after the place, in order."""
        history, known = MainHistory(table.metadata), self.place.passed
        appends = self._appends(ahead(history, self.place))
        with closing(
            self._ahead_of(table, appends, lambda item: self._added.of(table, item, self._is_whole(item)))
        ) as planned:
            for snapshot, files in planned:
                yield from self._unread_of(snapshot, files, history.ancestors(snapshot.snapshot_id, known))

    def _appends(self, snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
        for snapshot in snapshots:
            if self._is_whole(snapshot) or is_append(snapshot):
                yield snapshot
            elif snapshot.summary and snapshot.summary.operation == Operation.OVERWRITE and not self._skip_overwrites:
                raise Overwritten(f"snapshot {snapshot.snapshot_id} is an overwrite")

    def _is_whole(self, snapshot: Snapshot) -> bool:
        return self.place.whole and self.place.snapshot == snapshot.snapshot_id

    def _unread_of(
        self, snapshot: Snapshot, files: list[DataFile], ancestors: tuple[int, ...]
    ) -> "Generator[_Unread, None, None]":
        begun = self.place if self.place.snapshot == snapshot.snapshot_id else None
        read, rows = (begun.files or 0, begun.rows) if begun else (0, 0)
        if read > len(files) or (rows and (read == len(files) or rows >= files[read].record_count)):
            raise PlaceRefused(f"the place {self.place.brief} is past the {len(files)} files of its snapshot")
        end = Place(self.place.table, snapshot.snapshot_id, at=snapshot.timestamp_ms, ancestors=ancestors)
        within = replace(end, whole=self._is_whole(snapshot))
        for number in range(read, len(files)):
            here = replace(within, files=number, rows=rows if number == read else 0)
            after = end if number + 1 == len(files) else replace(within, files=number + 1)
            yield _Unread(files[number] if self._is_ours(files[number]) else None, here, after)
        if read == len(files):
            yield _Unread(None, replace(within, files=read), end)

    def _is_ours(self, file: DataFile) -> bool:
        number, shares = self._share
        return shares == 1 or share_of(file.file_path, shares) == number

    def _ahead_of(self, table: Table, items: Iterable[I], act: Callable[[I], T]) -> Generator[tuple[I, T], None, None]:
        """Each item with what `act` returns for it, in order; some are done ahead, in threads, unless all is local."""
        if local_path(table.metadata.location) is not None:
            yield from ((item, act(item)) for item in items)
            return
        yield from each_ahead(self._threads, items, act)


class _Unread(NamedTuple):
    """A file after the place (None: nothing to read), and the places before and after what is unread of it."""

    file: DataFile | None
    start: Place
    end: Place


#: rows, and the places before and after them
_Piece = tuple[pa.RecordBatch | None, Place, Place]
