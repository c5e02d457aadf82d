"""
Reads the queue as a Spark stream: a DataFrame for your own job, and a job that shows or copies it.

It never skips overwrite snapshots: the rows they add would be lost silently.
"""

from __future__ import annotations

import functools
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import Instant, load_settings, pick_table
from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import ConfigInvalid
from spark_jobs import job, query, register, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from bookkeeper.config.settings import Settings
    from spark_jobs.drain import Start

UNREGISTERED = "none"
#: Spark keeps the limits of a micro-batch as Java's int
MOST = 2**31 - 1


def read(
    spark: SparkSession,
    table: str,
    *,
    from_timestamp: datetime | None = None,
    max_files: int | None = None,
    max_rows: int | None = None,
    skip_delete: bool = True,
) -> DataFrame:
    """
    The rows appended to `table` (catalog.namespace.name) as a streaming DataFrame.

    `from_timestamp` (aware, inclusive, commit time) counts only for a new checkpoint. The limits are per
    micro-batch, the smaller one wins, and one file is always read. With `skip_delete` retention does not end
    the query.
    """
    chosen = {
        "stream-from-timestamp": None if from_timestamp is None else int(from_timestamp.timestamp() * 1000),
        "streaming-max-files-per-micro-batch": max_files,
        "streaming-max-rows-per-micro-batch": max_rows,
        "streaming-skip-delete-snapshots": str(skip_delete).lower(),
    }
    given = {key: str(value) for key, value in chosen.items() if value is not None}
    return spark.readStream.format("iceberg").options(**given).load(table)


def start(rows: DataFrame, sink: str, catalog: str, checkpoint: str, trigger: str) -> StreamingQuery:
    """
    Start the query into `console`, `noop` or `table:namespace.name` (made if missing); raises ConfigInvalid.

    With `available-now` Spark's own trigger reads at most 2^31 - 1 rows past the query's first offset, ever:
    `drain.drain` has no such limit.
    """
    writer = rows.writeStream.trigger(**query.trigger(trigger)).option("checkpointLocation", checkpoint)
    if sink.startswith("table:"):
        return _into_table(rows.sparkSession, writer, catalog, sink.removeprefix("table:"))
    if sink not in ("console", "noop"):
        raise ConfigInvalid(f"--sink {sink}: console, noop or table:namespace.name is allowed")
    return writer.format(sink).start()


def _into_table(spark: SparkSession, writer: DataStreamWriter, catalog: str, identifier: str) -> StreamingQuery:
    namespace, _, name = identifier.rpartition(".")
    if not namespace or not name:
        raise ConfigInvalid(f"--sink table:{identifier}: table:namespace.name is allowed")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{namespace}")
    return query.append_to(writer, f"{catalog}.{identifier}")


def register_query(
    spark: SparkSession, settings: Settings, table: str | None, checkpoint: str, consumer: str | None
) -> None:
    """
    Register the query that is about to start with the reaper, unless `consumer` is `none`; raises as `register`.
    """
    if consumer == UNREGISTERED:
        return
    # Before the query starts: from here on nothing that it will need is expired. Also to drain it needs no more
    # than its newest offset: only Spark's own trigger available-now goes back to the first.
    now, about, name = datetime.now(UTC), pick_table(settings, table), session.table_name(settings, table)
    register.register(spark, settings, about, name, checkpoint, now, available_now=False, consumer=consumer)


def follow(
    spark: SparkSession,
    name: str,
    checkpoint: str,
    begin: Start,
    trigger: str,
    *,
    since: datetime | None = None,
    progress: str | None = None,
) -> None:
    """
    Run the query that `begin` starts until a signal or its error ends it; with `available-now`, until it is drained.
    """
    stop, report = StopSignal.on_signals(), job.reports_to(progress)
    if trigger == query.AVAILABLE_NOW:
        from spark_jobs.drain import drain

        drain(spark, name, checkpoint, begin, since=since, stopped=lambda: stop.requested, report=report)
    else:
        query.follow(begin(trigger), lambda: stop.requested, report)


@click.command(cls=Command)
@job.options
@click.option("--checkpoint", required=True, help="Folder or URL where the stream keeps its place; one per query.")
@click.option(
    "--from",
    "from_timestamp",
    type=Instant(),
    help="Start with snapshots committed since; new checkpoints only.",
)
@click.option(
    "--max-files",
    type=click.IntRange(min=1, max=MOST),
    help="Files per micro-batch; set it to catch up in bounded memory.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1, max=MOST),
    help="Rows per micro-batch (soft: one file is always read).",
)
@click.option(
    "--trigger",
    default="1s",
    show_default=True,
    help="Pause between micro-batches, or available-now: read what is there, and end.",
)
@click.option(
    "--sink", default="console", show_default=True, help="console, noop (only read), or table:namespace.name."
)
@click.option("--progress", metavar="FILE", help="Append one JSON line per micro-batch to FILE.")
@click.option(
    "--consumer",
    metavar="NAME",
    help="Register with the reaper by this name, or `none`; default: a name made from the folder.",
)
def main(
    config: str | None,
    table: str | None,
    conf: tuple[str, ...],
    checkpoint: str,
    trigger: str,
    sink: str,
    progress: str | None,
    consumer: str | None,
    **limits: Any,
) -> None:
    """
    Follow a table as a Spark stream. SIGTERM ends it after the current micro-batch.

    With --trigger available-now it ends when it has read what was there at its start; exit code 0 says that it has.

    It registers itself with the reaper, which then keeps the snapshots it needs (`bookkeeper consumers`).

    \b
    Example: python -m spark_jobs.read_stream --checkpoint /tmp/cp --trigger available-now
    """
    settings = load_settings(config, os.environ)
    name = session.table_name(settings, table)
    spark = job.begin(settings, f"read_stream {name}", conf)
    register_query(spark, settings, table, checkpoint, consumer)
    begin = functools.partial(start, read(spark, name, **limits), sink, settings.catalog.name, checkpoint)
    follow(spark, name, checkpoint, begin, trigger, since=limits["from_timestamp"], progress=progress)
    spark.stop()


if __name__ == "__main__":
    main()
