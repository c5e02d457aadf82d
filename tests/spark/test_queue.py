"""Spark reads what the bookkeeper commits, and its stream walks appends, merges and retention."""

from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.ledger import merge
from bookkeeper.retention.scan import find
from spark_jobs import read_stream
from tests.spark.test_read_stream import Consumer
from tests.support.lake import Lake as Queue
from tests.support.lake import Writes

COMMITS = 2 * merge.FAN + 3


@pytest.fixture
def queue(lake, request):
    """A queue in the lake of the Spark session."""
    name = "".join(char for char in request.node.name if char.isalnum())[:40]
    return Queue(lake.config.parent, identifier=f"queue.{name}")


def commits(queue, count, writer, book):
    for _ in range(count):
        writer.publish(f"{writer.name.writer}-{len(writer.keys):04d}")
        queue.tick(book)


def test_scans_and_metadata_tables_show_what_was_published(spark, queue):
    writer = Writes(queue)
    commits(queue, COMMITS, writer, queue.book())
    table = spark.table(f"lake.{queue.settings.identifier}")
    tomorrow = f"{queue.clock.now + timedelta(days=1):%Y-%m-%d}"
    assert [row.key for row in table.select("key").orderBy("key").collect()] == writer.keys
    assert [row.key for row in table.where(f"key = '{writer.keys[7]}'").collect()] == [writer.keys[7]]
    assert table.where(f"timestamp < '{tomorrow}'").count() == COMMITS
    assert table.where(f"timestamp >= '{tomorrow}'").count() == 0
    assert spark.table(f"lake.{queue.settings.identifier}.files").count() == COMMITS
    operations = spark.table(f"lake.{queue.settings.identifier}.snapshots").groupBy("operation").count().collect()
    assert {row.operation: row["count"] for row in operations} == {"append": COMMITS, "replace": 2}


def test_a_stream_sees_every_row_once_across_merges_retention_and_foreign_maintenance(spark, queue, tmp_path):
    writer, book = Writes(queue), queue.book()
    consumer = Consumer(spark, queue.table(), tmp_path)
    commits(queue, 5, writer, book)
    consumer.drain()
    commits(queue, merge.FAN + 2, writer, book)
    view = queue.view()
    first = f"-{writer.keys[0]}.parquet"
    book.ledger.drop(view, find(book.ledger, view, None, lambda _: True, lambda file, _: file.path.endswith(first)))
    consumer.drain()
    spark.sql(f"CALL lake.system.rewrite_manifests('{queue.settings.identifier}')").collect()
    spark.sql(f"CALL lake.system.rewrite_data_files('{queue.settings.identifier}')").collect()
    commits(queue, merge.FAN, writer, book)
    consumer.drain()
    assert consumer.keys == writer.keys
    assert spark.table(f"lake.{queue.settings.identifier}").count() == len(writer.keys) - 1
    assert queue.keys() == writer.keys[1:]


def test_gzip_metadata_of_ours_and_of_spark_is_read_by_both_and_by_a_running_stream(spark, queue, tmp_path):
    name, consumer = f"lake.{queue.settings.identifier}", Consumer(spark, queue.table(), tmp_path)
    writer, book = Writes(queue), queue.book()
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.metadata.compression-codec'='gzip')")
    queue.clock.now = datetime.now(UTC)
    commits(queue, 3, writer, book)
    consumer.drain()
    ours = queue.table().metadata_location
    spark.sql(f"CALL lake.system.rewrite_manifests('{queue.settings.identifier}')").collect()
    sparks = queue.table().metadata_location
    queue.clock.now = datetime.now(UTC)  # Spark's, which the table has now
    commits(queue, merge.FAN, writer, queue.book())
    consumer.drain()
    assert all(place.endswith(".gz.metadata.json") for place in (ours, sparks, queue.table().metadata_location))
    assert len({ours, sparks, queue.table().metadata_location}) == 3
    assert consumer.keys == writer.keys == queue.keys()
    assert spark.table(f"{name}.snapshots").count() == len(queue.table().metadata.snapshots)


def test_of_each_writer_rows_arrive_in_the_order_it_published(spark, queue, tmp_path):
    writers, book, seen = [Writes(queue, name) for name in ("a", "b")], queue.book(), []
    for number in range(6):
        for writer in writers:
            writer.publish(f"{writer.name.writer}-{number}")
        if number % 2:
            queue.tick(book)
    stream = read_stream.read(spark, f"lake.{queue.settings.identifier}", max_files=1)
    started = stream.writeStream.foreachBatch(lambda rows, batch: seen.extend(row.key for row in rows.collect()))
    started.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen) == sorted(key for writer in writers for key in writer.keys)
    # Inside one snapshot Spark may take files in any order; across snapshots the order is the published one.
    for writer in writers:
        order = [seen.index(key) // 4 for key in writer.keys]
        assert order == [0, 0, 1, 1, 2, 2]
