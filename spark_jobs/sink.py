"""
Writes a query of your own through txlogs: `query.writeStream.foreachBatch(into(folder, name=..., checkpoint=...))`.

The tasks write the data files, the driver publishes one txlog for each micro-batch, and the bookkeeper commits it: no
commit of Spark's own, so it conflicts with no other writer. Both sides need the txlog folder and this package, no
catalog.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from bookkeeper.core.names import check_writer
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.sink_batches import BatchPublisher
from writers.timing import Clock, Wait, pause, utc_now

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from bookkeeper.stores.store import Store
    from writers.tasks.task import Task

    Stores = Callable[[str], Store]

PATIENCE = timedelta(minutes=5)
_MODE = "Take outputMode('append'), for an aggregation with a watermark."
_CONNECT = "Run the query in a driver of its own (spark-submit), without Spark Connect."


def into(
    folder: str,
    *,
    name: str,
    checkpoint: str,
    mode: str = "append",
    patience: timedelta = PATIENCE,
    stores: Stores | None = None,
    clock: Clock = utc_now,
    wait: Wait = pause,
) -> Sink:
    """
    A function for `foreachBatch` that appends each micro-batch to the table of the txlog folder, exactly once.

    `folder` is a URL or path, as of `Writer.open`; `name` the writer's, one for each query; `checkpoint` the query's
    `checkpointLocation`. Columns are matched by name; those that the rows lack are null. `patience` bounds how long a
    batch waits for a bookkeeper that is behind. `stores` opens storage in the driver and in the tasks, so it must be
    possible to pickle it. Raises ConfigInvalid.
    """
    from bookkeeper.stores.open import open_store

    if mode != "append":
        raise ConfigInvalid(f"mode={mode!r}: 'append' is expected")
    return Sink(check_writer(name), checkpoint, _absolute(folder), patience, stores or open_store, clock, wait)


def _absolute(folder: str) -> str:
    return folder if ":" in folder else os.path.abspath(folder)


class Sink:
    """What `into` makes: it is called with each micro-batch and its number, in the driver."""

    def __init__(
        self, name: str, checkpoint: str, folder: str, patience: timedelta, stores: Stores, clock: Clock, wait: Wait
    ) -> None:
        self._name, self._location, self._folder, self._patience = name, checkpoint, folder, patience
        self._stores, self._clock, self._wait = stores, clock, wait
        self._publisher: BatchPublisher | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """
        The rows are in the table, once, when it returns. Raises as `BatchPublisher.publish`: then the query ends, and
        gives the batch again when it is started with its checkpoint.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        context = rows.sparkSession.sparkContext
        if self._publisher is None:
            self._publisher = self._made(rows)
        columns = to_arrow_schema(rows.schema)
        # Spark sets both in the thread of the query; the group of its jobs is the id of the run.
        query, run = (context.getLocalProperty(key) for key in ("sql.streaming.queryId", "spark.jobGroup.id"))
        if query:
            _check_mode(rows.sparkSession, query)
        tasks = partial(results_of, rows, stores=self._stores)
        self._publisher.publish(batch, columns, tasks, query=query, run=run)

    def _made(self, rows: DataFrame) -> BatchPublisher:
        return BatchPublisher(
            self._folder,
            self._name,
            HadoopCheckpointStore(rows.sparkSession, self._location),
            patience=self._patience,
            stores=self._stores,
            clock=self._clock,
            wait=self._wait,
        )

    def __reduce__(self) -> Any:
        raise NotPossible("a sink belongs to one driver, and cannot be sent to another process", hint=_CONNECT)


def _check_mode(spark: SparkSession, query: str) -> None:
    """Raises NotPossible where each batch holds all rows of the query so far."""
    jvm: Any = spark.sparkContext._jvm
    shared: Any = spark._jsparkSession.sharedState()  # sessions of queries are copies: only this knows the query
    running = shared.activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    if running is not None and str(running.outputMode().toString()) == "Complete":
        raise NotPossible("the query has the output mode complete: each batch would append all of its rows", hint=_MODE)


def results_of(rows: DataFrame, task: Task, *, stores: Stores) -> list[bytes]:
    """
    Run one task for each partition that has rows; what they wrote, for `Writer.take`.

    It is `rows.mapInArrow(...)`, of which Spark asks for pandas without using it.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    write = UserDefinedFunction(
        lambda batches: _written(task, stores, batches),
        returnType="result binary",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column: Any = write(*(rows[f"`{name.replace('`', '``')}`"] for name in rows.columns))
    made: Any = rows._jdf.mapInArrow(column._jc, False, None)
    return [bytes(row.result) for row in DataFrame(made, rows.sparkSession).collect()]


def _written(task: Task, stores: Stores, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task of Spark: one row with its result, none where it has no rows."""
    import pyarrow as pa

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    with task.open(stores=stores) as files:
        for batch in chain([first], filled):
            files.write(batch)
    yield pa.RecordBatch.from_pydict({"result": pa.array([files.result], pa.binary())})
