"""Spark follows a queue on each object store as it grows, with the configuration file that the bookkeeper has."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.catalogs.open import STORAGE
from spark_jobs.versions import packages
from tests.servers import jars, spark
from tests.servers.needed import needed
from tests.stores.queues import Queue, new_queue
from tests.stores.wires import OBJECTS

pytestmark = pytest.mark.spark

#: two such waits are shorter than pytest's limit for a test, which ends the whole run
WAIT_SECONDS = 120


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_spark_stream_reads_each_row_once_as_the_table_grows(kind: str, tmp_path: Path) -> None:
    queue = new_queue(kind, tmp_path)
    queue.run("bookkeeper", "init")
    queue.generate("w1", files=2)
    queue.asked("once")
    with following(queue, tmp_path) as has_read:
        has_read(100)
        queue.generate("w2", files=1)
        queue.asked("once")
        has_read(150)


@pytest.mark.parametrize("kind", ["local", *OBJECTS])
def test_a_spark_stream_follows_a_table_that_is_nothing_but_storage(kind: str, tmp_path: Path) -> None:
    queue = _on_disk(tmp_path) if kind == "local" else new_queue(kind, tmp_path, {"py-catalog-impl": STORAGE})
    queue.run("bookkeeper", "init")
    queue.generate("w1", files=2)
    queue.asked("once")
    with following(queue, tmp_path, "--consumer", "none", *(_with_s3a(queue) if kind == "s3" else ())) as has_read:
        has_read(100)
        for number in range(12 if kind == "local" else 2):
            queue.generate(f"x{number}", files=1, records=5)
            queue.asked("once")
        has_read(100 + 5 * (number + 1))


def _with_s3a(queue: Queue) -> list[str]:
    """Hadoop's S3 beside what the job brings: two jars, the second of the version that Iceberg's bundle has."""
    with needed("jars"):
        ready = spark.ready(dict(os.environ), packages(queue.settings.catalog.properties))
        found = [*ready.jars, *jars.found(os.environ, jars.S3A)]
    return ["--conf", f"spark.driver.extraClassPath={':'.join(map(str, found))}"]


def _on_disk(path: Path) -> Queue:
    config = path / "bookkeeper.toml"
    config.write_text(
        f'[catalog]\npy-catalog-impl = "{STORAGE}"\nwarehouse = "file://{path}/warehouse"\n'
        f'[tables.events]\nidentifier = "demo.events"\nfolder = "file://{path}/queue"\n'
    )
    return Queue(config, f"file://{path}")


@contextmanager
def following(queue: Queue, path: Path, *more: str) -> Iterator[Callable[[int], None]]:
    """A running stream; yields a function that waits until it has read so many rows."""
    spark.wanted(packages(queue.settings.catalog.properties))
    environ = dict(os.environ)
    progress, log = path / "progress.ndjson", path / "spark.log"
    command = [sys.executable, "-m", "spark_jobs.read_stream", "--config", str(queue.config)]
    command += ["--checkpoint", f"file://{path}/checkpoint", "--sink", "noop", "--progress", str(progress), *more]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ)

    def has_read(rows: int) -> None:
        deadline, seen = time.monotonic() + WAIT_SECONDS, 0
        while seen != rows:
            text = log.read_text("utf-8", "replace")[-3000:]
            assert process.poll() is None, text
            assert time.monotonic() < deadline, f"{seen} rows, not {rows}, within {WAIT_SECONDS} s\n{text}"
            time.sleep(0.3)
            lines = progress.read_text("utf-8").splitlines() if progress.exists() else []
            seen = sum(json.loads(line)["rows"] for line in lines)

    try:
        yield has_read
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
