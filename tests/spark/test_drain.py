"""
A drain reads all that was there when it began, however many rows that is, or ends with an error.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bookkeeper.errors import NotPossible
from bookkeeper.history.checkpoint import Offset
from bookkeeper.ledger import merge
from spark_jobs import drain, read_stream
from spark_jobs import table as tables
from spark_jobs.drain import Target
from spark_jobs.table import Snapshot
from tests.spark.test_read_stream import Consumer
from tests.support.lake import Lake as Queue
from tests.support.lake import Writes
from tests.support.spark_lake import append_declared, rows


def expire_all_but_the_newest(spark, consumer):
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{consumer.source}', "
        f"older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )


def never(trigger):
    raise AssertionError("a query was started")


def test_every_row_is_read_past_two_to_the_31_of_them_in_each_run(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path, max_files=2)
    for key in "abcd":
        append_declared(lake, table, key)
    consumer.drain()
    assert consumer.keys == list("abcd")
    for key in "efg":
        append_declared(lake, table, key)

    consumer.drain()

    assert consumer.keys == list("abcdefg")


def test_a_checkpoint_that_is_stuck_by_sparks_own_trigger_is_drained(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    for key in "abcde":
        append_declared(lake, table, key)
    consumer.drain_with_sparks_own_trigger()
    consumer.drain_with_sparks_own_trigger()
    assert consumer.keys == list("abc"), "the limit is gone: this module is needless"

    consumer.drain()

    assert consumer.keys == list("abcde")


def test_an_expired_first_offset_needs_no_mend(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    for key in "ab":
        lake.append(table, rows([key]))
        consumer.drain()
    expire_all_but_the_newest(spark, consumer)
    lake.append(table, rows("c"))

    consumer.drain()

    assert consumer.keys == list("abc")


def test_a_batch_that_was_planned_and_not_committed_is_done_once(spark, lake, tmp_path):
    table = lake.append(lake.new_table(), rows("a"))
    consumer = Consumer(spark, table, tmp_path)
    consumer.drain()
    lake.append(table, rows("b"))
    consumer.drain()
    newest = max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink()

    consumer.drain()

    assert consumer.keys == list("ab") and newest.exists()


def test_nothing_unread_starts_no_query_also_below_an_append_without_files(spark, lake, tmp_path):
    table = lake.append(lake.new_table(), rows("a"))
    consumer = Consumer(spark, table, tmp_path)
    consumer.drain()
    lake.append_files(table)  # as the snapshot is that renews the marks

    drain.drain(spark, consumer.source, consumer.checkpoint, never)
    lake.append(table, rows("b"))
    lake.append_files(table)  # as the snapshot is that renews the marks
    consumer.drain()

    assert consumer.keys == list("ab")


def test_a_first_run_on_an_empty_table_begins_there_and_makes_the_sink(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    consumer.drain()
    assert consumer.keys == [] and (tmp_path / "checkpoint/sources/0/offsets/0").exists()
    lake.append(table, rows("ab"))

    consumer.drain()

    assert consumer.keys == list("ab")


def test_an_append_that_was_merged_in_the_same_commit_is_read(spark, lake, tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "FAN", 2)
    queue = Queue(lake.config.parent, identifier="queue.merged_at_once")
    writer, book = Writes(queue), queue.book()
    consumer = Consumer(spark, queue.table(), tmp_path)
    for number in range(4):
        writer.publish(f"k{number}")
        queue.tick(book)
        consumer.drain()
    newest = queue.table().metadata.current_snapshot()

    assert newest.summary.operation.value == "replace"
    assert consumer.keys == writer.keys


def test_a_drain_that_is_stopped_before_its_end_says_what_is_unread(spark, lake, tmp_path):
    table = lake.new_table()
    consumer, seen = Consumer(spark, table, tmp_path, max_files=1), []
    for key in "abcdefghij":
        table = lake.append(table, rows([key]))

    with pytest.raises(NotPossible, match=r"was stopped with \d+ snapshots of lake.queue"):
        drain.drain(
            spark, consumer.source, consumer.checkpoint, consumer.start, stopped=lambda: bool(seen), report=seen.append
        )
    consumer.drain()

    assert consumer.keys == list("abcdefghij")


def test_a_query_that_reads_no_further_ends_with_an_error(spark, lake, tmp_path):
    table = lake.append(lake.new_table(), rows("a"))
    consumer = Consumer(spark, table, tmp_path)

    def blind(trigger):
        later = spark.readStream.format("iceberg").option("stream-from-timestamp", 2**42)
        stream = later.load(consumer.source)
        return read_stream.start(stream, "noop", "lake", consumer.checkpoint, trigger)

    with pytest.raises(NotPossible, match="reads no further, with 1 snapshots of") as ended:
        drain.drain(spark, consumer.source, consumer.checkpoint, blind)

    assert "bookkeeper lag" in ended.value.hint


def test_a_place_that_was_expired_ends_with_an_error_and_no_row(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("a"))
    consumer.drain()
    for key in "bc":
        lake.append(table, rows([key]))
    expire_all_but_the_newest(spark, consumer)

    with pytest.raises(NotPossible, match="Cannot load current offset"):
        consumer.drain()

    assert consumer.keys == ["a"]


def test_a_checkpoint_that_cannot_be_read_is_said(spark, lake, tmp_path):
    table = lake.append(lake.new_table(), rows("a"))
    consumer = Consumer(spark, table, tmp_path)
    consumer.drain()
    offsets = Path(consumer.checkpoint) / "offsets"
    for path in offsets.glob("*"):
        path.unlink()

    with pytest.raises(Exception, match="offsets/0 is not there"):
        drain.drain(spark, consumer.source, consumer.checkpoint, never)


MAIN = [
    Snapshot(14, 13, 400, "append", added=0, total=5),
    Snapshot(13, 12, 300, "append", added=3, total=5),
    Snapshot(12, 11, 200, "append", added=0, total=2),
    Snapshot(11, None, 100, "append", added=2, total=2),
]


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (None, 2),
        (Offset(None, 0), 2),
        (Offset(11, 0), 2),
        (Offset(11, 1), 2),
        (Offset(11, 2), 1),
        (Offset(12, 0), 1),
        (Offset(13, 2), 1),
        (Offset(13, 3), 0),
        (Offset(14, 0), 0),
        (Offset(13, 3, whole=True), 1),
        (Offset(13, 5, whole=True), 0),
        (Offset(4711, 1), None),
    ],
)
def test_what_is_unread_at_an_offset(offset, left):
    assert Target(MAIN).unread(offset) == left


def test_files_of_an_append_whose_summary_counts_none_are_unread(monkeypatch):
    # As DuckDB 1.4 writes it; a stream of Iceberg's counts its files then.
    bare = {"operation": "append", "added": None, "total": None, "by_bookkeeper": False}
    first = SimpleNamespace(snapshot_id=11, parent_id=None, at=100, **{**bare, "added": "2", "total": "2"})
    listed = [SimpleNamespace(snapshot_id=12, parent_id=11, at=200, **bare), first]

    def manifest(snapshot, added):
        return SimpleNamespace(snapshotId=lambda: snapshot, addedFilesCount=lambda: added, existingFilesCount=lambda: 0)

    snapshot = SimpleNamespace(dataManifests=lambda io: [manifest(12, 3), manifest(11, 2)])
    loaded = SimpleNamespace(snapshot={12: snapshot}.get, io=lambda: None)
    monkeypatch.setattr(tables, "load", lambda spark, name: loaded)
    monkeypatch.setattr(tables, "main_head", lambda spark, name: 12)
    spark = SimpleNamespace(sql=lambda text: SimpleNamespace(collect=lambda: listed))

    target = Target(tables.main_history(spark, "lake.demo.events"))
    assert [target.unread(Offset(11, 2)), target.unread(Offset(12, 2)), target.unread(Offset(12, 3))] == [1, 1, 0]
    assert [target.unread(Offset(12, 4, whole=True)), target.unread(Offset(12, 5, whole=True))] == [1, 0]


def test_sparks_own_offset_is_understood():
    end = json.loads('{"version":1,"snapshot_id":11,"position":2,"scan_all_files":false}')
    assert drain._offset(end) == Offset(11, 2)
    assert drain._offset({**end, "snapshot_id": -1, "position": -1}) == Offset(None, 0)
