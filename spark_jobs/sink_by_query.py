"""
The sink of a job: its writer is named by the query's id, so each copy of a checkpoint has the same name and is refused.

A checkpoint may go on through txlogs where Iceberg's own sink has committed before, and the reverse. Each of the two
sinks recognises only its own batches, so between them the last batch would be in the table twice: the driver was killed
behind the commit, and before Spark's `commits/<batch>`. Iceberg's sink says in the summary of its snapshot which batch
of which query it holds, the txlog in its position.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.errors import BookkeeperError, Missing, NotPossible
from spark_jobs import table as tables
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.sink_position import QueryCheckpoint
from writers.retries import retry
from writers.timing import pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bookkeeper.contract.txlog_folder import Folder
    from bookkeeper.history.checkpoint_store import CheckpointReading
    from spark_jobs.sink import Sink

log = logging.getLogger(__name__)

_ONCE_MORE = (
    "Start the query once with --commit by-bookkeeper, end it by SIGTERM, then start it with --commit by-spark."
)


def name_of(query: str) -> str:
    """The name of the writer of a query that is given none."""
    return f"spark-{query}"


class SinkByQuery:
    """
    A function for `foreachBatch`: `opened` makes its sink of the name of a writer, at the first batch of a run.

    It leaves out batches up to the last one that Iceberg's sink committed to `table` (catalog.namespace.name).
    """

    def __init__(
        self, spark: SparkSession, table: str, checkpoint: str, opened: Callable[[str], Sink], name: str | None = None
    ) -> None:
        """Raises ConfigInvalid, as `opened` does."""
        self._spark, self._table, self._checkpoint = spark, table, checkpoint
        self._opened, self._name = opened, name
        self._sink = opened(name or name_of("unknown"))  # what is wrong with its options is said before the query runs
        self._by_spark: int | None = None
        #: what ended the query, where the sink raised it: Spark shows the stack of its own error
        self.error: BookkeeperError | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """The rows are in the table, once, when it returns; raises as the sink."""
        try:
            self._give(rows, batch)
        except BookkeeperError as exc:
            self.error = exc
            raise

    def _give(self, rows: DataFrame, batch: int) -> None:
        if self._by_spark is None:
            query = retry(QueryCheckpoint(HadoopCheckpointStore(self._spark, self._checkpoint)).query, pause)
            self._sink = self._opened(self._name or name_of(query))
            self._by_spark = last_by_spark(self._spark, self._table, query)
        if batch <= self._by_spark:
            facts = {"action": "skip", "table": self._table, "batch": batch}
            log.info("batch was committed by Spark", extra=facts)
            return
        self._sink(rows, batch)


def last_by_spark(spark: SparkSession, table: str, query: str) -> int:
    """
    The newest batch of a query that Iceberg's sink committed to main, as far back as snapshots are kept; else -1.
    """
    found = spark.sql(
        "SELECT snapshot_id, CAST(summary['spark.sql.streaming.epochId'] AS BIGINT) AS batch "
        f"FROM {table}.snapshots WHERE summary['spark.sql.streaming.queryId'] = '{query}'"
    ).collect()
    batches = {row.snapshot_id: row.batch for row in found if row.batch is not None}
    if not batches:  # as of most queries: the history is not read
        return -1
    kept = {snapshot.snapshot_id for snapshot in tables.main_history(spark, table)}
    return max((batch for snapshot, batch in batches.items() if snapshot in kept), default=-1)


def check_by_spark(store: CheckpointReading, folder: Folder) -> None:
    """
    Raises NotPossible where Spark would give Iceberg's sink a batch that is in a txlog, whatever its writer's name.
    """
    planned, done = _newest(store, "offsets/"), _newest(store, "commits/")
    if planned == done:
        return
    given = QueryCheckpoint(store).position(planned, None).encoded()
    writer = retry(partial(_writer_at, folder, given), pause)
    if writer is not None:
        why = f"batch {planned} of the query is in a txlog of the writer {writer}; Iceberg's sink would append it again"
        raise NotPossible(why, hint=_ONCE_MORE)


def _writer_at(folder: Folder, position: bytes) -> str | None:
    """The writer that has published up to this position; None where it is no writer's."""
    from writers.publish.publisher import with_positions

    try:
        card = folder.card()
    except Missing:
        return None  # no writer
    # First pending/, then the marks: what is committed in between is in the marks.
    pending = with_positions(folder, card, {found.name: found.size for found in folder.pending()})
    copy = folder.marks()
    ends = {} if copy is None else {name: marks.position for name, marks in copy.marks.writers.items()}
    ends |= {item.name.writer: item.position for item in pending if item.position == position}
    return next((name for name, end in ends.items() if end == position), None)


def _newest(store: CheckpointReading, folder: str) -> int:
    """The newest batch that the checkpoint has there; -1 where it has none."""
    names = (item.key.removeprefix(folder) for item in retry(lambda: [*store.list(folder)], pause))
    return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=-1)
