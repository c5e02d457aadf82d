"""
A stream sees every append once, and lives through what a queue does to its table.
"""

from pathlib import Path

import pytest

from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs import drain, query, read_stream
from tests.support.spark_lake import START, days, name_of, rows


class Consumer:
    """A stream copied into a table of its own, drained whenever a test asks."""

    def __init__(self, spark, table, folder, **options):
        self.spark, self.options, self.checkpoint = spark, options, str(folder / "checkpoint")
        self.source = name_of(table)
        self.sink = f"consumed_{table.name()[-1]}"

    def drain(self):
        """Read what is new; the progress of each micro-batch."""
        seen = []
        drain.drain(self.spark, self.source, self.checkpoint, self.start, report=seen.append)
        return seen

    def drain_with_sparks_own_trigger(self):
        """Read what is new as a query of a user's own does."""
        query.follow(self.start("available-now"), lambda: False)

    def start(self, trigger):
        """The query, started."""
        stream = read_stream.read(self.spark, self.source, **self.options)
        return read_stream.start(stream, f"table:queue.{self.sink}", "lake", self.checkpoint, trigger)

    @property
    def keys(self):
        """The keys of all rows consumed so far, sorted."""
        return sorted(row.key for row in self.spark.table(f"lake.queue.{self.sink}").select("key").collect())


def test_a_stream_drains_what_is_there_and_continues_where_it_was(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("ab"))
    lake.append(table, rows("c"), rows("d", START + days(1)))
    assert sum(progress["rows"] for progress in consumer.drain()) == 4

    lake.append(table, rows("e"))
    consumer.drain()
    consumer.drain()

    assert consumer.keys == list("abcde")


def test_max_files_bounds_each_micro_batch(spark, lake, tmp_path):
    table = lake.new_table()
    lake.append(table, *(rows([key]) for key in "abcde"))
    consumer = Consumer(spark, table, tmp_path, max_files=2)

    assert [progress["rows"] for progress in consumer.drain() if progress["rows"]] == [2, 2, 1]
    assert consumer.keys == list("abcde")


def test_max_rows_bounds_each_micro_batch_by_whole_files(spark, lake, tmp_path):
    table = lake.new_table()
    lake.append(table, rows("ab"), rows("cd"), rows("ef"))
    consumer = Consumer(spark, table, tmp_path, max_rows=3)

    batches = [progress["rows"] for progress in consumer.drain() if progress["rows"]]

    assert sum(batches) == 6 and max(batches) <= 4 and len(batches) >= 2


def test_a_stream_survives_retention(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("ab"), rows("c", START + days(1)))
    consumer.drain()
    lake.drop_files(table, START + days(0.5))
    lake.append(table, rows("d", START + days(1)))

    consumer.drain()

    assert consumer.keys == list("abcd")
    assert sorted(row.key for row in spark.table(consumer.source).collect()) == ["c", "d"]


def test_without_skip_delete_retention_ends_the_stream_with_a_hint(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path, skip_delete=False)
    lake.append(table, rows("ab"), rows("c", START + days(1)))
    consumer.drain()
    lake.drop_files(table, START + days(0.5))
    lake.append(table, rows("d"))

    with pytest.raises(NotPossible) as failed:
        consumer.drain()

    assert "streaming-skip-delete-snapshots" in failed.value.hint


def follow_live(spark, table, tmp_path, act):
    """
    Run a live query, let `act` change the table after its first micro-batch, stop it after row `z`.
    """
    name, batches = table.name()[-1], []
    stream = read_stream.read(spark, name_of(table))
    started = read_stream.start(stream, f"table:queue.live_{name}", "lake", str(tmp_path / "live"), "50ms")

    def report(progress):
        batches.append(progress)
        if len(batches) == 1:
            act()

    def keys():
        return sorted(row.key for row in spark.table(f"lake.queue.live_{name}").select("key").collect())

    query.follow(started, lambda: bool(batches) and "z" in keys(), report)
    return keys()


def test_a_live_stream_survives_the_expiry_of_older_snapshots(spark, lake, tmp_path):
    table = lake.new_table()
    for key in "abc":
        lake.append(table, rows([key]))

    def expire_all_but_the_newest():
        spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{name_of(table)}', "
            f"older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
        )
        lake.append(table, rows("z"))

    assert follow_live(spark, table, tmp_path, expire_all_but_the_newest) == list("abcz")
    assert spark.table(f"{name_of(table)}.snapshots").count() == 2


