"""
A Spark stream writes into the queue's table while another program commits to it.
"""

import json
import os
import shutil
import subprocess
import sys
from functools import partial

import pytest
from click.testing import CliRunner

from bookkeeper.config.settings import Settings
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs import query, write_stream
from spark_jobs.write_stream_source import Source
from tests.spark.conftest import new_catalog, registered
from tests.support import spark_lake as lake_module
from tests.support.keyed import keyed_lake
from tests.support.lake import Lake, WallClock
from tests.support.spark_lake import START, name_of, rows
from tests.support.threads import again_and_again


def write(spark, table, tmp_path, source, act=lambda progress: None, stopped=lambda: False, trigger="available-now"):
    schema = spark.table(name_of(table)).schema
    stream = Source(source).read(spark, schema)
    started = write_stream.start(stream, name_of(table), str(tmp_path / "checkpoint"), trigger)
    query.follow(started, stopped, act)


def keys(spark, table):
    return sorted(row.key for row in spark.table(name_of(table)).select("key").collect())


def operators(spark, table):
    """
    Which programs committed between the first and the last commit of the other.
    """
    snapshots = spark.table(f"{name_of(table)}.snapshots").orderBy("committed_at").collect()
    by = ["SparkStream" if "spark.app.id" in snapshot.summary else "Committer" for snapshot in snapshots]
    return set(by[by.index("Committer") : len(by) - by[::-1].index("Committer")]) if "Committer" in by else set()


def lines(folder, name, names):
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps({"timestamp": START.isoformat(), "key": key, "value": "AA=="}) + "\n" for key in names)
    (folder / name).write_text(text)


def test_a_folder_of_json_lines_is_appended_once(spark, lake, tmp_path):
    table = lake.new_table()
    lines(tmp_path / "in", "1.json", "ab")
    write(spark, table, tmp_path, f"json:{tmp_path}/in")
    lines(tmp_path / "in", "2.json", "c")
    write(spark, table, tmp_path, f"json:{tmp_path}/in")
    write(spark, table, tmp_path, f"json:{tmp_path}/in")

    assert keys(spark, table) == list("abc")


def test_a_folder_of_parquet_files_is_appended(spark, lake, tmp_path):
    origin = lake.append(lake.new_table(), rows("ab"))
    table = lake.new_table()

    write(spark, table, tmp_path, f"parquet:{origin.location()}/data")

    assert keys(spark, table) == list("ab")


def test_rows_are_generated_for_every_column_of_the_table(spark, lake, tmp_path):
    table = lake.new_table()
    batches = []
    write(
        spark, table, tmp_path, "rate:50", act=batches.append, trigger="50ms",
        stopped=lambda: any(batch["rows"] for batch in batches),
    )  # fmt: skip

    found = spark.table(name_of(table)).collect()
    assert found and {row.key for row in found} == {f"spark-{number}" for number in range(len(found))}
    assert all(row.timestamp and bytes(row.value).startswith(b"spark-") for row in found)


