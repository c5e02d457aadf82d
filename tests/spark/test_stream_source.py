"""What the job write_stream reads: the options, and messages of Kafka in a table's columns."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from bookkeeper.config.settings import Catalog, Settings
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs import job, session
from spark_jobs.versions import EMBEDDED, KAFKA
from spark_jobs.write_stream_source import Source, messages_as
from tests.servers import spark as prepared
from tests.spark.test_jobs import environment

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MESSAGES = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
#: the JSON in values
EVENTS = "id bigint, name string"


def schema(spark: Any, columns: str) -> Any:
    return spark.createDataFrame([], columns).schema


def read(spark: Any, values: list[bytes | None], table: str, columns: str | None = None) -> list[Any]:
    """The rows that messages with these values become, with the offsets 7, 8, ..."""
    rows = [(b"k", value, "orders", 3, 7 + at, AT, 0) for at, value in enumerate(values)]
    found = messages_as(spark.createDataFrame(rows, MESSAGES), schema(spark, table), columns).collect()
    return [row.asDict() for row in found]


@pytest.mark.parametrize(
    "text",
    ["kafka:topic", "kafka:/topic", "kafka:host:9092/", "kafka:host:9092/a b", "kafka:host:9092/a,,b", "kafka:",
     "rate:often", "json:", "rate", "hive:t", ""],
)  # fmt: skip
def test_an_unknown_source_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="rate:ROWS_PER_SECOND"):
        Source(text)


def test_a_schema_of_generated_rows_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="makes rows of the table's columns"):
        Source("rate:10", schema=EVENTS)


def test_options_are_pairs() -> None:
    assert job.pairs("--option", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ConfigInvalid, match="--option a"):
        job.pairs("--option", ["a"])


def test_the_connector_is_asked_for_by_kafka_alone() -> None:
    settings = Settings(Catalog("lake", {"type": "sql", "uri": "sqlite:////w/cat.db", "warehouse": "file:///w"}))
    assert Source("json:/in").packages == ()
    without, beside = (
        session.confs(settings, app="x", more=Source(text).packages)["spark.jars.packages"]
        for text in ("rate:1", "kafka:a:9092,b:9092/orders,returns")
    )
    assert beside == f"{without},{KAFKA.coordinate}"


def test_without_a_schema_the_columns_are_those_of_a_message_that_the_table_has(spark: Any) -> None:
    table = "value string, offset bigint, partition bigint, other string"
    assert read(spark, [b"a", None], table) == [
        {"value": "a", "partition": 3, "offset": 7},
        {"value": None, "partition": 3, "offset": 8},
    ]
    with pytest.raises(ConfigInvalid, match="no column `value`") as caught:
        read(spark, [], "key binary, id bigint")
    assert "--schema" in caught.value.hint


def test_a_schema_reads_json_and_leaves_the_rest_to_the_message(spark: Any) -> None:
    table = f"{EVENTS}, topic string, offset bigint, timestamp timestamp"
    values = [b'{"id": 1, "name": "a", "more": 2}', None, b"", b'{"id": 2, "topic": "not this one"}']
    (first, second) = read(spark, values, table, EVENTS)
    assert first == {"id": 1, "name": "a", "topic": "orders", "offset": 7, "timestamp": AT.replace(tzinfo=None)}
    assert (second["id"], second["name"], second["topic"], second["offset"]) == (2, None, "orders", 10)
    assert read(spark, [b'{"id": 5, "topic": "t"}'], f"{EVENTS}, topic string", "table") == [
        {"id": 5, "name": None, "topic": "t"}
    ]


@pytest.mark.parametrize("value", [b'{"id": "x"}', b'{"id": 1', b"[]", b"5", b"null", b'{"id": 1.5}'])
def test_a_value_that_does_not_fit_ends_the_query_or_is_kept_as_text(spark: Any, value: bytes) -> None:
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        read(spark, [value], EVENTS, EVENTS)
    kept = f"{EVENTS}, _corrupt_record string"
    (row,) = read(spark, [value], kept, kept)
    assert row == {"id": None, "name": None, "_corrupt_record": value.decode()}


@pytest.mark.parametrize("ddl", ["id", "id bigint name", "int"])
def test_a_schema_that_is_none_is_refused(spark: Any, ddl: str) -> None:
    with pytest.raises(ConfigInvalid, match="--schema"):
        messages_as(spark.createDataFrame([], MESSAGES), schema(spark, EVENTS), ddl)


def test_files_have_the_schema_that_is_given_and_the_reader_its_options(spark: Any, tmp_path: Any) -> None:
    table = schema(spark, EVENTS)
    assert Source(f"json:{tmp_path}").read(spark, table).schema.names == ["id", "name"]
    assert Source(f"json:{tmp_path}", "id bigint, gone boolean").read(spark, table).schema.names == ["id", "gone"]
    for name in ("a.json", "b.txt"):
        (tmp_path / name).write_text('{"id": 1}\n')
    rows = Source(f"json:{tmp_path}", options={"pathGlobFilter": "*.json"}).read(spark, table)
    rows.writeStream.format("memory").queryName("files").trigger(availableNow=True).start().awaitTermination()
    assert spark.table("files").count() == 1


def test_a_spark_without_the_connector_says_how_to_start_one_with_it(spark: Any) -> None:
    with pytest.raises(NotPossible, match="without its connector for Kafka") as caught:
        Source("kafka:127.0.0.1:1/orders").read(spark, schema(spark, "value binary"))
    assert KAFKA.coordinate in caught.value.hint


def test_topics_are_planned_with_spark_s_own_connector(tmp_path: Any) -> None:
    """Without a broker: that is asked when the query runs."""
    prepared.wanted((*EMBEDDED, KAFKA))
    code = f"""
from bookkeeper.config.settings import Catalog, Settings
from spark_jobs import job
from spark_jobs.write_stream_source import Source

source = Source("kafka:127.0.0.1:1/orders", "id bigint", {{"startingOffsets": "latest"}})
properties = {{"type": "sql", "uri": "sqlite:///{tmp_path}/catalog.db", "warehouse": "file://{tmp_path}"}}
spark = job.begin(Settings(Catalog("lake", properties)), "test", (), source.packages)
rows = source.read(spark, spark.createDataFrame([], "id bigint, offset bigint").schema)
print(rows.isStreaming, rows.dtypes)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.stdout.strip() == "True [('id', 'bigint'), ('offset', 'bigint')]", done.stderr[-3000:]
