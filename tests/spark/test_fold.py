"""Folds and Iceberg Java: Spark reads the table before and after one, and a compaction begun before it is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from tests.support.compactor import live
from tests.support.folds import COLUMNS, NAME, committed, data, keys, planned, put, state
from tests.support.lake import Lake as Queue


@pytest.fixture
def queue(lake: Any, request: pytest.FixtureRequest) -> Queue:
    """A table in the lake of the Spark session: two data files, and deletes of keys of one and of two columns."""
    name = "".join(char for char in request.node.name if char.isalnum())[-40:]
    queue = Queue(lake.config.parent, identifier=f"queue.{name}", partition_by=(), columns=COLUMNS)
    put(queue, data(queue, rows(1, 2, 3)), operation=Operation.APPEND)
    put(queue, data(queue, rows(4, 5, None)), operation=Operation.APPEND)
    put(queue, keys(queue, rows(2)), keys(queue, rows(4, None), (1, NAME)))
    put(queue, data(queue, rows(2)), operation=Operation.APPEND)
    return queue


def rows(*ids: int | None) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in ids]


def seen(spark: Any, queue: Queue) -> list[tuple[Any, ...]]:
    name = f"lake.{queue.settings.identifier}"
    spark.sql(f"REFRESH TABLE {name}")
    return sorted((tuple(row) for row in spark.table(name).collect()), key=repr)


def test_spark_reads_the_same_rows_before_and_after_a_fold(spark: Any, queue: Queue) -> None:
    before = state(queue)
    assert seen(spark, queue) == before and [row[0] for row in before] == [1, 2, 3, 5]
    committed(queue, planned(queue))
    assert seen(spark, queue) == before
    found = spark.table(f"lake.{queue.settings.identifier}.delete_files").collect()
    assert [row.content for row in found] == [1, 1]
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{queue.settings.identifier}', "
              "options => map('rewrite-all', 'true'))")  # fmt: skip
    assert seen(spark, queue) == before


def blind_compaction(spark: Any, queue: Queue, old: list[Any], new: Any) -> Any:
    """
    A compaction by Iceberg Java of what is live now, to be committed later. Its new file has the data sequence number
    of now, so that an equality delete which comes meanwhile applies to it.
    """
    iceberg = spark._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.{queue.settings.identifier}")
    table.refresh()
    start = table.currentSnapshot()
    rewrite = table.newRewrite().validateFromSnapshot(start.snapshotId()).dataSequenceNumber(start.sequenceNumber())

    def described(file: Any) -> Any:
        made = iceberg.DataFiles.builder(table.spec()).withPath(file.path).withFormat("parquet")
        return made.withFileSizeInBytes(file.size_bytes).withRecordCount(file.record_count).build()

    for file in old:
        rewrite = rewrite.deleteFile(described(file))
    return rewrite.addFile(described(new))


@pytest.fixture
def plain(lake: Any, request: pytest.FixtureRequest) -> Queue:
    """A table with two data files."""
    name = "".join(char for char in request.node.name if char.isalnum())[-40:]
    queue = Queue(lake.config.parent, identifier=f"queue.{name}", partition_by=(), columns=COLUMNS)
    put(queue, data(queue, rows(1, 2, 3)), operation=Operation.APPEND)
    put(queue, data(queue, rows(4, 5)), operation=Operation.APPEND)
    return queue


def raced(spark: Any, plain: Queue, fold: Callable[[Queue], object]) -> Any:
    """A compaction is begun, then a delete comes and is folded; the compaction is yet to be committed."""
    old = [item.file for item in live(plain)]
    compaction = blind_compaction(spark, plain, old, data(plain, rows(1, 2, 3, 4, 5)).file)
    put(plain, keys(plain, rows(2)))
    fold(plain)
    assert [row[0] for row in seen(spark, plain)] == [1, 3, 4, 5]
    return compaction


def test_a_compaction_by_java_that_began_before_a_fold_is_refused(spark: Any, plain: Queue) -> None:
    compaction = raced(spark, plain, lambda queue: committed(queue, planned(queue)))
    with pytest.raises(Exception, match="found new"):
        compaction.commit()
    assert [row[0] for row in seen(spark, plain)] == [1, 3, 4, 5]