def test_a_stream_that_fell_behind_expiry_ends_with_a_hint(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("a"))
    consumer.drain()
    for key in "bc":
        lake.append(table, rows([key]))
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{consumer.source}', "
        f"older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )

    with pytest.raises(NotPossible) as failed:
        consumer.drain()

    assert "--checkpoint" in failed.value.hint


def test_rewritten_rows_end_the_stream_with_a_hint(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("ab"))
    consumer.drain()
    spark.sql(f"DELETE FROM {consumer.source} WHERE key = 'a'")
    lake.append(table, rows("c"))

    with pytest.raises(NotPossible) as failed:
        consumer.drain()

    assert "Rows were rewritten" in failed.value.hint


def test_a_missing_snapshot_ends_the_stream_with_a_hint(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("a"))
    consumer.drain()
    gone = lake.append(table, rows("b")).current_snapshot().snapshot_id
    table = lake.append(table, rows("c"))
    table.maintenance.expire_snapshots().by_id(gone).commit()

    with pytest.raises(NotPossible) as failed:
        consumer.drain()

    assert "after the stream's offset were expired" in failed.value.hint


def test_a_drained_available_now_stream_is_cut_off_by_expiry_and_mended_by_its_first_offset(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    for key in "ab":
        lake.append(table, rows([key]))
        consumer.drain_with_sparks_own_trigger()
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{consumer.source}', "
        f"older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    lake.append(table, rows("c"))
    with pytest.raises(NotPossible) as failed:
        consumer.drain_with_sparks_own_trigger()
    assert "docs/spark.md" in failed.value.hint

    first = Path(consumer.checkpoint) / "sources" / "0" / "offsets" / "0"
    first.write_text('{"version":1,"snapshot_id":-1,"position":-1,"scan_all_files":false}')
    first.with_name(".0.crc").unlink()
    consumer.drain_with_sparks_own_trigger()

    assert consumer.keys == list("abc")


def test_a_stream_skips_compaction_without_loss_or_repetition(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, *(rows([key]) for key in "abcde"))
    consumer.drain()
    lake.append(table, rows("f"))
    spark.sql(f"CALL lake.system.rewrite_data_files('{consumer.source}')")
    spark.sql(f"CALL lake.system.rewrite_manifests('{consumer.source}')")
    lake.append(table, rows("g"))

    consumer.drain()

    assert consumer.keys == list("abcdefg")


def test_a_live_stream_reads_on_when_a_column_is_added(spark, lake, tmp_path):
    table = lake.new_table()
    lake.append(table, rows("ab"))

    def add_a_column():
        spark.sql(f"ALTER TABLE {name_of(table)} ADD COLUMN note string")
        lake.append(table, [{**row, "note": "new"} for row in rows("z")])

    assert follow_live(spark, table, tmp_path, add_a_column) == list("abz")


def test_a_restarted_stream_sees_the_added_column(spark, lake, tmp_path):
    table = lake.new_table()
    consumer = Consumer(spark, table, tmp_path)
    lake.append(table, rows("a"))
    consumer.drain()
    spark.sql(f"ALTER TABLE {consumer.source} ADD COLUMN note string")
    spark.sql(f"ALTER TABLE lake.queue.{consumer.sink} ADD COLUMN note string")
    lake.append(table, [{**row, "note": "new"} for row in rows("b")])

    consumer.drain()

    found = {row.key: row.note for row in spark.table(f"lake.queue.{consumer.sink}").collect()}
    assert found == {"a": None, "b": "new"}


def test_an_unknown_sink_is_refused(spark, lake, tmp_path):
    table = lake.new_table()
    stream = read_stream.read(spark, name_of(table))
    for sink in ("kafka", "table:", "table:name"):
        with pytest.raises(ConfigInvalid):
            read_stream.start(stream, sink, "lake", str(tmp_path), "1s")


def test_a_progress_says_when_its_rows_were_seen():
    progress = {
        "id": "q",
        "batchId": 7,
        "numInputRows": 3,
        "timestamp": "2026-01-01T12:00:00.250Z",
        "durationMs": {"triggerExecution": 1500},
        "sources": [{"endOffset": {"snapshot_id": 5, "position": 2}}],
    }

    said = query.summary(progress)

    assert (said["began"], said["seen"]) == ("2026-01-01T12:00:00.250+00:00", "2026-01-01T12:00:01.750+00:00")
    assert (said["rows"], said["end"]) == (3, {"snapshot_id": 5, "position": 2})
