"""
Writes a Spark stream into a table: through txlogs, which the bookkeeper commits (`sink`), or by Iceberg's own sink.

With Iceberg's sink Spark commits the snapshots itself (its checkpoint makes them exactly once); the bookkeeper's guard
sees them and builds its next commit on top. Rows that Spark commits carry no marks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import load_settings, pick_table
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract.names import check_writer
from bookkeeper.errors import ConfigInvalid, Missing, NotPossible
from spark_jobs import job, query, session
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.sink import HASH, NONE, into
from spark_jobs.sink_by_query import SinkByQuery, check_by_spark
from spark_jobs.table import location
from spark_jobs.write_stream_source import EXPECTED, Source
from writers.retries import retry
from writers.timing import pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from bookkeeper.config.settings import Settings
    from bookkeeper.contract.card import Card
    from bookkeeper.contract.txlog_folder import Folder

BY_BOOKKEEPER, BY_SPARK = "by-bookkeeper", "by-spark"
_NO_CARD = "Run `bookkeeper init`, or let Spark commit: --commit by-spark."


def start(rows: DataFrame, table: str, checkpoint: str, trigger: str) -> StreamingQuery:
    """
    Append the stream to `table` (catalog.namespace.name) by Iceberg's sink, one snapshot per micro-batch.
    """
    return query.append_to(_writer(rows, checkpoint, trigger), table)


def _writer(rows: DataFrame, checkpoint: str, trigger: str) -> DataStreamWriter:
    return rows.writeStream.trigger(**query.trigger(trigger)).option("checkpointLocation", checkpoint)


@dataclass(frozen=True)
class Output:
    """How rows get into the table; raises ConfigInvalid."""

    commit: str = BY_BOOKKEEPER
    #: of the writer; None: made from the query's id
    name: str | None = None
    mode: str = "append"
    #: of upserts: which row of a key is the newest, and whether it deletes; columns or expressions
    order_by: tuple[str, ...] = ()
    deletes: str | None = None
    distribution: str = NONE
    #: the last position of another source under the same name
    take_over: str | None = None

    def __post_init__(self) -> None:
        if self.commit == BY_SPARK and self.mode != "append":
            raise ConfigInvalid(f"--mode {self.mode}: Spark itself only appends", hint="Leave --commit out.")
        if self.commit == BY_SPARK and self.distribution != NONE:
            hint = "Of Iceberg's sink the table says it: write.distribution-mode."
            raise ConfigInvalid(f"--distribution {self.distribution}: not with --commit {BY_SPARK}", hint=hint)
        if self.take_over is not None and (self.name is None or self.commit == BY_SPARK):
            raise ConfigInvalid("--take-over: the position is of a writer", hint="Give its --name.")
        if self.name is not None:
            check_writer(self.name)


def write(
    spark: SparkSession,
    settings: Settings,
    table: str | None,
    checkpoint: str,
    rows: Callable[[StructType], DataFrame],
    *,
    trigger: str,
    stopped: Callable[[], bool],
    report: query.Report = lambda progress: None,
    output: Output | None = None,
) -> None:
    """
    Write the stream `rows`, made for the table's columns, into the settings' `table`, until it ends or is `stopped`.

    Raises ConfigInvalid, NotPossible and StorageUnavailable, and as the sink does.
    """
    from bookkeeper.contract.txlog_folder import Folder, folder_url
    from writers.reach import Reach
    from writers.runtime import Runtime

    output = output or Output()
    identifier = session.table_name(settings, table)
    columns = spark.table(identifier).schema
    url = folder_url(pick_table(settings, table), location(spark, identifier))
    stores = Reach(settings)
    folder = Folder(stores(url))
    if output.commit == BY_SPARK:
        check_by_spark(HadoopCheckpointStore(spark, checkpoint), folder)
        query.follow(start(rows(columns), identifier, checkpoint, trigger), stopped, report)
        return
    stream = rows(given_columns(_card(folder), columns))
    opened = partial(
        into,
        url,
        checkpoint=checkpoint,
        mode=output.mode,
        order_by=output.order_by or None,
        deletes=output.deletes,
        distribution=output.distribution,
        take_over=output.take_over,
        runtime=Runtime(stores),
    )
    sink = SinkByQuery(spark, identifier, checkpoint, lambda name: opened(name=name), output.name)
    try:
        query.follow(_writer(stream, checkpoint, trigger).foreachBatch(sink).start(), stopped, report)
    except NotPossible as exc:
        raise sink.error or exc from exc


def given_columns(card: Card, columns: StructType) -> StructType:
    """The columns of a table without those that a writer fills, where it is keyed."""
    from pyspark.sql.types import StructType

    from writers.files.write_spec import WriteSpec

    keyed = WriteSpec.of(card).keyed
    filled = set() if keyed is None else {card.schema.find_column_name(number or 0) for number in keyed.filled}
    return StructType([item for item in columns.fields if item.name not in filled])


def _card(folder: Folder) -> Card:
    """Raises NotPossible where no bookkeeper would find a txlog."""
    try:
        return retry(folder.card, pause)
    except Missing as exc:
        why = f"there is no card.json in {folder.store.url}: no bookkeeper commits for this table"
        raise NotPossible(why, hint=_NO_CARD) from exc


@click.command(cls=Command)
@job.options
@click.option("--checkpoint", required=True, help="Folder or URL where the stream keeps its place; one per query.")
@click.option("--source", "text", default="rate:10", show_default=True, help=f"{EXPECTED}.")
@click.option(
    "--schema",
    metavar="DDL",
    help="Columns of the files, or of JSON in Kafka's values, such as `id BIGINT, name STRING`; table: the table's. "
    "Default: the table's columns, of Kafka key, value, topic, partition, offset and timestamp.",
)
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of Spark's reader; may be repeated."
)
@click.option(
    "--trigger",
    default="10s",
    show_default=True,
    help="Pause between micro-batches, or available-now: drain and end.",
)
@click.option(
    "--commit",
    type=click.Choice([BY_BOOKKEEPER, BY_SPARK]),
    default=BY_BOOKKEEPER,
    show_default=True,
    help="by-bookkeeper: the query publishes txlogs, and the bookkeeper commits them. by-spark: Iceberg's sink "
    "commits.",
)
@click.option("--name", metavar="WRITER", help="The query's name as a writer; default: made from the query's id.")
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    show_default=True,
    help="append: each row is a new one. upsert: it takes the place of the row with its key, of a keyed table.",
)
@click.option(
    "--order-by",
    multiple=True,
    metavar="COLUMN",
    help="Of upserts: of rows with one key the last by this column or expression is the newest; may be repeated.",
)
@click.option("--deletes", metavar="COLUMN", help="Of upserts: a row for which this is true deletes its key.")
@click.option(
    "--distribution",
    type=click.Choice([NONE, HASH]),
    default=NONE,
    show_default=True,
    help="hash: move rows by the table's partition before they are written, so that each has a file. none: each task "
    "writes a file of each partition that it has rows of.",
)
@click.option(
    "--take-over",
    metavar="POSITION",
    help="The last position of another query of this --name: go on behind it, once nothing of it is pending.",
)
@click.option("--progress", metavar="FILE", help="Append one JSON line per micro-batch to FILE.")
def main(
    config: str | None,
    table: str | None,
    conf: tuple[str, ...],
    checkpoint: str,
    text: str,
    schema: str | None,
    options: tuple[str, ...],
    trigger: str,
    progress: str | None,
    **given: Any,
) -> None:
    """
    Write a Spark stream into a table.

    Each micro-batch is published in a txlog, which the bookkeeper commits: once, and without a conflict with any other
    writer. With --commit by-spark each is a commit of Spark's own that can collide with the bookkeeper's: keep seconds
    between them. SIGTERM ends it after the current micro-batch.

    \b
    Example: python -m spark_jobs.write_stream --checkpoint /tmp/cp --source json:/data/in --trigger 1s
    """
    output, source = Output(**given), Source(text, schema, job.pairs("--option", options))
    settings = load_settings(config, os.environ)
    spark = job.begin(settings, f"write_stream {session.table_name(settings, table)}", conf, source.packages)
    stop = StopSignal.on_signals()
    write(
        spark,
        settings,
        table,
        checkpoint,
        partial(source.read, spark),
        trigger=trigger,
        stopped=lambda: stop.requested,
        report=job.reports_to(progress),
        output=output,
    )
    spark.stop()


if __name__ == "__main__":
    main()
