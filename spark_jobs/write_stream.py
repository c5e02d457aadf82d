"""
Writes a Spark stream into the same table, next to the bookkeeper.

Spark commits these snapshots itself (its checkpoint makes them exactly once); the bookkeeper's guard sees
them and builds its next commit on top. Rows that Spark writes carry no marks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import load_settings
from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import ConfigInvalid
from spark_jobs import job, query, session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType, StructType

_NUMBERS = ("byte", "short", "integer", "long", "float", "double")


def source(spark: SparkSession, text: str, schema: StructType) -> DataFrame:
    """
    A stream in the table's columns from `rate:ROWS_PER_SECOND`, `json:FOLDER` or `parquet:FOLDER`.

    Raises ConfigInvalid.
    """
    kind, _, value = text.partition(":")
    if kind == "rate" and value.isdigit():
        return from_rate(spark, int(value), schema)
    if kind in ("json", "parquet") and value:
        return spark.readStream.schema(schema).format(kind).load(value)
    raise ConfigInvalid(f"--source {text}: rate:ROWS_PER_SECOND, json:FOLDER or parquet:FOLDER is allowed")


def from_rate(spark: SparkSession, rows_per_second: int, schema: StructType) -> DataFrame:
    """
    Generated rows: the time in time columns, `spark-<number>` in text and binary, the number in numeric ones.
    """
    rate = spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
    return rate.select(*(_generated(field.dataType).alias(field.name) for field in schema.fields))


def _generated(kind: DataType) -> Column:
    from pyspark.sql import functions as F

    name = kind.typeName()
    if name.startswith(("timestamp", "date")):
        return F.col("timestamp").cast(kind)
    if name in ("string", "binary"):
        return F.concat(F.lit("spark-"), F.col("value").cast("string")).cast(kind)
    return F.col("value").cast(kind) if name in _NUMBERS else F.lit(None).cast(kind)


def start(rows: DataFrame, table: str, checkpoint: str, trigger: str) -> StreamingQuery:
    """
    Append the stream to `table` (catalog.namespace.name), one snapshot per micro-batch.
    """
    writer = rows.writeStream.trigger(**query.trigger(trigger)).option("checkpointLocation", checkpoint)
    return query.append_to(writer, table)


@click.command(cls=Command)
@job.options
@click.option("--checkpoint", required=True, help="Folder or URL where the stream keeps its place; one per query.")
@click.option(
    "--source",
    "origin",
    default="rate:10",
    show_default=True,
    help="rate:ROWS_PER_SECOND, json:FOLDER, parquet:FOLDER.",
)
@click.option(
    "--trigger",
    default="10s",
    show_default=True,
    help="Pause between commits, or available-now: drain and end.",
)
@click.option("--progress", metavar="FILE", help="Append one JSON line per micro-batch to FILE.")
def main(
    config: str | None,
    table: str | None,
    conf: tuple[str, ...],
    checkpoint: str,
    origin: str,
    trigger: str,
    progress: str | None,
) -> None:
    """
    Append a Spark stream to a table while the bookkeeper commits to it.

    Each micro-batch is a commit of its own that can collide with the bookkeeper's: keep seconds between
    them. SIGTERM ends it after the current micro-batch.

    \b
    Example: python -m spark_jobs.write_stream --checkpoint /tmp/cp --source json:/data/in
    """
    settings = load_settings(config, os.environ)
    name = session.table_name(settings, table)
    spark = job.begin(settings, f"write_stream {name}", conf)
    rows = source(spark, origin, spark.table(name).schema)
    stop = StopSignal.on_signals()
    query.follow(start(rows, name, checkpoint, trigger), lambda: stop.requested, job.reports_to(progress))
    spark.stop()


if __name__ == "__main__":
    main()
