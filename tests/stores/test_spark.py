"""Spark follows a queue on each object store as it grows, with the configuration file that the bookkeeper has."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.core.catalog import STORAGE
from spark_jobs import prepare
from spark_jobs.versions import packages
from tests.stores.queues import Queue, new_queue
from tests.stores.wires import OBJECTS

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_spark_stream_reads_each_row_once_as_the_table_grows(kind: str, tmp_path: Path) -> None:
    queue = new_queue(kind, tmp_path)
    queue.run("bookkeeper", "init")
    queue.generate("w1", files=2)
    queue.asked("once")
    with following(queue, tmp_path) as seen:
        _until(lambda: seen() == 100)
        queue.generate("w2", files=1)
        queue.asked("once")
        _until(lambda: seen() == 150)


def test_a_spark_stream_follows_a_table_that_is_nothing_but_storage(tmp_path: Path) -> None:
    config = tmp_path / "bookkeeper.toml"
    config.write_text(
        f'[catalog]\npy-catalog-impl = "{STORAGE}"\nwarehouse = "file://{tmp_path}/warehouse"\n'
        f'[tables.events]\nidentifier = "demo.events"\nfolder = "file://{tmp_path}/queue"\n'
    )
    queue = Queue(config, f"file://{tmp_path}")
    queue.run("bookkeeper", "init")
    queue.generate("w1", files=2)
    queue.asked("once")
    with following(queue, tmp_path, "--consumer", "none") as seen:
        _until(lambda: seen() == 100)
        for number in range(12):
            queue.generate(f"x{number}", files=1, records=5)
            queue.asked("once")
        _until(lambda: seen() == 160)


@contextmanager
def following(queue: Queue, path: Path, *more: str) -> Iterator[object]:
    """A running stream; yields what says how many rows it has read."""
    environ = dict(os.environ)
    prepare.prepare(environ, packages(queue.settings.catalog.properties), say=lambda text: None)
    progress, log = path / "progress.ndjson", path / "spark.log"
    command = [sys.executable, "-m", "spark_jobs.read_stream", "--config", str(queue.config)]
    command += ["--checkpoint", f"file://{path}/checkpoint", "--sink", "noop", "--progress", str(progress), *more]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ)

    def seen() -> int:
        assert process.poll() is None, log.read_text("utf-8", "replace")[-3000:]
        lines = progress.read_text("utf-8").splitlines() if progress.exists() else []
        return sum(json.loads(line)["rows"] for line in lines)

    try:
        yield seen
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _until(true: object, seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():  # type: ignore[operator]
            return
        time.sleep(0.3)
    raise AssertionError(f"not within {seconds} s")
