"""Queries of a real Spark into a table through txlogs: the rows are in once, whatever is given again or killed."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from spark_jobs.sink import Sink, into
from tests.histories.readers import duckdb_session
from tests.packaging.project import ROOT
from tests.servers import spark as prepared
from tests.support.lake import Lake, Writes
from tests.support.micro_batches import ticked
from writers.runtime import Runtime

#: what a task that is killed leaves of a file
TORN_BYTES = 50
SCHEMA = "timestamp timestamp, key string, value binary"


@pytest.fixture
def queue(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", file_names="strict")


@pytest.fixture(params=["append", "upsert"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def target(mode: str, tmp_path: Path) -> Lake:
    """A table that takes rows this way."""
    shape = {"key": ("key",), "partition_by": ()} if mode == "upsert" else {}
    return Lake(tmp_path / "lake", file_names="strict", **shape)


def put(folder: Path, *files: Sequence[str]) -> None:
    """A file of JSON lines for each of `files`, which are keys."""
    folder.mkdir(exist_ok=True)
    for keys in files:
        lines = [json.dumps({"timestamp": "2026-03-01T12:00:00Z", "key": key, "value": "AQI="}) for key in keys]
        (folder / f"{len(list(folder.iterdir())):04d}.json").write_text("\n".join(lines) + "\n")


def sink_of(lake: Lake, checkpoint: Path, **options: Any) -> Sink:
    """The bookkeeper ticks while the sink waits."""
    given: dict[str, Any] = {"name": "query", "checkpoint": str(checkpoint), "runtime": ticked(lake)}
    return into(lake.made.folder, **given | options)


def query(
    spark: Any, source: Path, checkpoint: Path, sink: Any, columns: Sequence[str] = ("value", "timestamp", "key")
) -> Any:
    """Reads what is in the folder, a file in each micro-batch, and ends."""
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(source))
    writer = read.select(*columns).repartition(2).writeStream.foreachBatch(sink).trigger(availableNow=True)
    started = writer.option("checkpointLocation", str(checkpoint)).start()
    started.awaitTermination()
    return started


def values(lake: Lake) -> set[Any]:
    return set(lake.table().scan(selected_fields=("value",)).to_arrow()["value"].to_pylist())


def keys(lake: Lake) -> list[str]:
    """Of a keyed table, too, whose deletes pyiceberg does not read."""
    query = f"SELECT key FROM iceberg_scan('{lake.table().metadata_location}') ORDER BY key"
    return [key for (key,) in duckdb_session().execute(query).fetchall()]


def given_again(checkpoint: Path) -> int:
    """As if the driver had died before Spark's own commit of the last batch, which this is."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()
    return last


