"""What writers publish, committed by the real bookkeeper and read by Iceberg Java, in Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from bookkeeper.config.settings import Settings
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from spark_jobs import session
from tests.servers import spark as prepared
from tests.support import wide
from tests.support.writer_queue import Queue
from tests.writers.test_with_bookkeeper import content

pytestmark = pytest.mark.spark

#: Spark has no type for a time of day
COLUMNS = [name for name in wide.COLUMNS if name != "clock"]
NULLABLE = [field.model_copy(update={"required": False}) for field in wide.SCHEMA.fields if field.name != "clock"]
SPECS = [
    (),
    ("day(instant)", "bucket(4, text)"),
    ("hour(local)", "truncate(10, small)", "id"),
    ("month(day)", "bucket(3, id)", "truth"),
    ("year(local)", "truncate(2, text)", "bucket(5, cents)"),
    ("cents", "truncate(1, blob)", "bucket(4, blob)"),
    ("bucket(4, large)", "bucket(4, day)", "truncate(100, euros)", "bucket(3, local)"),
]
LITERALS = {
    "text": lambda value: f"'{value}'",
    "large": str,
    "small": str,
    "id": lambda value: f"'{value}'",
    "cents": lambda value: f"{value}BD",
    "euros": lambda value: f"{value}BD",
    "instant": lambda value: f"TIMESTAMP '{value.isoformat()}'",
    "local": lambda value: f"TIMESTAMP_NTZ '{value.isoformat()}'",
    "blob": lambda value: f"X'{value.hex()}'",
    "day": lambda value: f"DATE '{value}'",
    "truth": str,
}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(scope="module")
def spark(lakes: Path) -> Iterator[Any]:
    """A Spark session; the one of tests/spark when that runs in the same process."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    queue = Queue(lakes / "first", catalog="writers_first")
    built = running or prepared.session_on(Settings(queue.catalog_settings), app="writers")
    yield built
    if running is None:
        built.stop()


def _queue(spark: Any, root: Path, name: str, **settings: Any) -> Queue:
    """A queue in a catalog of its own, which Spark knows too."""
    queue = Queue(root / name, schema=Schema(*NULLABLE), catalog=f"writers_{name}", **settings)
    for key, value in session.confs(Settings(queue.catalog_settings), app="writers").items():
        if key.startswith(f"spark.sql.catalog.writers_{name}"):
            spark.conf.set(key, value)
    return queue


def _publish(queue: Queue, truth: list[dict[str, Any]]) -> None:
    half = len(truth) // 2
    with queue.writer() as writer:
        for part in (truth[:half], truth[half:]):
            writer.write(wide.table(part).drop_columns(["clock"]))
            writer.publish()
    queue.tick()


@pytest.mark.parametrize(
    "file_format, number", [*(("parquet", number) for number in range(len(SPECS))), ("avro", 0), ("avro", 4)]
)
def test_spark_reads_every_row_and_filters_find_theirs(spark: Any, lakes: Path, file_format: str, number: int) -> None:
    queue = _queue(
        spark, lakes, f"{file_format}{number}", partition_by=SPECS[number], file_format=file_format, compression="gzip"
    )
    truth = content(40)
    _publish(queue, truth)
    table = f"writers_{file_format}{number}.demo.events"
    found = {row["small"]: row.asDict(recursive=True) for row in spark.table(table).collect()}
    assert len(found) == 40
    for row in truth:
        assert found[row["small"]] == _as_spark(row)
    for name, literal in LITERALS.items():
        if not any(name in field for field in SPECS[number] or LITERALS):
            continue
        value = truth[8][name]
        expected = sorted(row["small"] for row in truth if row[name] == value)
        rows = spark.sql(f"SELECT small FROM {table} WHERE {name} = {literal(value)}").collect()
        assert sorted(row["small"] for row in rows) == expected, name
        nulls = spark.sql(f"SELECT count(*) FROM {table} WHERE {name} IS NULL").first()[0]
        assert nulls == sum(row[name] is None for row in truth), name


def _as_spark(row: dict[str, Any]) -> dict[str, Any]:
    shown = {key: value for key, value in row.items() if key != "clock"}
    shown["counts"] = None if row["counts"] is None else dict(row["counts"])
    shown["id"] = None if row["id"] is None else str(row["id"])
    for name in ("blob", "hash"):
        shown[name] = None if row[name] is None else bytearray(row[name])
    if row["instant"] is not None:
        shown["instant"] = row["instant"].astimezone().replace(tzinfo=None)
    return shown


def test_spark_sees_the_metrics_of_avro_files(spark: Any, lakes: Path) -> None:
    queue = _queue(spark, lakes, "metrics", partition_by=(), file_format="avro", compression="gzip")
    truth = content(14)
    _publish(queue, truth)
    wanted = "m.small.lower_bound, m.small.upper_bound, m.small.value_count, m.text.null_value_count"
    metrics = spark.sql(
        f"SELECT {wanted} FROM (SELECT readable_metrics m FROM writers_metrics.demo.events.files) ORDER BY 1"
    ).collect()
    assert [tuple(row) for row in metrics] == [(-5, 1, 7, 1), (2, 8, 7, 1)]


def test_rows_of_all_formats_live_side_by_side_and_survive_a_rewrite(spark: Any, lakes: Path) -> None:
    queue = _queue(spark, lakes, "mixed", partition_by=("bucket(2, text)",), compression="gzip")
    truth = content(30)
    for file_format, part in (("avro", truth[:15]), ("parquet", truth[15:])):
        _with_format(queue, file_format)
        _publish(queue, part)
    table = "writers_mixed.demo.events"
    assert {row["file_format"] for row in spark.sql(f"SELECT file_format FROM {table}.files").collect()} == {
        "AVRO",
        "PARQUET",
    }
    options = "map('rewrite-all', 'true')"
    spark.sql(f"CALL writers_mixed.system.rewrite_data_files(table => 'demo.events', options => {options})")
    found = {row["small"]: row.asDict(recursive=True) for row in spark.table(table).collect()}
    assert found == {row["small"]: _as_spark(row) for row in truth}


def _with_format(queue: Queue, file_format: str) -> None:
    folder = Folder(open_store(queue.made.folder))
    folder.write_card(replace(folder.card(), file_format=file_format))
