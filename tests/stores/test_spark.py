"""Spark follows a queue on each object store as it grows, with the configuration file that the bookkeeper has."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.catalogs.open import STORAGE
from spark_jobs.versions import packages
from tests.servers import jars, spark
from tests.servers.needed import needed
from tests.stores.wires import OBJECTS
from tests.support.configured import Queue, new_queue, queue_with
from tests.support.crew import Crew

pytestmark = pytest.mark.spark

#: two such waits are shorter than pytest's limit for a test, which ends the whole run
WAIT_SECONDS = 280


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_spark_stream_reads_each_row_once_as_the_table_grows(kind: str, tmp_path: Path) -> None:
    queue = new_queue(kind, tmp_path)
    queue.run("bookkeeper", "init")
    queue.generate("w1", files=2)
    queue.asked("once")
    with following(queue, tmp_path) as reads:
        reads(100)
        queue.generate("w2", files=1)
        queue.asked("once")
        reads(150)


@pytest.mark.parametrize("kind", ["local", *OBJECTS])
def test_a_spark_stream_follows_a_table_that_is_nothing_but_storage(kind: str, tmp_path: Path) -> None:
    keys = {"py-catalog-impl": STORAGE}
    if kind == "local":
        queue = queue_with({**keys, "warehouse": f"file://{tmp_path}/warehouse"}, f"file://{tmp_path}", tmp_path)
    else:
        queue = new_queue(kind, tmp_path, keys)
    queue.run("bookkeeper", "init")
    queue.generate("w1", files=2)
    queue.asked("once")
    with following(queue, tmp_path, "--consumer", "none", *(_with_s3a(queue) if kind == "s3" else ())) as reads:
        reads(100)
        for number in range(12 if kind == "local" else 2):
            queue.generate(f"x{number}", files=1, records=5)
            queue.asked("once")
        reads(100 + 5 * (number + 1))


def _with_s3a(queue: Queue) -> list[str]:
    """Hadoop's S3 beside what the job brings: two jars, the second of the version that Iceberg's bundle has."""
    with needed("jars"):
        ready = spark.ready(dict(os.environ), packages(queue.settings.catalog.properties))
        found = [*ready.jars, *jars.found(os.environ, jars.S3A)]
    return ["--conf", f"spark.driver.extraClassPath={':'.join(map(str, found))}"]


@contextmanager
def following(queue: Queue, path: Path, *more: str) -> Iterator[Callable[[int], None]]:
    """A running stream; yields what waits until it has read so many rows."""
    spark.wanted(packages(queue.settings.catalog.properties))
    progress = path / "progress.ndjson"
    command = [sys.executable, "-m", "spark_jobs.read_stream", "--config", str(queue.config)]
    command += ["--checkpoint", f"file://{path}/checkpoint", "--sink", "noop", "--progress", str(progress), *more]

    def seen() -> int:
        lines = progress.read_text("utf-8").splitlines() if progress.exists() else []
        return sum(json.loads(line)["rows"] for line in lines)

    with Crew({"spark": command}, path) as crew:
        crew.start("spark")
        yield lambda rows: crew.until(lambda: seen() == rows, WAIT_SECONDS)
        crew.stop("spark", 60)