def test_each_micro_batch_is_in_the_table_once_also_one_that_is_given_again(
    spark: Any, queue: Lake, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "cp"
    put(source, ["a1", "a2", "a3"], ["b1"])
    query(spark, source, checkpoint, sink_of(queue, checkpoint))
    assert queue.keys() == ["a1", "a2", "a3", "b1"]
    assert queue.operations() == ["append", "append"]
    assert values(queue) == {b"\x01\x02"}

    assert given_again(checkpoint) == 1
    put(source, ["c1", "c2"])
    query(spark, source, checkpoint, sink_of(queue, checkpoint))
    assert queue.keys() == ["a1", "a2", "a3", "b1", "c1", "c2"]
    assert queue.operations() == ["append"] * 3
    assert queue.rejected() == {}


def test_a_driver_killed_between_its_publish_and_the_commit_log_of_spark_loses_and_doubles_nothing(
    spark: Any, target: Lake, mode: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "cp"
    put(source, ["a1", "a2"], ["b1", "b2"])
    dies_in_its_first_batch(target, mode, source, checkpoint)
    assert len(target.pending()) == 1
    assert [*(checkpoint / "offsets").glob("0")] and not [*(checkpoint / "commits").glob("0")]

    query(spark, source, checkpoint, sink_of(target, checkpoint, mode=mode))
    assert keys(target) == ["a1", "a2", "b1", "b2"]
    assert target.operations().count("append") == 2
    assert target.rejected() == {}


def test_a_task_that_is_killed_in_a_file_runs_again_and_what_it_left_is_in_no_txlog(
    spark: Any, target: Lake, mode: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "cp"
    put(source, ["a1", "a2", "a3", "a4"])
    dies_in_its_first_batch(target, mode, source, checkpoint, tmp_path / "killed")
    left = [path for path in (target.root / "demo" / "events").rglob("*.parquet") if path.stat().st_size == TORN_BYTES]
    assert len(left) == 1

    query(spark, source, checkpoint, sink_of(target, checkpoint, mode=mode))
    assert (keys(target), target.rejected()) == (["a1", "a2", "a3", "a4"], {})


def test_queries_side_by_side_and_a_plain_writer_write_one_table_and_none_ends(
    spark: Any, queue: Lake, tmp_path: Path
) -> None:
    stop, names = Event(), ("q1", "q2", "q3")
    for name in names:
        put(tmp_path / name, *([f"{name}-{file}-{row}" for row in range(3)] for file in range(3)))

    def reads(name: str) -> None:
        checkpoint = tmp_path / f"{name}-cp"
        sink = sink_of(
            queue,
            checkpoint,
            name=name,
            runtime=Runtime(clock=queue.clock, wait=lambda seconds: stop.wait(0.05) and None),
        )
        query(spark, tmp_path / name, checkpoint, sink)

    def commits() -> None:
        book = queue.book()
        while not stop.wait(0.05):
            queue.tick(book)

    with ThreadPoolExecutor(len(names) + 1) as pool:
        committing, reading = pool.submit(commits), [pool.submit(reads, name) for name in names]
        plain = Writes(queue)
        for number in range(3):
            plain.publish(f"plain-{number}")
        try:
            for item in reading:
                item.result(timeout=120)
        finally:
            stop.set()
            committing.result(timeout=120)
    queue.tick()
    wanted = [f"{name}-{file}-{row}" for name in names for file in range(3) for row in range(3)]
    assert queue.keys() == sorted([*wanted, *plain.keys])
    assert queue.rejected() == {}


def test_columns_are_matched_by_name_and_those_that_the_rows_lack_are_null(
    spark: Any, queue: Lake, tmp_path: Path
) -> None:
    put(tmp_path / "in", ["a"])
    query(spark, tmp_path / "in", tmp_path / "cp", sink_of(queue, tmp_path / "cp"), ("key", "timestamp"))
    assert (queue.keys(), values(queue)) == (["a"], {None})


def test_a_checkpoint_of_another_query_is_refused(spark: Any, queue: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", ["a"])
    query(spark, tmp_path / "in", tmp_path / "cp", lambda rows, batch: None)
    with pytest.raises(Exception, match="is not the checkpoint of this query"):
        query(spark, tmp_path / "in", tmp_path / "cp2", sink_of(queue, tmp_path / "cp"))
    assert queue.pending() == []


def test_a_task_that_fails_ends_the_query_and_the_next_run_writes_the_batch(
    spark: Any, queue: Lake, tmp_path: Path
) -> None:
    """A required column is missing, of which only the tasks know: an empty batch could lack it."""
    put(tmp_path / "in", ["a"])
    with pytest.raises(Exception, match="required column 'timestamp' is missing"):
        query(spark, tmp_path / "in", tmp_path / "cp", sink_of(queue, tmp_path / "cp"), ("key",))
    assert queue.pending() == []
    query(spark, tmp_path / "in", tmp_path / "cp", sink_of(queue, tmp_path / "cp"))
    assert queue.keys() == ["a"]


def test_the_output_mode_complete_is_refused(spark: Any, queue: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", ["a"])
    rows = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in")).groupBy("key").agg({"timestamp": "max"})
    sink = sink_of(queue, tmp_path / "cp")
    writer = rows.withColumnRenamed("max(timestamp)", "timestamp").writeStream.foreachBatch(sink).outputMode("complete")
    started = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="output mode complete"):
        started.awaitTermination()
    assert queue.pending() == []


def test_another_mode_or_name_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="'append' or 'upsert' is expected"):
        into("/lake", name="query", checkpoint="/cp", mode="merge")
    with pytest.raises(ConfigInvalid):
        into("/lake", name="No Name", checkpoint="/cp")


def test_a_query_of_spark_connect_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as SparkSession.builder.remote does
    with pytest.raises(NotPossible, match="Spark Connect") as caught:
        into("/lake", name="query", checkpoint="/cp")
    assert "spark-submit" in caught.value.hint


def test_a_sink_is_not_sent_to_another_process() -> None:
    with pytest.raises(NotPossible, match="belongs to one driver") as caught:
        pickle.dumps(into("/lake", name="query", checkpoint="/cp"))
    assert "Connect" in caught.value.hint


def dies_in_its_first_batch(lake: Lake, mode: str, source: Path, checkpoint: Path, killed: Path | None = None) -> None:
    """Runs `driver` in a process of its own."""
    words = [
        sys.executable,
        __file__,
        lake.made.folder,
        mode,
        str(source),
        str(checkpoint),
        *([str(killed)] if killed else []),
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


def driver(folder: str, mode: str, source: str, checkpoint: str, killed: str = "") -> None:
    """
    A driver that dies when its first txlog is published and no bookkeeper has seen it; of its tasks the first dies in a
    file, where the path `killed` is given, which says that it has.
    """
    from pyspark.sql import SparkSession

    def die(seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def stores(url: str) -> Store:
        from pyspark import TaskContext

        from bookkeeper.stores import disk

        whole = disk.write_durably

        def torn(folder: Any, name: Any, path: Any, data: Any) -> None:
            try:
                os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                whole(folder, name, path, data)
            else:
                whole(folder, name, path, memoryview(data)[:TORN_BYTES])
                os.kill(os.getpid(), signal.SIGKILL)

        if killed and TaskContext.get() is not None:
            disk.write_durably = torn
        return open_store(url)

    confs = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    # The class path for which the classes are kept.
    confs["spark.driver.extraClassPath"] = ":".join(map(str, prepared.ready(os.environ).jars))
    spark = SparkSession.builder.master("local[2,3]").config(map=confs).getOrCreate()
    sink = into(folder, name="query", checkpoint=checkpoint, mode=mode, runtime=Runtime(stores, wait=die))
    query(spark, Path(source), Path(checkpoint), sink)


if __name__ == "__main__":
    driver(*sys.argv[1:])
