"""
The writer: rows in, data files and one txlog per publish out. Needs a txlog folder, no catalog.

On a keyed table it also upserts and deletes by key (docs/upserts.md).

After a publish with an unknown outcome a run publishes nothing more: the next run finds out what became of it.
A writer never deletes a file. Threads may share one: its methods run one after the other. Not for use after a fork.
"""

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema

from bookkeeper.contract.card import Card, loads
from bookkeeper.contract.column_requests import ColumnRequest
from bookkeeper.contract.names import TxlogName, check_writer, new_incarnation
from bookkeeper.contract.offsets import Offsets
from bookkeeper.contract.txlog import FORGETTING
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ColumnRefused, NotPossible, StorageUnavailable, UnknownOutcome
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from writers.files.last_of_each_key import DELETE, INSERT, UPSERT
from writers.files.operations import booleans
from writers.files.upsert_steps import LAST, NO_DELETES, NO_ROOM, files_of
from writers.files.write_spec import WriteSpec
from writers.metrics import WriterMetrics
from writers.one_at_a_time import one_at_a_time
from writers.publish.card_follower import CardFollower
from writers.publish.channel_offsets import ChannelOffsets
from writers.publish.pending_monitor import PendingMonitor
from writers.publish.publisher import Publisher, resume
from writers.publish.request_columns import ColumnAsker
from writers.publish.run_state import RunState
from writers.retries import retry
from writers.runtime import Runtime
from writers.tasks.handover import Handover
from writers.tasks.reservation import Reservation
from writers.tasks.task import Task
from writers.timing import PATIENCE, AtOnce, Clock, Wait, at_once, millis, pause, utc_now
from writers.values.given import as_table

log = logging.getLogger(__name__)

#: how old a card may be when a txlog is published: it is read beside the uploads, which can take minutes
CARD_AGE = timedelta(seconds=1)


