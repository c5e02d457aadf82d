"""
A consumer in Python: every appended row of a table once, as Arrow batches, with a place that survives it.

Like Spark's stream it reads what `append` snapshots of main added and passes over `replace` and `delete`: rewrites and
retention change no row that it has still to read. It reads from a committed place on, and whatever stops it, the next
run begins there: with the place in the output each row counts exactly once.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.settings import Settings
from bookkeeper.config.share import share_of
from bookkeeper.consumers.batches import LIMITS, Batch, Limits, gather
from bookkeeper.consumers.followed import FollowedTable
from bookkeeper.consumers.lost import Skipped, caught_up, skipped
from bookkeeper.consumers.place import Place, parse
from bookkeeper.consumers.place_keepers import PlaceKeeper
from bookkeeper.consumers.place_on_main import ahead
from bookkeeper.consumers.registration import FolderPlace, Registration
from bookkeeper.consumers.selection import ALL, Selection
from bookkeeper.consumers.snapshot_files import TableFile, check_not_hidden
from bookkeeper.consumers.source import BEGINNING, Clock, Source, begun, start_of
from bookkeeper.consumers.unread import refused, work
from bookkeeper.errors import NotPossible, PlaceExpired, Retry, RolledBack
from bookkeeper.history.main_history import MainHistory

__all__ = ["LIMITS", "Batch", "Clock", "Consumer", "Limits", "Skipped"]

T = TypeVar("T")
#: waits so many seconds; returns True when the caller should wait no longer
Wait = Callable[[float], object]

#: pause between two loads of the table while there is nothing to read
EVERY = timedelta(milliseconds=100)
#: how often the record in the folder follows the place, at most
REGISTER_EVERY = timedelta(seconds=10)
#: how long storage or catalog may be away before `batches` raises
PATIENCE = timedelta(minutes=1)
#: how often a place moves that passes no rows, at most
MOVE_EVERY = timedelta(minutes=1)
#: a run that knows for so long that the place is its own asks again before it hands out rows
CHECK_AFTER = timedelta(seconds=1)
_TRIES = 5

log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The current time of this machine, UTC."""
    return datetime.now(UTC)  # noqa: TID251 the default of an argument


def pause(seconds: float) -> None:
    """Sleeps."""
    time.sleep(seconds)  # noqa: TID251 the default of an argument


