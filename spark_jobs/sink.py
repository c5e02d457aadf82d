"""
Writes a query of your own through txlogs: `query.writeStream.foreachBatch(into(folder, name=..., checkpoint=...))`.

The tasks write the data files, the driver publishes one txlog for each micro-batch, and the bookkeeper commits it: no
commit of Spark's own, so it conflicts with no other writer. Both sides need the txlog folder and this package, no
catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bookkeeper.contract.names import check_writer
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.stores.locations import absolute
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.rows import result_of
from spark_jobs.sink_batches import BatchPublisher
from spark_jobs.sink_spread import spread
from spark_jobs.sink_upserts import Arranged, Upserts, arranged, helpers_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from bookkeeper.stores.store import Store
    from writers.runtime import Runtime
    from writers.tasks.task import Task

    Stores = Callable[[str], Store]

#: of Iceberg's `write.distribution-mode`
NONE, HASH = "none", "hash"
_MODE = "Take outputMode('append'), for an aggregation with a watermark, or a keyed table and mode='upsert'."
_CONNECT = "Run the query in a driver of its own (spark-submit), without Spark Connect."


def into(
    folder: str,
    *,
    name: str,
    checkpoint: str,
    mode: str = "append",
    order_by: str | Sequence[str] | None = None,
    deletes: str | None = None,
    distribution: str = NONE,
    runtime: Runtime | None = None,
) -> Sink:
    """
    A function for `foreachBatch` that writes each micro-batch to the table of the txlog folder, exactly once.

    `folder` is a URL or path, as of `Writer.open`; `name` the writer's, one for each query; `checkpoint` the query's
    `checkpointLocation`. Columns are matched by name; those that the rows lack are null. `runtime` says how storage is
    reached, in the driver and in the tasks, and how long a batch waits for a bookkeeper that is behind
    (`Runtime(patience=...)`); its stores are pickled.

    `mode="upsert"` is for a keyed table: of each key the batch's newest row by `order_by` (columns or expressions, null
    is the oldest) takes the place of the table's row; without `order_by` a batch may hold each key once. Where the
    boolean `deletes` (a column or an expression) is true, the row deletes its key. A column that either refers to
    is written only if the table has it.

    `distribution="hash"`: rows that are appended are moved by the table's partition before they are written, so that
    there is a file of each partition; with "none" each task writes one of each partition that it has rows of. The names
    are those of Iceberg's `write.distribution-mode`. Raises ConfigInvalid.
    """
    from writers.runtime import Runtime

    way = _checked(mode, order_by, deletes, distribution)
    return Sink(check_writer(name), checkpoint, absolute(folder), way, runtime or Runtime())


def write(
    rows: DataFrame,
    folder: str,
    *,
    name: str | None = None,
    position: str | None = None,
    mode: str = "append",
    order_by: str | Sequence[str] | None = None,
    deletes: str | None = None,
    distribution: str = NONE,
    runtime: Runtime | None = None,
) -> int:
    """
    Write the rows of a batch to the table of the txlog folder, in one txlog; they are in the table when it returns. How
    many (of upserts one for each key), 0 where an earlier run of the job wrote them: then no task runs.

    `position` names what the job writes, such as the day that it is of: with it, and a `name` for the writer, rows are
    in the table once however often the job is run again, by the last position of the name; without it, each time. The
    rest is as of `into`, and so are the errors, with those of `batch_write.begin` and `commit`.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from spark_jobs.batch_write import Target, begin
    from writers.runtime import Runtime

    way = _checked(mode, order_by, deletes, distribution)
    _check_frame(rows)
    target = Target(absolute(folder), runtime or Runtime(), name, position)
    job = begin(target, to_arrow_schema(rows.schema), way.changes, helpers_of(rows, way.changes))
    if job.handed is None:
        return 0
    return job.commit(results_of(rows, job.handed.task, way, target.runtime.stores))


class Way(NamedTuple):
    """How rows get into a table: upserted by `changes`, else appended; `spread` over the tasks by partition."""

    changes: Upserts | None = None
    spread: bool = False


