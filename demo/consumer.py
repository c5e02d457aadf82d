"""
The demo's consumer: a Spark stream that writes down every key it sees, and when.

Exactly once as foreachBatch allows it: a micro-batch's file carries its number, and a replay replaces it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import load_settings
from bookkeeper.console.signals import StopSignal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_FILES = 500


def keep_keys(folder: Path, now: Callable[[], float]) -> Callable[[DataFrame, int], None]:
    """
    A function for foreachBatch that keeps a micro-batch's keys, and when they were in hand, in `folder`.
    """

    def keep(rows: DataFrame, batch: int) -> None:
        keys = rows.select("key").toArrow()["key"].to_pylist()
        seen = {"batch": batch, "seen_ms": int(now() * 1000), "keys": keys}
        unfinished = folder / f"{batch:06d}.tmp"
        unfinished.write_text(json.dumps(seen))
        unfinished.replace(folder / f"{batch:06d}.json")

    return keep


@click.command(cls=Command)
@click.option("--config", required=True)
@click.option("--checkpoint", required=True)
@click.option("--keep", required=True, type=click.Path(path_type=Path), help="Folder for the micro-batches' keys.")
@click.option("--ready", required=True, type=click.Path(path_type=Path), help="File to make when the stream runs.")
@click.option("--trigger", default="500ms", show_default=True)
def main(config: str, checkpoint: str, keep: Path, ready: Path, trigger: str) -> None:
    """
    Follow the table until SIGTERM.
    """
    from spark_jobs import job, query, read_stream, session

    keep.mkdir(parents=True, exist_ok=True)
    settings = load_settings(config, {})
    name = session.table_name(settings, None)
    spark = job.begin(settings, "demo consumer", ())
    stop = StopSignal.on_signals()
    # The first query of a JVM takes seconds; they are not the stream's.
    spark.table(name).select("key").limit(1).toArrow()
    rows = read_stream.read(spark, name, max_files=_MOST_FILES)
    writer = rows.writeStream.trigger(**query.trigger(trigger)).option("checkpointLocation", checkpoint)
    started = writer.foreachBatch(keep_keys(keep, time.time)).start()
    ready.touch()
    query.follow(started, lambda: stop.requested)
    spark.stop()


if __name__ == "__main__":
    main()
