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
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from bookkeeper.errors import NotPossible
from spark_jobs.arrival import Arrival
from spark_jobs.rows import check
from spark_jobs.sink_position import BatchPosition, QueryCheckpoint
from writers.retries import retry

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from bookkeeper.contract.names import TxlogName
    from bookkeeper.contract.txlog_folder import Folder
    from bookkeeper.history.checkpoint_store import CheckpointReading
    from spark_jobs.sink_upserts import Upserts
    from writers.runtime import Runtime
    from writers.tasks.task import Task
    from writers.writer import Writer

log = logging.getLogger(__name__)

#: runs a task for each part of the batch, and gives the results of those that had rows
RunTasks = Callable[["Task"], Iterable[bytes]]
_AGAIN = "Start the query again with its checkpoint: it gives the batch again. `bookkeeper rejected` says more."
_AWAY = "Is the bookkeeper running? Start the query again: it goes on waiting, and writes no row twice."
_PENDING = "Start the query once they are in the table, or rejected: `bookkeeper status` tells."
_ONCE = (
    "Call the sink once for each batch, with all of its rows (union them): of a second call nothing would be written. "
    "Two outputs into one table need a sink each, with names of their own."
)


def _told(names: Sequence[TxlogName]) -> str:
    return f"{len(names)} txlogs ({', '.join(map(str, names[:5]))}{', ...' * (len(names) > 5)})" if names else "none"


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
        runtime: Runtime,
        *,
        changes: Upserts | None = None,
        take_over: str | None = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """
        The patience of `runtime` bounds each wait for the bookkeeper: for room in pending/, and for a txlog to be in.
        Without `changes` rows are appended. `take_over` is the position of another source at which the chain of this
        name ends: the query goes on behind it.
        """
        self._take_over = None if take_over is None else take_over.encode()
        self._changes, self._runtime, self._random = changes, runtime, random
        self._url, self._name, self._checkpoint = folder, name, QueryCheckpoint(checkpoint)
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
                given = retry(partial(self._checkpoint.position, batch, query), self._runtime.wait)
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
        if self._takes_over(writer, given):
            self._compared = writer.position
        elif self._checkpoint.has_published(writer.position, given, self._name):
            log.info("batch is published", extra={"action": "skip", "writer": self._name, "position": str(given)})
            self._arrival(writer).until_chain_is_in()
            self._last = run, given.batch
            return 0
        if writer.position is not None and writer.position != self._compared:
            retry(partial(self._checkpoint.check_planned, writer.position, self._name), self._runtime.wait)
            self._arrival(writer).until_chain_is_in()
        check(writer, columns, self._changes, helpers)
        rows = writer.take(tasks(writer.task()), position=position)
        name = writer.publish()
        if name is not None:
            self._arrival(writer).until_in(name)
        self._compared, self._last = writer.position, (run, given.batch)
        return rows

    def _takes_over(self, writer: Writer, given: BatchPosition) -> bool:
        """
        Whether the chain ends where `take_over` says, which is another source's; once, for it ends elsewhere then.

        Raises NotPossible while any of its txlogs is pending.
        """
        if writer.position is None or writer.position != self._take_over or given.is_of(writer.position):
            return False
        assert self._folder is not None
        found = (retry(act, self._runtime.wait) for act in (self._folder.pending, self._folder.rejected))
        pending, rejected = ([item.name for item in items if item.name.writer == self._name] for items in found)
        if pending:
            raise NotPossible(f"{_told(pending)} of the writer {self._name} are pending", hint=_PENDING)
        facts = {"action": "take over", "writer": self._name, "position": str(given), "rejected": len(rejected)}
        log.warning("the query goes on behind %s; rejected: %s", self._take_over, _told(rejected), extra=facts)
        return True

    def _opened(self, run: str | None) -> Writer:
        """The writer of this run."""
        from writers.writer import Writer

        if self._writer is not None and self._run == run:
            return self._writer
        self._end()
        self._folder = self._runtime.folder(self._url)
        self._writer = Writer(self._folder, self._name, self._runtime, random=self._random)
        self._run = run
        return self._writer

    def _arrival(self, writer: Writer) -> Arrival:
        assert self._folder is not None
        return Arrival(self._folder, writer, self._runtime, behind=_AWAY, again=_AGAIN)

    def _end(self) -> None:
        writer, self._writer, self._compared, self._last = self._writer, None, None, None
        if writer is not None:
            writer.close()
