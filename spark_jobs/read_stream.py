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
from bookkeeper.console.options import load_settings
from bookkeeper.console.signals import StopSignal
from spark_jobs import job, query, session, sinks
from spark_jobs import start_option as starts
from spark_jobs.begin import begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.drain import Start

#: Spark keeps the limits of a micro-batch as Java's int
MOST = 2**31 - 1

#: of the job's sinks, for jobs of one's own
start = sinks.start


def read(
    spark: SparkSession,
    table: str,
    *,
    max_files: int | None = None,
    max_rows: int | None = None,
    skip_delete: bool = True,
) -> DataFrame:
    """
    The rows appended to `table` (catalog.namespace.name) as a streaming DataFrame.

    A new checkpoint begins at the oldest snapshot that is kept, unless `begin.begin` was there first. The limits are
    per micro-batch, the smaller one wins, and one file is always read. With `skip_delete` retention does not end the
    query.
    """
    chosen = {
        "streaming-max-files-per-micro-batch": max_files,
        "streaming-max-rows-per-micro-batch": max_rows,
        "streaming-skip-delete-snapshots": str(skip_delete).lower(),
    }
    given = {key: str(value) for key, value in chosen.items() if value is not None}
    return spark.readStream.format("iceberg").options(**given).load(table)


def follow(
    spark: SparkSession,
    name: str,
    checkpoint: str,
    start: Start,
    trigger: str,
    *,
    progress: str | None = None,
) -> None:
    """
    Run the query that `start` starts until a signal or its error ends it; with `available-now`, until it is drained.
    """
    stop, report = StopSignal.on_signals(), job.reports_to(progress)
    if trigger == query.AVAILABLE_NOW:
        from spark_jobs.drain import drain

        drain(spark, name, checkpoint, start, stopped=lambda: stop.requested, report=report)
    else:
        query.follow(start(trigger), lambda: stop.requested, report)


@click.command(cls=Command)
@job.options
@click.option("--checkpoint", required=True, help="Folder or URL where the stream keeps its place; one per query.")
@starts.option
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
    start: str | None,
    trigger: str,
    sink: str,
    progress: str | None,
    consumer: str | None,
    **limits: Any,
) -> None:
    """
    Follow a table as a Spark stream. SIGTERM ends it after the current micro-batch.

    A new checkpoint begins with all rows that the table holds, read in one batch, and goes on with what is committed
    after them; --start says otherwise. The batch is not bounded by --max-files and --max-rows. A job that is killed in
    it reads it again, and a table sink takes it once.

    With --trigger available-now it ends when it has read what was there at its start; exit code 0 says that it has.

    It registers itself with the reaper, which then keeps the snapshots it needs (`bookkeeper consumers`).

    \b
    Example: python -m spark_jobs.read_stream --checkpoint /tmp/cp --trigger available-now
             python -m spark_jobs.read_stream --checkpoint /tmp/cp --start 10m --sink table:marts.events
    """
    settings, where = load_settings(config, os.environ), starts.parsed(start, datetime.now(UTC))
    name, catalog = session.table_name(settings, table), settings.catalog.name
    sinks.checked(sink, catalog)
    query.trigger(trigger)
    spark = job.begin(settings, f"read_stream {name}", conf)
    output = sinks.output_of(spark, sink, catalog)
    with begin(spark, settings, table, checkpoint, start=where, consumer=consumer, output=output) as first:
        sinks.write(first, sink, catalog, lambda: datetime.now(UTC), job.reports_to(progress))
    started = functools.partial(sinks.start, read(spark, name, **limits), sink, catalog, checkpoint)
    follow(spark, name, checkpoint, started, trigger, progress=progress)
    spark.stop()


if __name__ == "__main__":
    main()
