"""
Where a new query begins, by each word of --start, on tables of every kind; what is refused, and what is said.
"""

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.table import Table

from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.history.checkpoint import Offset
from bookkeeper.history.main_history import is_ours
from spark_jobs import begin_plan, drain, job, query, read_stream, sinks
from spark_jobs import start_option as starts
from spark_jobs.begin import Beginning, begin
from tests.support.spark_lake import SharedCatalog, days, name_of, rows

NOW = datetime(2050, 1, 1, tzinfo=UTC)
_sinks = count(1)


class Job:
    """The job read_stream as its command line starts it, with a sink of its own."""

    def __init__(self, spark: Any, lake: SharedCatalog, table: Table, folder: Any, monkeypatch: Any) -> None:
        self.spark, self.lake, self.name = spark, lake, table.name()[-1]
        self.sink, self.checkpoint = f"queue.{self.name}_sink{next(_sinks)}", folder / "checkpoint"
        monkeypatch.setattr(job, "begin", lambda *_: spark)
        monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def run(self, *more: str, exit_code: int = 0) -> str:
        words = ["--config", self.lake.config, "--table", self.name, "--checkpoint", self.checkpoint]
        words += ["--trigger", "available-now", "--sink", f"table:{self.sink}", *more]
        done = CliRunner().invoke(read_stream.main, [*map(str, words)])
        assert done.exit_code == exit_code, done.output
        return done.output

    @property
    def keys(self) -> str:
        return "".join(sorted(row.key for row in self.spark.table(f"lake.{self.sink}").collect()))


@pytest.fixture
def table(lake: SharedCatalog) -> Table:
    return lake.new_table()


@pytest.fixture
def reader(spark: Any, lake: SharedCatalog, table: Table, tmp_path: Any, monkeypatch: Any) -> Job:
    return Job(spark, lake, table, tmp_path, monkeypatch)


def expire(lake: SharedCatalog, table: Table, keep: int = 1) -> None:
    """All snapshots but the newest; each test has less than ten."""
    table = lake.load(table)
    ids = [item.snapshot_id for item in sorted(table.metadata.snapshots, key=lambda item: item.sequence_number)]
    table.maintenance.expire_snapshots().by_ids(ids[:-keep]).commit()


def rewrite(spark: Any, table: Table) -> None:
    everything = "options => map('rewrite-all', 'true')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name_of(table)}', {everything})")


def committed(table: Table) -> str:
    return datetime.fromtimestamp(table.current_snapshot().timestamp_ms / 1000, UTC).isoformat()


def test_behind_an_overwrite_it_begins_once_a_stream_can(
    spark: Any, lake: SharedCatalog, table: Table, reader: Job
) -> None:
    """From the newest append on its stream would end at the overwrite, and what the batch read was overwritten."""
    lake.append(table, rows("a"))
    lake.append(table, rows("b"))
    spark.sql(f"UPDATE {name_of(table)} SET key = 'z' WHERE key = 'a'")
    assert "overwrote rows" in reader.run(exit_code=1)
    rewrite(spark, table)
    assert "first a batch: 2 rows" in reader.run()
    assert reader.keys == "bz"
    lake.append(table, rows("c"))
    reader.run()
    assert reader.keys == "bcz"


def test_it_begins_with_all_rows_and_goes_on_whatever_start_says_then(spark, lake, table, reader, tmp_path) -> None:
    for key in "abc":
        lake.append(table, rows(key))
    expire(lake, table)
    progress = tmp_path / "progress.jsonl"
    assert "first a batch: 3 rows in 3 files" in reader.run("--progress", str(progress))
    (said,) = map(json.loads, progress.read_text().splitlines())
    assert (said["batch"], said["rows"]) == (-1, 3) and said["began"] <= said["seen"]
    lake.append(table, rows("d"))
    said = reader.run("--start", "end")
    assert "has begun and goes on: --start end counts for a new one" in said
    assert reader.keys == "abcd"


def test_oldest_says_how_many_rows_it_leaves_out(spark, lake, table, reader) -> None:
    for keys in ("abc", "d", "e"):
        lake.append(table, rows(keys))
    expire(lake, table, keep=2)
    assert "--start oldest leaves out 3 rows that lake.queue" in reader.run("--start", "oldest")
    assert reader.keys == "de"


def test_rows_that_were_rewritten_since_count_apart(spark, lake, table) -> None:
    for keys in ("abc", "d"):
        lake.append(table, rows(keys))
    expire(lake, table)
    assert starts.left_out(spark, starts.load(spark, name_of(table))) == (3, 0)
    rewrite(spark, table)
    assert starts.left_out(spark, starts.load(spark, name_of(table))) == (0, 4)


def test_end_reads_only_what_is_committed_from_then_on(spark, lake, table, reader) -> None:
    lake.append(table, rows("ab"), rows("c"))
    lake.drop_files(table, rows("a")[0]["timestamp"] - days(1))
    reader.run("--start", "end")
    lake.append(table, rows("d"))
    reader.run("--start", "end")
    assert reader.keys == "d"


