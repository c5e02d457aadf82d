"""Batches of a real Spark, through the format `bookkeeper`."""

import os
import signal
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import ConfigInvalid
from spark_jobs.data_source import BookkeeperSource, JobWriter
from tests.spark.test_jobs import ticking
from tests.support.lake import Lake, WallClock

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = "value binary, timestamp timestamp, key string"


@pytest.fixture
def queue(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", WallClock(), file_names="strict")


@pytest.fixture
def source(spark: Any) -> type[BookkeeperSource]:
    spark.dataSource.register(BookkeeperSource)
    return BookkeeperSource


def save(spark: Any, lake: Lake, *keys: str, mode: str = "append", frame: Any = None, **options: str) -> None:
    given = spark.createDataFrame([(b"v", AT, key) for key in keys], SCHEMA).repartition(2)
    writer = (given if frame is None else frame).write.format("bookkeeper").mode(mode)
    writer.options(**{"name": "job", **options}).save(lake.made.folder)


def data_files(lake: Lake) -> set[Path]:
    return {*(lake.root / "demo" / "events" / "data").rglob("*.parquet")}


@pytest.mark.usefixtures("source")
def test_a_batch_is_in_the_table_once_also_when_its_job_is_run_again(spark: Any, queue: Lake) -> None:
    job = BookkeeperSource({"path": queue.made.folder, "name": "job", "position": "1"})
    assert not job.is_done()
    with ticking(queue):
        save(spark, queue, "a", "b", "c", position="1")
        assert job.is_done()
        written = data_files(queue)
        save(spark, queue, "a", "b", "c", position="1")
        assert (queue.keys(), data_files(queue)) == (["a", "b", "c"], written)
        save(spark, queue, "d", position="2")
        save(spark, queue, "e")
        save(spark, queue)
    assert queue.keys() == ["a", "b", "c", "d", "e"]
    assert queue.operations() == ["append"] * 3


@pytest.mark.usefixtures("source")
def test_columns_are_matched_by_name_and_what_does_not_fit_is_refused_before_a_task_runs(
    spark: Any, queue: Lake
) -> None:
    frame = spark.createDataFrame([("a", AT)], "key string, timestamp timestamp")
    with ticking(queue):
        save(spark, queue, frame=frame)
    assert queue.table().scan().to_arrow()["value"].to_pylist() == [None]
    before = data_files(queue)
    for given, said in (
        ({"frame": frame.withColumn("other", frame.key)}, "other"),
        ({"mode": "overwrite"}, "rows are only appended"),
        ({"mode": "error"}, "bookkeeper"),
        ({"postion": "1"}, "option postion"),
        ({"patience": "long"}, "option patience"),
        ({"name": "No Name"}, "No Name"),
    ):
        with pytest.raises(Exception, match=said):
            save(spark, queue, "b", **given)  # type: ignore[arg-type]
    assert (data_files(queue), queue.pending()) == (before, [])


def test_the_keys_of_a_catalog_are_refused_with_the_way_to_them() -> None:
    with pytest.raises(ConfigInvalid, match="option credentials: a data source opens no catalog") as caught:
        BookkeeperSource({"path": "s3://lake/t/_bookkeeper", "credentials": "catalog"}).is_done()
    assert "spark_jobs.sink.write" in caught.value.hint and "writers.reach" in caught.value.hint


@pytest.mark.parametrize("option", ["mode", "order_by", "deletes", "distribution"])
def test_what_moves_rows_between_tasks_is_refused_with_the_way_over(option: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"option {option}: a data source cannot move rows") as caught:
        BookkeeperSource({"path": "/lake", option: "x"}).is_done()
    assert "spark_jobs.sink.write" in caught.value.hint


@pytest.mark.usefixtures("source")
def test_a_job_that_ends_before_its_txlog_is_in_fails_and_loses_and_doubles_nothing(spark: Any, queue: Lake) -> None:
    """Spark aborts behind a commit that has failed: the files of a published txlog stay."""
    with pytest.raises(Exception, match="is published, and not in the table yet") as caught:
        save(spark, queue, "a", "b", position="1", patience="1ms")
    assert "goes on waiting" in str(caught.value)
    assert len(queue.pending()) == 1
    with ticking(queue):
        save(spark, queue, "a", "b", position="1")
    assert (queue.keys(), queue.rejected()) == (["a", "b"], {})


def test_the_process_that_commits_killed_behind_the_publish_loses_and_doubles_nothing(spark: Any, queue: Lake) -> None:
    def die(seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Dies(BookkeeperSource):
        wait = staticmethod(die)

    spark.dataSource.register(Dies)
    with pytest.raises(Exception):  # noqa: B017, PT011 - what Spark makes of it
        save(spark, queue, "a", "b", position="1")
    assert len(queue.pending()) == 1
    spark.dataSource.register(BookkeeperSource)
    with ticking(queue):
        save(spark, queue, "a", "b", position="1")
    assert (queue.keys(), queue.rejected()) == (["a", "b"], {})


def test_spark_gives_an_abort_no_result_of_a_task_that_has_failed(spark: Any, queue: Lake, tmp_path: Path) -> None:
    """By this a job tells a failed task from a commit that has failed, behind which nothing may be deleted."""
    told = tmp_path / "told"

    class Tells(JobWriter):
        def abort(self, messages: Any) -> None:
            told.write_text(str(sorted(message is None for message in messages)))
            super().abort(messages)

    class Told(BookkeeperSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Tells(super().writer(schema, overwrite)._job)

    spark.dataSource.register(Told)
    fails = spark.createDataFrame([("a", None), ("b", AT)], "key string, timestamp timestamp").repartition(2)
    with pytest.raises(Exception, match="timestamp"):
        save(spark, queue, frame=fails)
    assert "True" in told.read_text()
    assert queue.pending() == []
    with pytest.raises(Exception, match="not in the table yet"):
        save(spark, queue, "a", "b", position="1", patience="1ms")
    assert told.read_text() == "[False, False]"


@pytest.mark.usefixtures("source")
def test_a_stream_is_told_the_way(spark: Any, queue: Lake, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load().writeStream.format("bookkeeper")
    started = partial(rows.option("checkpointLocation", str(tmp_path / "cp")).start, queue.made.folder)
    with pytest.raises(Exception, match="written by foreachBatch"):
        started().awaitTermination()