def test_a_stream_and_a_committer_in_another_process_lose_nothing_to_each_other(spark, lake, tmp_path):
    # Five tries, Iceberg's default, may all lose against a committer that never rests.
    table = lake.new_table(**{"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "500"})
    ours, batches = [], []
    command = [sys.executable, "-m", lake_module.__name__, str(lake.config), table.name()[-1]]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, text=True) as process:

        def commit_once_more():
            ours.append(f"ours-{len(ours)}")
            process.stdin.write(f"{ours[-1]}\n")
            process.stdin.flush()
            # On a busy machine the other process begins after many batches.
            return len(batches) >= 4 and operators(spark, table) == {"SparkStream", "Committer"}

        write(spark, table, tmp_path, "rate:100", batches.append, commit_once_more, trigger="50ms")
        process.communicate()

    found = keys(spark, table)
    theirs = {key for key in found if key.startswith("spark-")}
    assert process.returncode == 0
    assert found == sorted({*ours, *theirs})
    assert theirs == {f"spark-{number}" for number in range(len(theirs))}
    assert operators(spark, table) == {"SparkStream", "Committer"}


@pytest.fixture
def queue(tmp_path, spark, lake):
    """A table with its txlog folder, in a catalog that Spark knows, and a bookkeeper that ticks."""
    made = registered(Lake(tmp_path / "lake", WallClock(), catalog=new_catalog(), file_names="strict"), spark, lake)
    with ticking(made):
        yield made


def ticking(made):
    """A bookkeeper that ticks beside the block."""
    book = made.book()
    return again_and_again(lambda: made.tick(book), 0.1)


def through(spark, queue, tmp_path, checkpoint="checkpoint", schema=None, **options):
    """A run of the job over what is in the folder `in`."""
    settings = Settings(queue.catalog_settings, tables={"events": queue.settings})
    origin = partial(Source(f"json:{tmp_path}/in", schema).read, spark)
    given = {"trigger": "available-now", "stopped": lambda: False, "output": write_stream.Output(**options)}
    write_stream.write(spark, settings, "events", str(tmp_path / checkpoint), origin, **given)


def killed_before_commit_log(checkpoint):
    """As if the driver was killed behind the commit of the last batch, before Spark's own note of it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()


def test_micro_batches_are_committed_by_the_bookkeeper_and_one_that_is_given_again_once(spark, queue, tmp_path):
    lines(tmp_path / "in", "1.json", "ab")
    through(spark, queue, tmp_path)
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert queue.folder.marks().marks.writer(f"spark-{query}").position.startswith(b"spark/")
    killed_before_commit_log(tmp_path / "checkpoint")
    lines(tmp_path / "in", "2.json", "c")
    through(spark, queue, tmp_path)

    assert queue.keys() == list("abc")
    assert [snapshot.summary["spark.app.id"] for snapshot in queue.table().metadata.snapshots] == [None, None]
    assert queue.rejected() == {}


def test_a_copy_of_the_checkpoint_is_refused_once_the_other_has_gone_on(spark, queue, tmp_path):
    lines(tmp_path / "in", "1.json", "a")
    through(spark, queue, tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    lines(tmp_path / "in", "2.json", "b")
    through(spark, queue, tmp_path)
    lines(tmp_path / "in", "3.json", "c")
    with pytest.raises(NotPossible, match="an old or a second one of its query"):
        through(spark, queue, tmp_path, "copy")

    assert queue.keys() == list("ab")


def test_a_checkpoint_goes_on_through_txlogs_behind_the_last_batch_that_spark_committed(spark, queue, tmp_path):
    lines(tmp_path / "in", "1.json", "ab")
    through(spark, queue, tmp_path, commit="by-spark")
    killed_before_commit_log(tmp_path / "checkpoint")
    lines(tmp_path / "in", "2.json", "c")
    through(spark, queue, tmp_path)
    through(spark, queue, tmp_path)

    assert queue.keys() == list("abc")


@pytest.mark.parametrize("name", [None, "orders"])
def test_iceberg_s_sink_is_not_given_a_batch_that_is_in_a_txlog(spark, queue, tmp_path, name):
    lines(tmp_path / "in", "1.json", "ab")
    through(spark, queue, tmp_path, name=name)
    killed_before_commit_log(tmp_path / "checkpoint")
    with pytest.raises(NotPossible, match="batch 0 of the query is in a txlog") as caught:
        through(spark, queue, tmp_path, commit="by-spark")
    assert "--commit by-bookkeeper" in caught.value.hint
    through(spark, queue, tmp_path, name=name)
    lines(tmp_path / "in", "2.json", "c")
    through(spark, queue, tmp_path, commit="by-spark")

    assert queue.keys() == list("abc")
    assert queue.table().current_snapshot().summary["spark.app.id"] is not None


def test_a_name_that_is_given_names_the_writer(spark, queue, tmp_path):
    lines(tmp_path / "in", "1.json", "a")
    through(spark, queue, tmp_path, name="orders")

    assert queue.folder.marks().marks.writer("orders").position is not None


def test_a_wrong_mode_and_a_table_without_a_bookkeeper_are_said_before_the_query_runs(spark, lake, queue, tmp_path):
    lines(tmp_path / "in", "1.json", "a")
    with pytest.raises(ConfigInvalid, match="'append' or 'upsert' is expected"):
        through(spark, queue, tmp_path, mode="update")
    with pytest.raises(ConfigInvalid, match="order_by= and deletes="):
        through(spark, queue, tmp_path, order_by=("seq",))
    with pytest.raises(NotPossible, match="has no key"):
        through(spark, queue, tmp_path, "of-upserts", mode="upsert")
    table = lake.new_table()
    given = {"trigger": "available-now", "stopped": lambda: False}
    origin = partial(Source(f"json:{tmp_path}/in").read, spark)
    with pytest.raises(NotPossible, match="no bookkeeper commits for this table") as caught:
        write_stream.write(spark, lake.settings, table.name()[-1], str(tmp_path / "checkpoint"), origin, **given)

    assert "--commit by-spark" in caught.value.hint
    assert not (tmp_path / "checkpoint").exists()


def test_rows_have_no_columns_that_a_writer_of_a_keyed_table_fills(spark, keyed):
    columns = spark.table(f"{keyed.catalog_settings.name}.{keyed.settings.identifier}").schema
    given = write_stream.given_columns(keyed.folder.card(), columns)

    assert {*columns.names} - {*given.names} == {"op", "seq"}
    assert write_stream.given_columns(keyed.folder.card(), given) == given


def test_the_job_upserts_and_deletes_by_key(spark, lake, tmp_path):
    made = registered(keyed_lake(tmp_path / "lake", WallClock(), catalog=new_catalog()), spark, lake)
    (tmp_path / "in").mkdir()
    changes = [
        (1, "old", 1, False),
        (1, "new", 2, False),
        (2, "gone", 1, False),
        (2, None, 2, True),
        (3, "c", 1, False),
    ]
    given = [json.dumps(dict(zip(("id", "value", "at", "gone"), change, strict=True))) for change in changes]
    (tmp_path / "in" / "1.json").write_text("\n".join(given))
    schema = "id BIGINT, value STRING, at BIGINT, gone BOOLEAN"
    with ticking(made):
        through(spark, made, tmp_path, schema=schema, mode="upsert", order_by=("at",), deletes="gone")

    table = spark.table(f"{made.catalog_settings.name}.{made.settings.identifier}").where("op <> 'delete'")
    assert sorted((row.id, row.value) for row in table.collect()) == [(1, "new"), (3, "c")]


def test_spark_itself_upserts_nothing():
    words = ["--checkpoint", "cp", "--commit", "by-spark", "--mode", "upsert"]
    assert "Spark itself only appends" in CliRunner().invoke(write_stream.main, words).output


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"take_over": "spark/x"}, "Give its --name"),
        ({"take_over": "spark/x", "name": "q", "commit": write_stream.BY_SPARK}, "--take-over"),
        ({"distribution": "hash", "commit": write_stream.BY_SPARK}, "write.distribution-mode"),
        ({"mode": "upsert", "commit": write_stream.BY_SPARK}, "Leave --commit out"),
    ],
)
def test_options_that_do_not_fit_are_refused(given, why):
    with pytest.raises(ConfigInvalid) as caught:
        write_stream.Output(**given)
    assert why in f"{caught.value} {caught.value.hint}"