class Consumer:
    """
    One run of a consumer: `with Consumer.open("config.toml", "events", name="sums", place=...) as consumer`.

    Each batch of `batches()` is committed with `commit()` before the next. Not for several threads at once, nor after a
    fork. A new run takes over from every earlier one, which then gets ConsumerFenced at its next commit.
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
        columns: Selection | None = None,
        share: tuple[int, int] = (1, 1),
        clock: Clock = utc_now,
        wait: Wait = pause,
    ) -> None:
        self.name, self.place = registration.name, place
        #: bounds of the next batch
        self.limits = limits
        self._keeper, self._registration = keeper, registration
        self._overwritten: Callable[[Snapshot], object] = (lambda snapshot: None) if skip_overwrites else refused
        self._share, self._clock, self._wait = share, clock, wait
        self._table = FollowedTable(f"consumer {self.name}", load, place.table, columns or ALL, self._is_ours)
        #: the metadata file of which everything is read
        self._read_up: str | None = None
        self._registered_at: datetime | None = clock()
        self._own_at = clock()
        self._moved_at: datetime | None = None
        self._owes_move = False
        self._process = os.getpid()

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

        A new one begins at `start`: "beginning" (all rows that the table holds), "oldest" (what the kept snapshots
        added), "end", or a time that has come, with its zone (the first commit at or after it). `place` says where the
        place is kept, by default in the txlog folder. `columns` are read, all without it; they keep the names that are
        given here, also when the table renames them. `config` is Settings, or the path of a configuration whose
        variables come from the environment.

        Raises ConfigInvalid, NotPossible (the name is taken by a query; the output has lost its place; the table has no
        such column), PlaceRefused, CatalogUnavailable, StorageUnavailable.
        """
        return cls.at(
            Source.of(config, table, columns),
            name,
            place or FolderPlace(),
            start,
            limits=limits,
            skip_overwrites=skip_overwrites,
            clock=clock,
            wait=wait,
        )

    @classmethod
    def at(cls, source: "Source", name: str, keeper: PlaceKeeper, start: str | datetime, **how: Any) -> "Consumer":
        """The same, of a table that was opened already; `how` goes to the constructor."""
        registration = source.registration(name, how.get("clock", utc_now))
        if isinstance(keeper, FolderPlace):
            keeper.registration = registration
        place = begun(source.load, keeper, registration, start)
        return cls(source.load, keeper, registration, place, columns=source.columns, **how)

    def batches(self, *, follow: bool = True, every: timedelta = EVERY) -> Iterator[Batch]:
        """
        The rows after the place, in commit order; with `follow` it waits for more and ends when `wait` returns True.

        Without rows to read the table is loaded again after `every`. Raises PlaceExpired, RolledBack, Overwritten,
        FileGone; StorageUnavailable and CatalogUnavailable at once without `follow`, else after a minute of them; and
        NotPossible when a batch was not committed.
        """
        trouble: datetime | None = None
        while True:
            self._check_process()
            try:
                self._follow_place(REGISTER_EVERY)
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
        self._check_process()
        if batch.start != self.place:
            raise NotPossible(f"the batch begins at {batch.start.brief}, and {self.name} is at {self.place.brief}")
        self._keeper.commit(self.name, str(batch.start), str(batch.place), output)
        self.place = batch.place
        self._moved_at = self._own_at = self._clock()

    def lost(self) -> NotPossible | None:
        """
        Why it cannot go on from its place: a PlaceExpired or RolledBack; None when it can.
        """
        try:
            ahead(MainHistory(self._table.load().metadata), self.place)
        except (PlaceExpired, RolledBack) as exc:
            return exc
        return None

    def skip_lost(self) -> Skipped:
        """
        Goes on after rows that are lost to this consumer (PlaceExpired, RolledBack): moves the place, durably.

        Returns the place, which is unchanged when nothing is lost, and how many live rows it passes over. In a
        transaction that is open in the output's database the place moves with it.
        """
        found = self._go_on(lambda table: skipped(table, self.place, self._is_ours), lambda found: found.place)
        if found.files:
            log.warning("rows skipped", extra={"action": "consumer-skip-lost", **self._told(found)})
        return found

    def catch_up(self) -> Place:
        """
        Goes on with every live row that this consumer has not read, also of snapshots that are expired, and no other.

        Moves the place as `skip_lost`; it is unchanged when nothing is lost. Raises NotPossible where the table cannot
        tell which rows these are: after a rewrite, on keyed tables, in the middle of a snapshot; and RolledBack.
        """
        return self._go_on(lambda table: caught_up(table, self.place), lambda place: place)

    def restart(self, start: str | datetime | Place = BEGINNING) -> Place:
        """
        Begins anew: at all rows that the table holds, or at another `start`, as a new consumer. Empty the output first.

        Moves the place as `skip_lost`. Raises as `open`, and NotPossible where delete files hide rows of the table.
        """
        return self._go_on(lambda table: self._first(table, start), lambda place: place)

    def _first(self, table: Table, start: str | datetime | Place) -> Place:
        if isinstance(start, Place):
            return start
        place = start_of(table.metadata, start, self._clock())
        snapshot = table.metadata.snapshot_by_id(place.snapshot) if place.snapshot is not None else None
        if place.whole and snapshot is not None:
            check_not_hidden(snapshot, self._table.files.all(table.io, snapshot))  # before the place is given up
        return place

    def _go_on(self, choose: Callable[[Table], T], place_of: Callable[[T], Place]) -> T:
        """
        Moves the place to what is chosen, again where expiry, which did not know of it, took it away in the meantime.
        """
        self._check_process()
        for _ in range(_TRIES):
            table = self._table.load()
            found = choose(table)
            if place_of(found) != self.place:
                self._move(place_of(found), table)
            if self.lost() is None:
                break
        return found

    def _move(self, place: Place, table: Table) -> None:
        """A crash behind the first step leaves the record behind the place: the reaper keeps more."""
        like = schema_to_pyarrow(self._table.schema(table), include_field_ids=False)
        self._keeper.move(self.name, str(self.place), str(place), like)
        self.place, self._read_up = place, None
        self._registered_at = None  # in an open transaction the record follows later
        self._follow_place(timedelta(0))

    def _told(self, found: Skipped) -> dict[str, Any]:
        """Logs that the consumer has moved to another place."""
        return {"consumer": self.name, "files": found.files, "rows": found.rows, "exact": found.exact}

    def close(self) -> None:
        """Ends the threads, and registers the place that is durable. The name stays registered."""
        self._table.close(wait=True)
        with suppress(Retry):  # the record stays behind: the reaper keeps more
            self._follow_place(timedelta(0))

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._table.close(wait=True)

    def _follow_place(self, every: timedelta) -> None:
        """Lets the record follow, by what the output says: a place in an open transaction may never become durable."""
        if not self._is_due(self._registered_at, every):
            return
        for _ in range(_TRIES):
            text = self._keeper.durable(self.name)
            if text is None:
                return
            if self._registration.follow(parse(text, self.place.table, f"the output of {self.name}")):
                self._registered_at = self._clock()
                return

    def _news(self) -> Iterator[Batch]:
        """The batches of one load of the table; each is committed before the next."""
        table = self._table.load()
        if table.metadata_location == self._read_up:
            return
        self._begin_later(table)
        self._owes_move, limits = False, self.limits
        schema = schema_to_pyarrow(self._table.schema(table), include_field_ids=False)
        unread = work(MainHistory(table.metadata), self.place, self._overwritten)
        with closing(self._table.read(table, unread, limits.rows, limits.bytes, lambda: self.place)) as pieces:
            for batch in gather(pieces, self.place, schema, lambda: self.limits, self._keeper.epoch):
                if self._may_wait(batch):
                    self._owes_move = True
                    continue
                self._check_own()
                yield batch
                self._check_committed(batch)
        self._read_up = None if self._owes_move else table.metadata_location

    def _may_wait(self, batch: Batch) -> bool:
        """Without rows a place moves now and then only: of a group each member would commit with each append."""
        return not batch.table.num_rows and not self._is_due(self._moved_at, MOVE_EVERY)

    def _check_process(self) -> None:
        """A fork has no threads, so that it could wait for ever, and it has the parent's leases and place."""
        if os.getpid() != self._process:
            hint = "Open a Consumer in the process that reads; for several at once a ConsumerGroup in each."
            raise NotPossible(f"{self.name} was opened by process {self._process}", hint=hint)

    def _check_own(self) -> None:
        """Raises ConsumerFenced where another run has taken the place over."""
        if self._is_due(self._own_at, CHECK_AFTER):
            self._keeper.check(self.name)

    def _check_committed(self, batch: Batch) -> None:
        if self.place != batch.place:
            raise NotPossible(
                f"the batch before {batch.place.brief} was not committed",
                hint="Call commit(batch) in the loop: a place that does not move would read its rows again.",
            )

    def _is_due(self, last: datetime | None, every: timedelta) -> bool:
        return last is None or abs(self._clock() - last) >= every

    def _begin_later(self, table: Table) -> None:
        """
        Moves a beginning that expired before anything was read to what is the beginning now.

        A reaper that was about to commit when this consumer registered does not know of it. What its expiry left is all
        that the table holds. Not in a group: a rewrite may have put rows that another member has read into files of
        this one's share.
        """
        place = self.place
        if self._share[1] > 1 or place.files != 0 or place.rows or place != self._registration.start:
            return
        try:
            ahead(MainHistory(table.metadata), place)
        except PlaceExpired:
            self._move(start_of(table.metadata, BEGINNING, self._clock()), table)

    def _is_ours(self, file: TableFile) -> bool:
        number, shares = self._share
        return shares == 1 or share_of(file.file_path, shares) == number
