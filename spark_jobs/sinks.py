"""
The outputs of read_stream: `console`, `noop` and `table:namespace.name`, for the first batch and for the stream.

The batch of a table sink is one commit, whose summary names it: a crash before it leaves files that nothing names, and
after it the next run finds the name. It is looked for among the commits since the batch was planned: where those are
expired, nothing tells whether the rows are in, and nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs import query
from spark_jobs import table as tables
from spark_jobs.begin import Has, Output, Unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bookkeeper.history.main_history import MainHistory
    from spark_jobs.begin import Beginning
    from spark_jobs.begin_hold import Clock
    from spark_jobs.begin_plan import Plan

#: in the summary of a commit: the id of the batch that it holds. Not `bookkeeper.`: by that a bookkeeper knows its own
MARK = "bookkeeper-begin"
_PLAIN = ("console", "noop")
_TABLE = "table:"


def checked(sink: str, catalog: str) -> str | None:
    """
    The table (catalog.namespace.name) of a table sink, None for another one; raises ConfigInvalid.
    """
    if sink in _PLAIN:
        return None
    if not sink.startswith(_TABLE):
        raise ConfigInvalid(f"--sink {sink}: console, noop or table:namespace.name is expected")
    identifier = sink.removeprefix(_TABLE)
    namespace, _, name = identifier.rpartition(".")
    if not namespace or not name:
        raise ConfigInvalid(f"--sink {sink}: table:namespace.name is expected")
    return f"{catalog}.{identifier}"


def output_of(spark: SparkSession, sink: str, catalog: str) -> Output:
    """
    What tells whether the sink has a first batch; raises ConfigInvalid.
    """
    table = checked(sink, catalog)
    return Unknown() if table is None else TableOutput(spark, table)


@dataclass(frozen=True)
class TableOutput:
    """An Iceberg table (catalog.namespace.name) that may not be there yet."""

    spark: SparkSession
    table: str

    @property
    def anew(self) -> str:
        return f"DROP TABLE {self.table}, or take another --sink; and take a new --checkpoint."

    def note(self) -> int | None:
        """The head of the table before the batch."""
        history = self._history()
        return history.snapshots[-1].snapshot_id if history and history.snapshots else None

    def has(self, plan: Plan | None) -> Has | None:
        """Whether a commit since the plan was made has its rows; raises NotPossible when that is expired."""
        history = self._history() if plan is not None and plan.batch else None
        if plan is None or history is None:
            return None
        for item in reversed(history.snapshots):
            if item.summary is not None and item.summary.additional_properties.get(MARK) == plan.id:
                return Has(plan.snapshot)
            if item.snapshot_id == plan.note:
                return None
        self._check_known(history, plan)
        return None

    def _check_known(self, history: MainHistory, plan: Plan) -> None:
        if not history.is_whole:
            raise NotPossible(
                f"nothing tells any more whether {self.table} has the rows of snapshot {plan.snapshot}: its commits "
                "since the first batch was begun are expired",
                hint="Take a new table and a new checkpoint. Where its rows can be counted by hand and are not in, "
                "remove bookkeeper-begin.json from the checkpoint.",
            )

    def _history(self) -> MainHistory | None:
        from bookkeeper.history.main_history import MainHistory

        if not self.spark.catalog.tableExists(self.table):
            return None
        return MainHistory(tables.metadata(self.spark, tables.load(self.spark, self.table)))


def write(
    first: Beginning, sink: str, catalog: str, clock: Clock, report: query.Report = lambda progress: None
) -> None:
    """
    The rows of a first batch into the sink, if there are any to write, and `done`; raises ConfigInvalid.

    It is reported as micro-batch -1.
    """
    if first.rows is None:
        return
    table, began = checked(sink, catalog), clock()
    if table is None:
        first.rows.write.format(sink).mode("append").save()
    else:
        _make(first.rows, table)
        marked = first.rows.writeTo(table).option(f"snapshot-property.{MARK}", first.id)
        marked.option("check-nullability", "false").option("fanout-enabled", "true").append()
    first.done()
    report(query.first_batch(first.id, first.count, began, clock()))


def _make(rows: DataFrame, table: str) -> None:
    """The table in the columns of the rows, as `toTable` makes it; a crash behind it leaves it empty."""
    spark = rows.sparkSession
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
    if not spark.catalog.tableExists(table):
        rows.limit(0).writeTo(table).using("iceberg").create()


def _check_one_source(rows: DataFrame) -> None:
    leaves: Any = rows._jdf.queryExecution().analyzed().collectLeaves()
    streams = sum(leaves.apply(number).isStreaming() for number in range(leaves.size()))
    if streams > 1:
        raise NotPossible(
            f"the query reads {streams} streams, and its checkpoint says of one where it begins",
            hint="Give each table a query and a checkpoint of its own.",
        )


def start(rows: DataFrame, sink: str, catalog: str, checkpoint: str, trigger: str) -> StreamingQuery:
    """
    Start the query of `rows` into the sink (a table is made if it is missing); raises ConfigInvalid, and NotPossible
    for more than one source: only of the first one the checkpoint says where it begins.

    With `available-now` Spark's own trigger reads at most 2^31 - 1 rows past the query's first offset, ever:
    `drain.drain` has no such limit.
    """
    _check_one_source(rows)
    table = checked(sink, catalog)
    writer = rows.writeStream.trigger(**query.trigger(trigger)).option("checkpointLocation", checkpoint)
    if table is None:
        return writer.format(sink).start()
    rows.sparkSession.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
    return query.append_to(writer, table)
