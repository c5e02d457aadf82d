"""
Consumers as Spark really leaves them: read from a live checkpoint, registered by the job, mended and started again.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bookkeeper.catalogs.commit import load_table
from bookkeeper.config.settings import Reaper
from bookkeeper.consumers.lag import added_files, lag
from bookkeeper.contract import marks
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import NotPossible, WrongFolder
from bookkeeper.history import mend as mending
from bookkeeper.history.checkpoint_store import open_checkpoint
from bookkeeper.history.consumer_state import LIVE, STALLED, TO_MEND, evaluate, read_all
from bookkeeper.history.registry import COMMAND, JOB, Registry
from bookkeeper.history.registry import spark as query_of
from bookkeeper.stores.open import open_store
from spark_jobs import query, read_stream, register
from tests.support.cards import card
from tests.support.spark_lake import append_declared, folder_of, name_of, rows

NOW = datetime(2050, 1, 1, tzinfo=UTC)


class Reader:
    """A stream that drains when a test asks, and what a checkpoint reader makes of it."""

    def __init__(self, spark, lake, table, folder, trigger="available-now", **options):
        self.spark, self.lake, self.trigger, self.options = spark, lake, trigger, options
        self.source, self.sink = name_of(table), f"seen_{table.name()[-1]}"
        self.identifier, self.checkpoint = ".".join(table.name()), folder / "cp"
        self.registry = Registry(open_store(str(folder_of(table))))
        consumer = query_of("q", f"file://{self.checkpoint}", NOW, available_now=True, by=COMMAND)
        self.registry.add(consumer)

    def drain(self):
        stream = read_stream.read(self.spark, self.source, **self.options)
        sink = f"table:queue.{self.sink}"
        query.follow(
            read_stream.start(stream, sink, "lake", str(self.checkpoint), self.trigger), lambda: False, lambda it: None
        )

    @property
    def keys(self):
        return sorted(row.key for row in self.spark.table(f"lake.queue.{self.sink}").select("key").collect())

    @property
    def standing(self):
        readings = read_all(self.registry, open_store)
        return evaluate(readings, load_table(self.lake.catalog, self.identifier).metadata, Reaper(), NOW)[0]

    @property
    def lag(self):
        table = load_table(self.lake.catalog, self.identifier)
        return lag(self.standing, table.metadata, added_files(table.io), NOW)

    def expire(self):
        self.spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{self.source}', "
            f"older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
        )


def test_the_lag_of_a_real_stream_is_what_it_then_reads(spark, lake, tmp_path):
    table = lake.new_table()
    lake.append(table, rows("ab"))
    reader = Reader(spark, lake, table, tmp_path)
    reader.drain()
    assert (reader.lag.rows, reader.lag.files, reader.standing.state) == (0, 0, LIVE)

    lake.append(table, rows("cde"), rows("f"))
    lake.append(table, rows("g"))
    spark.sql(f"CALL lake.system.rewrite_manifests('{reader.source}')")

    assert (reader.lag.snapshots, reader.lag.files, reader.lag.rows) == (2, 3, 5)
    reader.drain()
    assert (reader.lag.rows, reader.keys) == (0, list("abcdefg"))


def test_the_lag_in_the_middle_of_a_snapshot_is_exact(spark, lake, tmp_path):
    table = lake.append(lake.new_table(), *(rows(keys) for keys in ("a", "bb", "ccc", "dddd")))
    reader = Reader(spark, lake, table, tmp_path, trigger="50ms", max_files=2)
    stream = read_stream.read(spark, reader.source, max_files=2)
    started = read_stream.start(stream, f"table:queue.{reader.sink}", "lake", str(reader.checkpoint), "1h")
    # The first micro-batch runs at once, the second an hour later.
    done = []
    query.follow(started, lambda: bool(done), done.append)

    assert (reader.lag.files, reader.lag.rows) == (2, 10 - len(reader.keys))


def test_an_expired_first_offset_is_mended_and_every_row_comes_once(spark, lake, tmp_path):
    table = lake.new_table()
    lake.append(table, rows("a"))
    reader = Reader(spark, lake, table, tmp_path)
    reader.drain()
    lake.append(table, rows("b"))
    reader.drain()
    assert reader.standing.bound_to_grow
    reader.expire()
    lake.append(table, rows("c"))
    assert reader.standing.state == TO_MEND
    with pytest.raises(NotPossible):
        reader.drain()

    place = open_checkpoint(f"file://{reader.checkpoint}")
    planned = mending.plan(reader.standing, place)
    assert planned and '"snapshot_id":-1' in planned.after and '"snapshot_id":-1' not in planned.before
    mending.mend(place, planned, None)
    reader.drain()
    reader.drain()

    assert reader.keys == list("abc")
    assert (reader.standing.state, reader.lag.rows) == (LIVE, 0)


def test_a_stalled_query_is_mended_and_goes_on(spark, lake, tmp_path):
    table = lake.new_table()
    reader = Reader(spark, lake, table, tmp_path)
    for key in "abcde":
        append_declared(lake, table, key)
    reader.drain()
    assert (reader.keys, reader.standing.state, reader.lag.snapshots) == (list("abc"), STALLED, 2)
    reader.drain()
    assert reader.keys == list("abc")

    place = open_checkpoint(f"file://{reader.checkpoint}")
    planned = mending.plan(reader.standing, place)
    assert (
        planned and mending.mend(place, planned, None).initial == reader.standing.checkpoint_read.checkpoint.committed
    )
    reader.drain()

    assert (reader.keys, reader.standing.state, reader.lag.snapshots) == (list("abcde"), LIVE, 0)
    reader.drain()
    assert reader.keys == list("abcde")


@pytest.mark.parametrize("left", ["file without checksum", "nothing"])
def test_a_mend_that_was_cut_off_leaves_a_query_that_starts(spark, lake, tmp_path, left):
    table = lake.new_table()
    for key in "ab":
        lake.append(table, rows([key]))
    reader = Reader(spark, lake, table, tmp_path)
    reader.drain()
    first = reader.checkpoint / "sources/0/offsets/0"
    first.with_name(".0.crc").unlink()
    if left == "nothing":
        reader.expire()
        first.unlink()
    lake.append(table, rows("c"))

    reader.drain()

    assert reader.keys == list("abc")


@pytest.mark.parametrize("of", [None, "demo.other"])
def test_the_job_registers_nothing_in_a_folder_that_is_not_the_tables(spark, lake, tmp_path, of):
    """As where its disk is not mounted, or `folder` is another one: no reaper would see the query."""
    table = lake.append(lake.new_table(**{marks.PROPERTY: "{}"}), rows("a"))
    settings = lake.settings.tables[table.name()[-1]]
    folder = Folder(open_store(str(folder_of(table))))
    if of:
        folder.write_card(card(table=of))
    before = [item.key for item in folder.store.list("")]

    with pytest.raises(WrongFolder, match=of or r"no card\.json"):
        register.register(spark, lake.settings, settings, name_of(table), str(tmp_path / "cp"), NOW, available_now=True)

    assert [item.key for item in folder.store.list("")] == before


def test_the_job_registers_its_query_before_it_starts(spark, lake, tmp_path):
    table = lake.append(lake.new_table(), rows("a"))
    settings = lake.settings.tables[table.name()[-1]]
    checkpoint = str(tmp_path / "cp")

    found = register.register(spark, lake.settings, settings, name_of(table), checkpoint, NOW, available_now=True)

    (seen,) = Registry(open_store(str(folder_of(table)))).all()
    assert (seen, seen.by, seen.available_now) == (found, JOB, True)
    assert (Path(seen.checkpoint.removeprefix("file://")), seen.name[:3]) == (tmp_path / "cp", "cp-")
    again = register.register(
        spark, lake.settings, settings, name_of(table), checkpoint, NOW, available_now=False, consumer="live"
    )
    assert (again.name, again.checkpoint) == ("live", seen.checkpoint)