def test_a_time_reads_what_was_committed_since_and_is_refused_when_that_is_expired(
    spark, lake, table, reader, tmp_path
) -> None:
    for key in "abc":
        table = lake.append(table, rows(key))
        if key == "b":
            since = committed(table)
    expire(lake, table, keep=2)
    said = reader.run("--start", since, exit_code=1)
    assert "are expired: what came since" in said and "--start beginning" in said
    assert not (reader.checkpoint / "bookkeeper-begin.json").exists()
    reader.run("--from", committed(table))
    assert reader.keys == "c"


def test_a_time_on_a_table_with_all_its_commits_may_be_before_them(spark, lake, table) -> None:
    first = lake.append(table, rows("ab")).current_snapshot().snapshot_id
    found = starts.load(spark, name_of(table))
    assert found.first_of(datetime(2020, 1, 1, tzinfo=UTC)) == Offset(first, 0)
    assert found.first_of(NOW) == found.first_of(starts.END) == Offset(first, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latest", "beginning, oldest, end, a time"),
        ("2026-01-31T12:00:00", "names no zone"),
        ("2999-01-01T00:00:00Z", "has not come yet"),
    ],
)
def test_a_time_without_a_zone_or_in_the_future_and_other_words_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        found = starts.parsed(text, NOW)
        assert found is not None
        starts.check(found, NOW)


def test_an_age_is_a_time_and_nothing_given_is_nothing() -> None:
    assert starts.parsed("10m", NOW) == NOW - timedelta(minutes=10)
    assert starts.parsed("end", NOW) == "end" and starts.parsed(None, NOW) is None


def test_a_table_without_a_commit_makes_the_sink_and_then_each_row_comes_once(lake, table, reader) -> None:
    reader.run()
    assert reader.keys == ""
    lake.append(table, rows("ab"))
    lake.append(table, rows("c"))
    reader.run()
    assert reader.keys == "abc"


def test_a_newest_append_without_files_is_a_beginning_too(spark, lake, table, reader) -> None:
    lake.append(table, rows("ab"))
    lake.append_files(table)
    expire(lake, table)
    reader.run()
    lake.append_files(table)
    lake.append(table, rows("c"), rows("d"))
    reader.run("--max-files", "1")
    assert reader.keys == "abcd"


def test_a_table_of_which_no_append_is_kept_is_read_whole(spark, lake, table, reader) -> None:
    lake.append(table, rows("ab"))
    lake.append(table, rows("c"))
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name_of(table)}', options => map('rewrite-all', 'true'))"
    )
    expire(lake, table)
    assert [item.summary.operation.value for item in lake.load(table).metadata.snapshots] == ["replace"]
    reader.run()
    lake.append(table, rows("d"), rows("e"))
    reader.run("--max-files", "1")
    assert reader.keys == "abcde"


def test_files_of_an_append_that_merged_manifests_are_read_once(spark, lake, table, reader) -> None:
    """Iceberg's own append may list manifests of files that it took over before its own, and its offsets count them."""
    name = name_of(table)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '2')")
    lake.append(table, rows("a"))
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD timestamp_day")
    for key in "bc":
        lake.append(table, rows(key), rows(key.upper()))
    added = spark.table(name).limit(1).selectExpr("timestamp", "'d' AS key", "value")
    added.writeTo(name).option("output-spec-id", "0").append()
    manifests = lake.load(table).current_snapshot().manifests(lake.load(table).io)
    assert [(item.added_files_count, item.existing_files_count) for item in manifests] == [(0, 4), (1, 1)]
    reader.run()
    stream, sink, checkpoint = read_stream.read(spark, name), f"table:{reader.sink}", str(reader.checkpoint)
    started = sinks.start(stream, sink, "lake", checkpoint, "50ms")
    query.follow(started, lambda: started.status["message"] == "Waiting for data to arrive")
    assert reader.keys == "BCabcd"
    lake.append(table, rows("e"))
    reader.run("--max-files", "1")
    assert reader.keys == "BCabcde"


def test_rows_of_before_a_change_of_columns_come_in_the_columns_of_now(spark, lake, table, reader) -> None:
    lake.append(table, rows("ab"))
    name = name_of(table)
    spark.sql(f"ALTER TABLE {name} ADD COLUMN note string")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN value TO content")
    reader.run()
    lake.append(table, [{**row, "content": row.pop("value"), "note": "new"} for row in rows("c")])
    reader.run()
    found = spark.table(f"lake.{reader.sink}").collect()
    assert sorted((row.key, bytes(row.content), row.note) for row in found) == [
        ("a", b"a", None), ("b", b"b", None), ("c", b"c", "new")
    ]  # fmt: skip