class Writer:
    """
    One run of a writer: `with Writer.open(folder, name="ingest-7") as w: w.write(rows); w.publish(position=b"42")`.

    Leaving the `with` block publishes what is left; leaving it by an exception publishes nothing. Threads may share a
    writer: a lock lets its methods run one after the other, and a publish takes what all of them wrote.
    """

    def __init__(
        self,
        folder: str | Folder,
        name: str,
        runtime: Runtime,
        *,
        random: Callable[[int], bytes] = os.urandom,
        keep: str = LAST,
        handed: Handover | None = None,
    ) -> None:
        """As `open` and `taking_over`."""
        self.name = check_writer(name)
        self._folder = folder = runtime.folder(folder)
        clock, wait, at_once = runtime.clock, runtime.wait, runtime.at_once
        self._clock, self._wait, self._patience, self._at_once = clock, wait, runtime.patience, at_once
        self._process, self._lock, self._keep = os.getpid(), RLock(), keep
        card = None if handed is None else loads(handed.task.card)
        self._cards = CardFollower(folder, runtime.stores, name, wait, card)
        if handed is None:
            now = millis(clock())
            position, least, offsets, earlier = retry(lambda: resume(folder, self.card, name, now), wait)
            if now < least:
                log.warning("clock behind an earlier run", extra={"action": "open", "writer": name, "ms": least - now})
            last = TxlogName(name, new_incarnation(max(now, least), random(10)), 0)
        else:
            position, offsets, earlier = handed.position, handed.offsets, []
            last = handed.task.txlog.at(handed.task.sequence - 1)
        self.incarnation = last.incarnation
        self._files = files_of(self._spec, name, self.incarnation, keep, clock, wait, at_once)
        #: metrics of this run, for Prometheus
        self.figures = figures = WriterMetrics(name, self.card.table)
        ordered = None if self._spec.keyed is None else (name, self.incarnation)
        self._monitor = PendingMonitor(folder, clock, wait, at_once, self.figures, ordered, earlier)
        self._publisher = Publisher(folder, last, position, wait)
        self._offsets = ChannelOffsets(folder, self._cards, name, offsets, clock, wait, runtime.alone)
        self._columns = ColumnAsker(folder, self._cards, clock, wait, self._patience, lambda: figures.unpublished)
        self._state = RunState(f"run of {name}", hint="Open a new Writer.")
        self._reservation = Reservation(clock, handed)
        if handed is not None:
            self._state.reserve()
        # Also where the program ends, or forgets this object, without a word.
        self._left = weakref.finalize(self, _say_lost, self.figures, self._publisher, self.card.table, self._process)

    @classmethod
    def open(
        cls,
        folder: str | Folder,
        name: str,
        *,
        clock: Clock = utc_now,
        wait: Wait = pause,
        random: Callable[[int], bytes] = os.urandom,
        patience: timedelta = PATIENCE,
        stores: Callable[[str], Store] = open_store,
        at_once: AtOnce = at_once,
        keep: str = LAST,
    ) -> "Writer":
        """
        A new run of the writer `name`; `folder` is a URL or path. Every open is a new incarnation.

        `patience` bounds how long `publish` waits for a bookkeeper that is behind. What goes at once calls `clock`,
        `wait` and the stores from several threads; they may read properties of the writer, and call no method of it.
        `keep="all"` gives streams of a keyed table every version of a key, also those that a later one of the same
        step supersedes. Raises ConfigInvalid, NotPossible (no table there), StorageUnavailable.
        """
        return cls(folder, name, Runtime(stores, clock, wait, patience, at_once), random=random, keep=keep)

    @classmethod
    def taking_over(cls, folder: str | Folder, handed: Handover, runtime: Runtime | None = None) -> "Writer":
        """
        The run that was handed over: it waits for the results of its task. Raises like `open`.

        Of several processes that take one run over, one publishes; the others get Fenced.
        """
        return cls(folder, handed.task.writer, runtime or Runtime(), keep=handed.task.keep, handed=handed)

    @property
    def card(self) -> Card:
        """The table's card that this writer writes by."""
        return self._cards.card

    @property
    def _spec(self) -> WriteSpec:
        return self._cards.spec

    @property
    def position(self) -> bytes | None:
        """The last published position, also of earlier runs of this name: the source continues from here."""
        return self._publisher.position

    @property
    def may_forget(self) -> bool:
        """Whether the bookkeeper takes FORGOTTEN as an offset, as far as this run knows."""
        return FORGETTING in self.card.txlog_versions

    @property
    def offsets(self) -> Offsets:
        """What channels of a slot have reached, published by this run or earlier ones: sources continue from here."""
        return dict(self._offsets.reached)

    @one_at_a_time
    def committed_offsets(self) -> Offsets:
        """
        The offsets up to which rows are in the table: a source may be told that these are safe. Raises
        StorageUnavailable.
        """
        return self._offsets.committed(self.card.table_uuid)

    @one_at_a_time
    def look(self) -> None:
        """
        Looks, at most once a second, for what became of this run's txlogs, and of the pending ones that it goes on
        from. Raises Fenced where one with a position or offsets was rejected or given up, StorageUnavailable.
        """
        self._monitor.look()
        self._monitor.check_end()

    @property
    def all_committed(self) -> bool:
        """Whether the last `look` found in the table each txlog with a position or offsets that it looks for."""
        return self._monitor.all_committed

    @property
    def former_names(self) -> Mapping[str, int]:
        """Names that columns had while this run was going on, with their field ids: rows may still use them."""
        return self._spec.former

    @property
    def keys(self) -> list[str]:
        """The names of the key columns; none of an append-only table."""
        return [] if self._spec.keyed is None else self._spec.keyed.names

    @property
    def row_schema(self) -> Schema:
        """The columns that rows may have: all but the op- and order-column, which the writer fills."""
        filled = frozenset[int | None]() if self._spec.keyed is None else self._spec.keyed.filled
        fields = [field for field in self.card.schema.fields if field.field_id not in filled]
        return Schema(*fields, schema_id=self.card.schema.schema_id)

    @property
    def unpublished_rows(self) -> int:
        """
        Rows written since the last publish; of a keyed table the upserts and deletes, too.

        It takes no lock, so `wait` may ask for it from any thread.
        """
        self._check_process()
        return self.figures.unpublished

    @one_at_a_time
    def due(self) -> bool:
        """Whether it is time to publish: by the card's roll-after or target file size, or because the card changed."""
        since = self._files.since
        if self._state.has_tasks:
            return False
        if since is None:
            return self._offsets.due_alone
        full = self._files.full() or self._files.bytes() >= self.card.target_file_size
        return full or self._cards.newer is not None or self._to_roll(since)

    @one_at_a_time
    def write(self, rows: Any, position: bytes | None = None, offsets: Offsets | None = None) -> None:
        """
        Take rows: a pyarrow Table or RecordBatch, anything with an Arrow C stream (polars, pandas, duckdb), a dict, a
        dataclass or pydantic object, a list or generator of them, or the Path of a Parquet or Arrow file; durable after
        `publish`. A generator is read to its end, and a polars LazyFrame collected, before any row is taken.

        `position` is what the source has reached with them. Of a slot, which reads many channels, `offsets` says it
        instead: {channel: offset}, 1,000 in a publish and 2,000 in a table; all rows of it need them, {} says that
        the offset follows with later rows, and bookkeeper.contract.offsets.FORGOTTEN that a channel begins anew.
        Raises SchemaRefused, StorageUnavailable, and NotPossible for offsets that there is no room for or that the
        bookkeeper does not know, and then has taken none of the rows. Into a keyed table they are inserted: their keys
        must be new.
        """
        self._take(INSERT, rows, position, offsets)

    @one_at_a_time
    def upsert(self, rows: Any, position: bytes | None = None, offsets: Offsets | None = None) -> None:
        """
        Take rows of a keyed table, each in the place of the row with its key, if there is one; else like `write`.

        Raises NotPossible where the table is append-only.
        """
        self._take(UPSERT, rows, position, offsets)

    @one_at_a_time
    def delete(self, keys: Any, position: bytes | None = None, offsets: Offsets | None = None) -> None:
        """
        Take keys whose rows go, as rows of the key columns alone; a key without a row is no error.

        Raises NotPossible where the table is append-only, otherwise like `write`.
        """
        self._take(DELETE, keys, position, offsets)

    @one_at_a_time
    def change(
        self,
        rows: Any,
        deleted: pa.Array | Sequence[bool],
        position: bytes | None = None,
        offsets: Offsets | None = None,
    ) -> None:
        """
        Take upserts and, where the boolean `deleted` is true, deletes, in this order; of a deleted row only the keys
        count. Raises like `delete`.
        """
        self._take(UPSERT, rows, position, offsets, booleans(deleted))

    def _take(
        self,
        kind: int,
        rows: Any,
        position: bytes | None,
        offsets: Offsets | None,
        deleted: pa.Array | None = None,
    ) -> None:
        self._check()
        self._offsets.check_write(offsets, position, self._files.rows())
        table = as_table(rows, self._spec.schema)
        self._store_files()  # files that an outage left in memory must not pile up there
        open_since = self._files.open_since()
        if open_since is not None and self._to_roll(open_since):
            self.roll()
        self._check_kind(kind, table.num_rows)
        fit = lambda rows: self._files.fit(rows, self._spec, kind, deleted)  # noqa: E731
        taken = self._columns.fit(table, kind != DELETE, fit, self.roll)
        self._cards.check_keys()
        with self._state.broken_by_errors():
            finished = self._files.add(taken, self._spec, self._publisher.sequence)
        self._state.took(position)
        self._offsets.took(offsets, rows=True)
        self.figures.unpublished = self._files.rows()
        if finished:
            self._store_finished()

    def _check_kind(self, kind: int, count: int) -> None:
        """Raises NotPossible where the table, or this txlog, does not take so many operations of this kind."""
        self._files.check_kind(kind, self.card.table)
        with self._state.broken_by_errors():
            has_room = self._files.has_room(count, self._spec, self._publisher.sequence)
        if not has_room:
            raise NotPossible(NO_ROOM, hint="publish(), then go on, with fewer rows at once.")
        if self._files.deletes_fit(kind, self._spec):
            return
        self.roll()  # the bookkeeper may have set the delete spec up again
        if not self._files.deletes_fit(kind, self._spec):
            hint = (
                "publish() what was written so far. The bookkeeper sets the delete spec up again and changes the card."
            )
            raise NotPossible(NO_DELETES, hint=hint)

    @one_at_a_time
    def roll(self) -> None:
        """
        Complete the open data files, make them durable, and read the card again; raises StorageUnavailable.
        """
        self._check()
        self._finish_files()
        card, _ = self._at_once([self._cards.newest, self._store_files])
        self._cards.adopt(card, self._files.rows())

    @one_at_a_time
    def ask(self, requests: Sequence[ColumnRequest]) -> bool:
        """
        Ask for columns of a table whose schema grows on request, and wait for them; whether the card has changed.

        `write` does it for the columns of its rows. Raises Backpressure when no bookkeeper answers, and like `roll`.
        """
        self._check()
        return self._columns.ask(requests, self.roll)

    @property
    def refused_columns(self) -> Mapping[ColumnRequest, ColumnRefused]:
        """What the table was asked for in vain, and why; it is not asked for again by this run."""
        return self._columns.refused

    @one_at_a_time
    def publish(
        self, position: bytes | None = None, offsets: Offsets | None = None, alone: bool = False
    ) -> TxlogName | None:
        """
        Publish everything written since the last publish in one txlog; None when there was nothing (a position
        then stays where it is). When it returns, the rows are durable and will be in the table exactly once.

        `offsets` are what channels have reached with the rows, or over nothing (skipped, aborted). Without any rows
        they wait for some, at most an hour: then a txlog says them `alone`. That costs a commit; once it is in the
        table, nothing that an earlier run publishes gets in.

        Raises Backpressure, StorageUnavailable and WrongFolder (the folder is gone: call it again once it is back),
        Fenced and UnknownOutcome (start a new run).
        """
        self._check()
        if not self._offsets.starts_publish(offsets, position, self._files.rows(), alone):
            return None
        given = self._state.position if position is None else position
        card = self._prepare_publish()
        position = self._offsets.position(self._publisher.next_name, given, card)
        files, facts = self._files.named(), self._facts("publish")
        name = self._publisher.publish(self._spec, files, position, millis(self._clock()), self._offsets.waiting)
        self._check_age(name, card)
        self._monitor.published(name, position, self._offsets.waiting)
        self._state.published(given)
        self._offsets.published()
        self._files.clear()
        self.figures.published(files.data_files, self._clock())
        count = len(files.data) + len(files.deletes)
        log.info("txlog published", extra={**facts, "txlog": str(name), "files": count})
        self._cards.adopt(card, 0)
        return name

    def _prepare_publish(self) -> Card:
        """
        All that a txlog waits for: its data files durable and young, room in pending/, and the card of this table.

        The uploads, the listing and the card go at once. A crash here leaves data files that no txlog names.
        """
        if self._monitor.full(self.card.pending_limit):
            # Files that are finished before every wait would be many and small.
            self._monitor.look()
            self._monitor.admit(self.card.pending_limit, self._patience)
        self._finish_files()
        began = self._clock()
        card: Card
        card, _, _ = self._at_once([self._card_before_publish, self._monitor.look, self._store_files])
        self._monitor.admit(self.card.pending_limit, self._patience)
        # After everything that can take long: the orphan age counts to the publish, and the card may have changed.
        half = timedelta(milliseconds=card.orphan_age_ms / 2)
        self._files.renew(self._cards.store, half, self._spec, self._publisher.sequence)
        if not timedelta(0) <= self._clock() - began < CARD_AGE:
            card = self._card_before_publish()
        return card

    def _check_age(self, name: TxlogName, card: Card) -> None:
        """A process may stand still between the last look at the age of its files and the put of the txlog."""
        if self._files.age() > timedelta(milliseconds=card.orphan_age_ms):
            self._publisher.unknown = name
            hint = "Look at `bookkeeper rejected`: a txlog whose files are gone is there. The next run finds out."
            raise UnknownOutcome(f"{name}: its data files were past orphan-age, and may have been swept", hint=hint)

    @one_at_a_time
    def close(self) -> None:
        """End this run without publishing; says how many rows it leaves unpublished."""
        self._state.close()
        self._left()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._publisher.unknown is None and self._state.goes_on:
                self._publish_rest()
        finally:
            self.close()

    def _publish_rest(self) -> None:
        comes_again = self._state.comes_again or self._offsets.lacks_offsets
        if comes_again and self._files.rows() and not self._state.has_tasks:
            # Published without a position, these rows would come a second time from the source. `close` says it.
            return
        self.publish()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            hint = "Open a Writer in every process; each is a run of its own."
            raise NotPossible(f"this writer was opened by process {self._process}", hint=hint)

    @one_at_a_time
    def task(self) -> Task:
        """
        What other processes need to write files for the next txlog: `take` their results, or `discard` them.

        Until then this run takes no rows of its own and publishes nothing; another call gives the same task. Raises
        StorageUnavailable, and NotPossible where the table has become keyed or append-only.
        """
        if not self._state.has_tasks:
            self.roll()
            self._cards.check_keys()
            name = TxlogName(self.name, self.incarnation, self._publisher.sequence)
            self._reservation.begin(self.card, name, self._keep, self._files.orders())
            self._state.reserve()
        self._publisher.check()
        return self._reservation.current

    @one_at_a_time
    def take(self, results: Iterable[bytes], position: bytes | None = None, offsets: Offsets | None = None) -> int:
        """
        Take what tasks wrote, each result once and all of them together, as if it was written here in this order;
        returns how many rows. `position` and `offsets` are as of `write`.

        Raises NotPossible, and then has taken nothing and still waits for results.
        """
        self._publisher.check()
        self._state.check_tasks()
        self._offsets.check_write(offsets, position, self._files.rows())
        taken = self._reservation.checked(results, self._spec)
        if taken:
            self._files.add_stored(taken, self._reservation.since, self.card.data_path)
        self._state.free()
        self._state.took(position)
        self._offsets.took(offsets, rows=bool(taken))
        self.figures.unpublished = self._files.rows()
        return sum(item.operations for item in taken)

    @one_at_a_time
    def discard(self, results: Iterable[bytes] = ()) -> int:
        """
        Delete the files of results of this txlog's tasks that were not taken, and wait for results no longer; returns
        how many files. Files whose results are lost are swept by the reaper.

        Raises NotPossible, and then has deleted nothing, and StorageUnavailable: some may be deleted.
        """
        self._publisher.check()
        self._state.check_goes_on()
        name = TxlogName(self.name, self.incarnation, self._publisher.sequence)
        keys = self._reservation.to_delete(results, name, self._spec, self._files.paths())
        if self._state.has_tasks:
            self._state.free()
        return retry(partial(self._cards.store.delete_many, keys), self._wait)

    @one_at_a_time
    def hand_over(self) -> Handover:
        """
        End this run here, so that another process goes on with it by `taking_over`: it takes the results of `task()`.

        Offsets that wait for rows are not handed over: they moved over nothing, so the source is read again there.
        Raises NotPossible where no results are waited for, or rows were written since the last publish.
        """
        self._publisher.check()
        self._state.check_tasks()
        if self._files.rows():
            raise NotPossible(f"{self._files.rows()} rows are not published: a run is handed over without rows")
        self.close()
        position, offsets = self._publisher.position, self._offsets.reached
        return Handover(self._reservation.current, position, self._reservation.since, offsets)

    def _check(self) -> None:
        self._check_process()
        self._publisher.check()
        self._state.check()

    def _to_roll(self, since: datetime) -> bool:
        return millis(self._clock()) - millis(since) >= self.card.roll_after_ms

    def _finish_files(self) -> None:
        with self._state.broken_by_errors():
            self._files.finish(self._spec, self._publisher.sequence)

    def _store_files(self) -> None:
        self._files.store(self._cards.store)

    def _card_before_publish(self) -> Card:
        return self._cards.before_publish(self._files.rows())

    def _store_finished(self) -> None:
        try:
            card, _ = self._at_once([self._cards.newest, self._store_files])
            if card != self.card:
                self.roll()
        except StorageUnavailable as exc:
            # The rows are taken; the next write or publish tries again and raises before it takes more.
            log.warning("data file not stored yet", extra={**self._facts("keep"), "cause": str(exc)})

    def _facts(self, action: str) -> dict[str, Any]:
        return {"action": action, "table": self.card.table, "writer": self.name, "rows": self._files.rows()}


def _say_lost(figures: WriterMetrics, publisher: Publisher, table: str, process: int) -> None:
    # After a publish with an unknown outcome it is not known; a forked process has a copy of rows of its parent.
    if not figures.unpublished or publisher.unknown is not None or os.getpid() != process:
        return
    facts = {"action": "leave", "table": table, "writer": figures.writer, "rows": figures.unpublished}
    # In the text too: where a program has set no log up, only that reaches stderr.
    text = "%d unpublished rows of the writer %s were given up: write and publish them again"
    log.warning(text, figures.unpublished, figures.writer, extra=facts)
