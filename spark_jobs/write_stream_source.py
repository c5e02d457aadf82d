"""
What the job write_stream reads: generated rows, files in a folder, or topics of Kafka by Spark's own connector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs.versions import KAFKA, Package

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

RATE, JSON, PARQUET, TOPICS = "rate", "json", "parquet", "kafka"
EXPECTED = "rate:ROWS_PER_SECOND, json:FOLDER, parquet:FOLDER or kafka:HOST:PORT[,...]/TOPIC[,...]"
#: a schema: the table's own columns
TABLE = "table"
#: of a message, as Spark's connector gives it
MESSAGE = ("key", "value", "topic", "partition", "offset", "timestamp")
_CORRUPT = "_corrupt_record"
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_TOPICS = r"[^/,\s]+(?:,[^/,\s]+)*/[A-Za-z0-9._-]+(?:,[A-Za-z0-9._-]+)*"


@dataclass(frozen=True)
class Source:
    """
    A source by its text (`EXPECTED`); `schema` is Spark's DDL of its columns, or `TABLE`.

    Without a schema files have the table's columns, and Kafka's messages those of `MESSAGE` that the table has.
    `options` are of Spark's reader. Raises ConfigInvalid.
    """

    text: str
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind == RATE and self.schema is not None:
            raise ConfigInvalid(f"--schema: {self.text} makes rows of the table's columns")
        fits = {RATE: r"[0-9]+", JSON: r".+", PARQUET: r".+", TOPICS: _TOPICS}.get(self.kind)
        if fits is None or not re.fullmatch(fits, self.value):
            raise ConfigInvalid(f"--source {self.text}: {EXPECTED} is expected")

    @property
    def kind(self) -> str:
        """What stands before the first colon."""
        return self.text.partition(":")[0]

    @property
    def value(self) -> str:
        """What stands behind the first colon."""
        return self.text.partition(":")[2]

    @property
    def packages(self) -> Sequence[Package]:
        """What Spark needs for it."""
        return (KAFKA,) if self.kind == TOPICS else ()

    def read(self, spark: SparkSession, table: StructType) -> DataFrame:
        """The stream, for a table with these columns; raises ConfigInvalid, and NotPossible without the connector."""
        if self.kind == RATE:
            return from_rate(spark, int(self.value), table)
        if self.kind == TOPICS:
            return messages_as(_messages(spark, self.value, self.options), table, self.schema)
        columns = table if self.schema is None else _columns(self.schema, table)
        return spark.readStream.schema(columns).format(self.kind).options(**self.options).load(self.value)


def from_rate(spark: SparkSession, rows_per_second: int, schema: StructType) -> DataFrame:
    """
    Generated rows: the time in time columns, `spark-<number>` in text and binary, the number in numeric ones.
    """
    rate = spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
    return rate.select(*(_generated(field.dataType).alias(field.name) for field in schema.fields))


def _generated(kind: DataType) -> Column:
    from pyspark.sql import functions as F

    name = kind.typeName()
    if name.startswith(("timestamp", "date")):
        return F.col("timestamp").cast(kind)
    if name in ("string", "binary"):
        return F.concat(F.lit("spark-"), F.col("value").cast("string")).cast(kind)
    return F.col("value").cast(kind) if name in _NUMBERS else F.lit(None).cast(kind)


def _messages(spark: SparkSession, where: str, options: Mapping[str, str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    servers, topics = where.rsplit("/", 1)
    # Spark's default, the newest offsets, would leave out what a topic has when the query begins.
    ours = {"kafka.bootstrap.servers": servers, "subscribe": topics, "startingOffsets": "earliest"}
    try:
        return spark.readStream.format("kafka").options(**{**ours, **options}).load()
    except AnalysisException as exc:
        if "kafka" not in str(exc).lower() or "data source" not in str(exc).lower():
            raise
        hint = f"Start it with: spark-submit --packages {KAFKA.coordinate} ..."
        raise NotPossible("this Spark was started without its connector for Kafka", hint=hint) from exc


def messages_as(messages: DataFrame, table: StructType, schema: str | None) -> DataFrame:
    """
    Messages of Kafka in the columns of a table: those of `MESSAGE` that it has; with a schema (`TABLE`, or DDL) first
    the columns of the JSON objects in their values.

    A value that does not fit the schema ends the query, unless that has the column `_corrupt_record`, which then has
    the text. A message without a value, or with an empty one, has no columns and is left out. Of several objects in one
    value Spark reads the first. Raises ConfigInvalid.
    """
    from pyspark.sql import functions as F

    types = {item.name: item.dataType for item in table.fields}
    if schema is None:
        if "value" not in types:
            raise ConfigInvalid(
                "--source kafka: the table has no column `value`", hint=f"Say --schema {TABLE}, or DDL."
            )
        return messages.select(*(F.col(name).cast(types[name]) for name in MESSAGE if name in types))
    columns = _columns(schema, table)
    mode = "PERMISSIVE" if _CORRUPT in columns.names else "FAILFAST"
    options = {"mode": mode, "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json(F.col("value").cast("string"), columns, options).alias("json")
    own = [name for name in MESSAGE if name in types and name not in columns.names]
    found = messages.select(read, *(F.col(name).cast(types[name]) for name in own))
    return found.where(F.col("json").isNotNull()).select("json.*", *own)


def _columns(schema: str, table: StructType) -> StructType:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    if schema == TABLE:
        return table
    try:
        found = StructType.fromDDL(schema)
    except ParseException as exc:
        raise ConfigInvalid(f"--schema {schema[:200]}: Spark's DDL is expected: {exc.getMessage()}") from exc
    if not isinstance(found, StructType):
        raise ConfigInvalid(
            f"--schema {schema[:200]}: columns with their types are expected", hint="`id BIGINT, name STRING`"
        )
    return found