def test_a_first_offset_that_spark_wrote_and_never_used_does_not_count(spark, lake, table, reader) -> None:
    for key in "abc":
        lake.append(table, rows(key))
    oldest = begin_plan.seed_text(starts.load(spark, name_of(table)).first_of(starts.OLDEST))
    expire(lake, table)
    for folder in ("offsets", "commits", "sources/0/offsets"):
        (reader.checkpoint / folder).mkdir(parents=True)
    (reader.checkpoint / "sources/0/offsets/0").write_text(oldest)
    reader.run()
    assert reader.keys == "abc"


def test_a_checkpoint_of_another_table_or_of_several_and_a_plan_that_is_none_are_refused(
    spark, lake, table, reader
) -> None:
    lake.append(table, rows("a"))
    plan = reader.checkpoint / begin_plan.PLAN
    plan.parent.mkdir()
    other = begin_plan.Plan("another", "beginning", "id", Offset(None, 0), batch=True)
    for data, words in (
        (begin_plan.dumps(other), "begins the table another, and lake.queue"),
        (b"[" * 60_000, "holds no plan of a first batch"),
        (b'{"version": 9}', "has version 9"),
        (b" " * (2**24 + 1), "has 16,777,217 bytes"),
    ):
        plan.write_bytes(data)
        assert words in reader.run(exit_code=1)
    plan.unlink()
    (reader.checkpoint / "sources/1").mkdir(parents=True)
    assert "is of a query with several sources (sources/1)" in reader.run(exit_code=1)


def test_a_query_of_two_streams_is_refused(spark, lake, table, tmp_path) -> None:
    rows_of = read_stream.read(spark, name_of(table))
    with pytest.raises(NotPossible, match="the query reads 2 streams"):
        sinks.start(rows_of.union(read_stream.read(spark, name_of(table))), "noop", "lake", str(tmp_path), "1s")


def test_a_drain_of_a_new_checkpoint_that_would_leave_out_rows_is_refused(spark, lake, table, tmp_path) -> None:
    for key in "abc":
        lake.append(table, rows(key))
    expire(lake, table)

    def never(trigger: str) -> Any:
        raise AssertionError("a query was started")

    with pytest.raises(NotPossible, match="leaves out up to 2 rows that") as refused:
        drain.drain(spark, name_of(table), str(tmp_path / "cp"), never)
    assert "begin" in refused.value.hint


def utc_now() -> datetime:
    return datetime.now(UTC)


class Crash(BaseException):
    """Ends a run where it is; nothing catches it."""


def crash_behind_the_batch(spark: Any, lake: SharedCatalog, reader: Job, during: Any = lambda: None) -> Beginning:
    """A run that ends between the commit with its rows and the first offset."""
    output = sinks.TableOutput(spark, f"lake.{reader.sink}")
    with (
        pytest.raises(Crash),
        begin(
            spark, lake.settings, reader.name, str(reader.checkpoint), output=output, step=ending_before("seed")
        ) as first,
    ):
        during()
        sinks.write(first, f"table:{reader.sink}", "lake", utc_now)
    return first


def ending_before(step: str) -> Any:
    def stepped(name: str) -> None:
        if name == step:
            raise Crash

    return stepped


def test_whether_a_batch_is_in_is_not_guessed_when_the_commits_of_the_target_are_expired(
    spark, lake, table, reader
) -> None:
    lake.append(table, rows("ab"))
    first = crash_behind_the_batch(spark, lake, reader)
    target = lake.catalog.load_table(reader.sink)
    assert target.current_snapshot().summary.additional_properties[sinks.MARK] == first.id
    assert not is_ours(target.current_snapshot()), "a bookkeeper of the target would miss its marks"
    lake.append(target, rows("z"))
    expire(lake, target)
    assert "nothing tells any more whether" in reader.run(exit_code=1)
    spark.sql(f"DROP TABLE lake.{reader.sink}")
    reader.run()
    assert reader.keys == "ab"


def test_main_that_is_rolled_back_behind_the_batch_begins_no_stream(spark, lake, table, reader) -> None:
    before = lake.append(table, rows("a")).current_snapshot().snapshot_id
    lake.append(table, rows("b"))

    def roll_back() -> None:
        lake.load(table).manage_snapshots().set_current_snapshot(before).commit()

    output = sinks.TableOutput(spark, f"lake.{reader.sink}")
    with (
        pytest.raises(NotPossible, match="was rolled back or expired behind") as refused,
        begin(spark, lake.settings, reader.name, str(reader.checkpoint), output=output) as first,
    ):
        roll_back()
        sinks.write(first, f"table:{reader.sink}", "lake", utc_now)
    assert f"DROP TABLE lake.{reader.sink}" in refused.value.hint
    assert "the output has the rows of snapshot" in reader.run(exit_code=1)
    spark.sql(f"DROP TABLE lake.{reader.sink}")
    reader.run()
    assert reader.keys == "a"


def test_a_batch_that_is_in_goes_on_behind_it_whatever_start_says_then(spark, lake, table, reader) -> None:
    lake.append(table, rows("ab"))
    crash_behind_the_batch(spark, lake, reader)
    lake.append(table, rows("c"))
    assert "the output has the rows of snapshot" in reader.run("--start", "end")
    assert reader.keys == "abc"
