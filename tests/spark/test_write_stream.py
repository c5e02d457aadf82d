"""
A Spark stream writes into the queue's table while another program commits to it.
"""

import json
import os
import subprocess
import sys

import pytest

from bookkeeper.errors import ConfigInvalid
from spark_jobs import query, write_stream
from tests.support import spark_lake as lake_module
from tests.support.spark_lake import START, name_of, rows


def write(spark, table, tmp_path, source, act=lambda progress: None, stopped=lambda: False, trigger="available-now"):
    schema = spark.table(name_of(table)).schema
    stream = write_stream.source(spark, source, schema)
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
    command = [sys.executable, "-m", lake_module.__name__, str(lake.config_path), table.name()[-1]]
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


def test_an_unknown_source_is_refused(spark, lake):
    for text in ("kafka:topic", "rate:often", "json:", "rate"):
        with pytest.raises(ConfigInvalid, match="rate:ROWS_PER_SECOND"):
            write_stream.source(spark, text, spark.range(1).schema)