def _checked(mode: str, order_by: str | Sequence[str] | None, deletes: str | None, distribution: str) -> Way:
    """Raises ConfigInvalid."""
    if mode not in ("append", "upsert"):
        raise ConfigInvalid(f"mode={mode!r}: 'append' or 'upsert' is expected")
    if distribution not in (NONE, HASH):
        raise ConfigInvalid(f"distribution={distribution!r}: {NONE!r} or {HASH!r} is expected")
    if mode == "append" and (order_by is not None or deletes is not None):
        raise ConfigInvalid("order_by= and deletes= say how rows are upserted: mode is 'append'")
    if mode == "append":
        return Way(None, distribution == HASH)
    if distribution == HASH:
        raise ConfigInvalid("distribution= says how rows are appended: mode='upsert' moves them by key")
    return Way(Upserts((order_by,) if isinstance(order_by, str) else tuple(order_by or ()), deletes))


def _check_frame(rows: DataFrame) -> None:
    """Raises NotPossible for what is not the rows of a batch in this driver."""
    from pyspark.sql.classic.dataframe import DataFrame as Here

    if not isinstance(rows, Here):
        raise NotPossible("the rows are of Spark Connect, and this is not their driver", hint=_CONNECT)
    if rows.isStreaming:
        raise NotPossible("the rows are a stream", hint="rows.writeStream.foreachBatch(into(...))")


class Sink:
    """What `into` makes: it is called with each micro-batch and its number, in the driver."""

    def __init__(self, name: str, checkpoint: str, folder: str, way: Way, runtime: Runtime) -> None:
        self._name, self._location, self._folder = name, checkpoint, folder
        self._way, self._runtime = way, runtime
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
        if query and self._way.changes is None:
            _check_mode(rows.sparkSession, query)
        tasks = partial(results_of, rows, way=self._way, stores=self._runtime.stores)
        helpers = helpers_of(rows, self._way.changes)
        self._publisher.publish(batch, columns, tasks, helpers=helpers, query=query, run=run)

    def _made(self, rows: DataFrame) -> BatchPublisher:
        checkpoint = HadoopCheckpointStore(rows.sparkSession, self._location)
        return BatchPublisher(self._folder, self._name, checkpoint, self._runtime, changes=self._way.changes)

    def __reduce__(self) -> Any:
        raise NotPossible("a sink belongs to one driver, and cannot be sent to another process", hint=_CONNECT)


def _check_mode(spark: SparkSession, query: str) -> None:
    """Raises NotPossible where each batch holds all rows of the query so far."""
    jvm: Any = spark.sparkContext._jvm
    shared: Any = spark._jsparkSession.sharedState()  # sessions of queries are copies: only this knows the query
    running = shared.activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    if running is not None and str(running.outputMode().toString()) == "Complete":
        raise NotPossible("the query has the output mode complete: each batch would append all of its rows", hint=_MODE)


def results_of(rows: DataFrame, task: Task, way: Way, stores: Stores) -> list[bytes]:
    """
    Run one task for each partition that has rows; what they wrote, for `Writer.take`.

    It is `rows.mapInArrow(...)`, of which Spark asks for pandas without using it.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    from bookkeeper.contract import card as cards

    where: Arranged | None = None
    if way.changes is not None:
        rows, where = arranged(rows, cards.loads(task.card), way.changes)
    elif way.spread:
        rows = spread(rows, cards.loads(task.card))
    write = UserDefinedFunction(
        lambda batches: _written(task, stores, where, batches),
        returnType="result binary",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column: Any = write(*(rows[f"`{name.replace('`', '``')}`"] for name in rows.columns))
    made: Any = rows._jdf.mapInArrow(column._jc, False, None)
    return [bytes(row.result) for row in DataFrame(made, rows.sparkSession).collect()]


def _written(
    task: Task, stores: Stores, where: Arranged | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task of Spark: one row with its result, none where it has no rows."""
    import pyarrow as pa

    result = result_of(batches, partial(task.open, stores=stores), where)
    if result:
        yield pa.RecordBatch.from_pydict({"result": pa.array([result], pa.binary())})
