"""
Publishes each micro-batch of a query in one txlog, once; no Spark in it.

What a crash leaves at each step of a batch, and what cleans it up. Behind all of them Spark gives the batch again:

    read the checkpoint, open the writer, wait for its chain   nothing is stored
    the tasks     data files that no txlog names, the last one torn: the orphan sweep, by their age
    take          the same
    publish       before the txlog's create the same; after it a pending txlog, which the next run finds at the end of
                  the chain and waits for: no task runs again
    wait          a pending txlog, or one that is in: the same. One that is rejected breaks the chain, so the batch is
                  written again
    return        before Spark's commits/<batch> the same, by the position in the marks; after it the batch is never
                  given again, and its txlog is in
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from bookkeeper.errors import NotPossible
from spark_jobs.arrival import Arrival
from spark_jobs.sink_position import BatchPosition, QueryCheckpoint
from spark_jobs.sink_upserts import Upserts, written
from writers.timing import AtOnce, Clock, Wait, at_once, pause, retry, utc_now

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from bookkeeper.contract.txlog_folder import Folder
    from bookkeeper.history.checkpoint_store import CheckpointReading
    from bookkeeper.stores.store import Store
    from writers.tasks.task import Task
    from writers.writer import Writer

log = logging.getLogger(__name__)

#: runs a task for each part of the batch, and gives the results of those that had rows
RunTasks = Callable[["Task"], Iterable[bytes]]
_AGAIN = "Start the query again with its checkpoint: it gives the batch again. `bookkeeper rejected` says more."
_AWAY = "Is the bookkeeper running? Start the query again: it goes on waiting, and writes no row twice."
_ONCE = (
    "Call the sink once for each batch, with all of its rows (union them): of a second call nothing would be written. "
    "Two outputs into one table need a sink each, with names of their own."
)
_KEYED = "Give into(..., mode='upsert')."
_NOT_KEYED = "Give into(..., mode='append'), or make a keyed table: `bookkeeper init --key`."


class BatchPublisher:
    """
    The driver's side of a sink: one Writer for each run of a query, opened at its first batch.

    An error ends that writer: the next batch begins with what is stored. A batch is done when its txlog is in the
    table, as it would be with a sink that commits by itself: a txlog that is rejected is raised in its own batch.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        checkpoint: CheckpointReading,
        *,
        patience: timedelta,
        stores: Callable[[str], Store],
        changes: Upserts | None = None,
        clock: Clock = utc_now,
        wait: Wait = pause,
        random: Callable[[int], bytes] = os.urandom,
        at_once: AtOnce = at_once,
    ) -> None:
        """
        `patience` bounds each wait for the bookkeeper: for room in pending/, and for a txlog to be in. Without
        `changes` rows are appended.
        """
        self._changes = changes
        self._url, self._name, self._checkpoint = folder, name, QueryCheckpoint(checkpoint)
        self._patience, self._stores, self._clock, self._wait = patience, stores, clock, wait
        self._random, self._at_once = random, at_once
        # A query that was stopped may still be in its last batch while the next run has begun.
        self._lock = RLock()
        self._run: str | None = None
        self._writer: Writer | None = None
        self._folder: Folder | None = None
        #: the chain of this writer ends here, and was compared with the checkpoint
        self._compared: bytes | None = None
        #: run and number of the batch that was done last
        self._last: tuple[str | None, int] | None = None

    def publish(
        self,
        batch: int,
        columns: pa.Schema,
        tasks: RunTasks,
        *,
        helpers: Collection[str] = (),
        query: str | None = None,
        run: str | None = None,
    ) -> int:
        """
        The rows that `tasks` write, once in the table when it returns; how many, 0 for a batch that was in before.

        `query` is the id of the query, where it is known, and `run` names its run. Of upserts, `helpers` are columns
        that are written only where the table has them. A batch without rows publishes nothing. Raises NotPossible (a
        checkpoint that is not the one the table was written by, a table that does not take rows this way),
        SchemaRefused, Backpressure, Fenced, UnknownOutcome and StorageUnavailable; Spark gives the batch again after
        each of them.
        """
        with self._lock:
            try:
                given = retry(partial(self._checkpoint.position, batch, query), self._wait)
                return self._published(given, columns, helpers, tasks, run)
            except BaseException:
                self._end()
                raise

    def _published(
        self, given: BatchPosition, columns: pa.Schema, helpers: Collection[str], tasks: RunTasks, run: str | None
    ) -> int:
        if run is not None and self._last == (run, given.batch):
            raise NotPossible(f"batch {given.batch} was given twice in one run of {given.query}", hint=_ONCE)
        writer, position = self._opened(run), given.encoded()
        if self._checkpoint.has_published(writer.position, given, self._name):
            log.info("batch is published", extra={"action": "skip", "writer": self._name, "position": str(given)})
            self._arrival(writer).until_chain_is_in()
            self._last = run, given.batch
            return 0
        if writer.position is not None and writer.position != self._compared:
            retry(partial(self._checkpoint.check_planned, writer.position, self._name), self._wait)
            self._arrival(writer).until_chain_is_in()
        # Refuses rows that the tasks would refuse, and asks for columns.
        if self._changes is None:
            writer.write(columns.empty_table())
        else:
            writer.upsert(written(columns, writer.card, helpers).empty_table())
        rows = writer.take(tasks(writer.task()), position=position)
        name = writer.publish()
        if name is not None:
            self._arrival(writer).until_in(name)
        self._compared, self._last = writer.position, (run, given.batch)
        return rows

    def _opened(self, run: str | None) -> Writer:
        """The writer of this run."""
        from bookkeeper.contract.txlog_folder import Folder
        from writers.writer import Writer

        if self._writer is not None and self._run == run:
            return self._writer
        self._end()
        self._folder = Folder(self._stores(self._url))
        self._writer = Writer.open(
            self._folder,
            self._name,
            clock=self._clock,
            wait=self._wait,
            random=self._random,
            patience=self._patience,
            stores=self._stores,
            at_once=self._at_once,
        )
        self._run = run
        table, keys = self._writer.card.table, ", ".join(self._writer.keys)
        if keys and self._changes is None:
            raise NotPossible(f"mode='append', and {table} is keyed by {keys}", hint=_KEYED)
        if not keys and self._changes is not None:
            raise NotPossible(f"mode='upsert', and {table} has no key", hint=_NOT_KEYED)
        return self._writer

    def _arrival(self, writer: Writer) -> Arrival:
        assert self._folder is not None
        return Arrival(
            self._folder,
            writer,
            patience=self._patience,
            clock=self._clock,
            wait=self._wait,
            behind=_AWAY,
            again=_AGAIN,
        )

    def _end(self) -> None:
        writer, self._writer, self._compared, self._last = self._writer, None, None, None
        if writer is not None:
            writer.close()
