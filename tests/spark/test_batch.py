"""
What we commit is an Iceberg table like any other to Spark.
"""

from pathlib import Path

from pyiceberg.expressions import EqualTo

from tests.support.spark_lake import START, days, name_of, rows


def test_spark_scans_what_was_appended(spark, lake):
    table = lake.append(lake.new_table(), rows(["a", "b"]), rows(["c"], START + days(1)))

    found = spark.table(name_of(table)).orderBy("key").collect()

    assert [(row.key, bytes(row.value)) for row in found] == [("a", b"a"), ("b", b"b"), ("c", b"c")]
    assert found[0].timestamp.astimezone(START.tzinfo) == START


def test_a_filtered_scan_reads_only_the_files_of_its_day(spark, lake):
    table = lake.append(lake.new_table(), rows(["a", "b"]), rows(["c"], START + days(1)))
    first_day = next(task.file.file_path for task in table.scan(EqualTo("key", "a")).plan_files())
    Path(first_day.removeprefix("file://")).unlink()

    second_day = spark.table(name_of(table)).where("timestamp >= TIMESTAMP '2026-01-02 00:00:00 UTC'")

    assert [row.key for row in second_day.select("key").collect()] == ["c"]


def test_spark_sees_files_with_their_metrics(spark, lake):
    table = lake.append(lake.new_table(), rows(["b", "a"]), rows(["c"], START + days(1)))

    files = spark.table(f"{name_of(table)}.files").orderBy("record_count").collect()

    assert [(file.record_count, file.readable_metrics.key.lower_bound) for file in files] == [
        (1, "c"),
        (2, "a"),
    ]


def test_spark_sees_every_snapshot_at_once(spark, lake):
    table = lake.new_table()
    name = name_of(table)
    for key in "abc":
        lake.append(table, rows([key]))
        newest = spark.table(f"{name}.snapshots").orderBy("committed_at").collect()[-1]
        assert (newest.operation, newest.summary["added-records"]) == ("append", "1")
    assert spark.table(name).count() == 3
