"""
Data files of any schema and spec, as a writer makes them: real Parquet, statistics as pyiceberg gathers them.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField

from bookkeeper.format.entries import DataFile
from bookkeeper.stores.open import open_store

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: values by field id
Row = dict[int, Any]
CHOICES: dict[str, Sequence[Any]] = {
    "int": (None, -3, 0, 7, 2**31 - 1),
    "long": (None, -3, 0, 7, 2**40),
    "float": (None, math.nan, -1.5, 0.25, 8.0),
    "double": (None, math.nan, -1.5, 0.25, 8.0, 1e300),
    "string": (None, "", "north", "süd"),
    "decimal": (None, Decimal("-1.50"), Decimal("0.00"), Decimal("1.27"), Decimal("99.99")),
}


@dataclass(frozen=True)
class File:
    """A data file of the model: all that a test asks about it."""

    path: str
    rows: tuple[Row, ...]
    schema_id: int
    spec_id: int
    #: as readers show it: days are numbers, decimals Decimals
    partition: tuple[Any, ...]
    described: DataFile

    def newest(self, column: int) -> datetime | None:
        """Its newest moment in a column; None when a row has none."""
        times = [row.get(column) for row in self.rows]
        return None if None in times else max(times)


def value(field: NestedField, key: str, at: datetime | None, dice: Random) -> Any:
    """A value for a column: the row's key, its moment, or one of a few, nulls and NaN among them."""
    if field.name == "key":
        return key
    if field.name == "timestamp":
        return at
    kind = "decimal" if isinstance(field.field_type, DecimalType) else str(field.field_type)
    return dice.choice(CHOICES[kind])


def rows_of(schema: Schema, spec: PartitionSpec, keys: Sequence[str], at: datetime | None, dice: Random) -> list[Row]:
    """A row per key, all of one partition; at most the first key's bucket is theirs."""
    sources = {field.source_id for field in spec.fields}
    first = {field.field_id: value(field, keys[0], at, dice) for field in schema.fields}
    rows = [first]
    for key in keys[1:]:
        moment = at and at + timedelta(seconds=dice.randrange(60))
        row = {field.field_id: value(field, key, moment, dice) for field in schema.fields}
        rows.append(row | {number: first[number] for number in sources if number in first})
    return rows


def write(data_path: str, name: str, schema: Schema, spec: PartitionSpec, rows: Sequence[Row]) -> File:
    """Writes the rows as a Parquet file below `data_path`."""
    arrow = schema_to_pyarrow(schema)
    named = {field.name: [row[field.field_id] for row in rows] for field in schema.fields}
    out = io.BytesIO()
    pq.write_table(pa.table([pa.array(named[kind.name], kind.type) for kind in arrow], schema=arrow), out)
    open_store(data_path).upload(name, out.getvalue())
    statistics = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(io.BytesIO(out.getvalue())),
        compute_statistics_plan(schema, {}),
        parquet_path_to_id_mapping(schema),
    )
    partition = partition_of(schema, spec, rows[0])
    said = statistics.to_serialized_dict() | {"split_offsets": tuple(statistics.split_offsets)}
    path = f"{data_path}/{name}"
    described = DataFile(
        path, "PARQUET", tuple(map(physical, partition, _kinds(schema, spec))), size_bytes=out.tell(), **said
    )
    return File(path, tuple(rows), schema.schema_id, spec.spec_id, partition, described)


def partition_of(schema: Schema, spec: PartitionSpec, row: Row) -> tuple[Any, ...]:
    """A row's partition tuple."""
    return tuple(
        field.transform.transform(source.field_type)(internal(row[source.field_id]))
        for field in spec.fields
        for source in [schema.find_field(field.source_id)]
    )


def internal(item: Any) -> Any:
    """A value as transforms take it: moments are microseconds."""
    return (item - EPOCH) // timedelta(microseconds=1) if isinstance(item, datetime) else item


def _kinds(schema: Schema, spec: PartitionSpec) -> list[Any]:
    return [field.field_type for field in spec.partition_type(schema).fields]


def physical(item: Any, kind: Any) -> Any:
    """A partition value as Avro holds it: decimals are bytes."""
    if not isinstance(item, Decimal):
        return item
    width = next(size for size in range(1, 17) if 10**kind.precision <= 2 ** (8 * size - 1))
    return int(item.scaleb(kind.scale)).to_bytes(width, "big", signed=True)
