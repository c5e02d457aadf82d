"""Partition values against pyiceberg's own transforms, the spec's examples, and what Java prints."""

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.bounds import unscaled
from bookkeeper.format.transforms import physical, transformed
from bookkeeper.stores.locations import normal
from tests.support import wide
from writers.files.split_by_partition import Part, Splitter

TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    VoidTransform(),
    BucketTransform(7),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]
LONG_EDGE = 2**63 - 10
SPEC_TIME = datetime(2017, 11, 16, 22, 31, 8)
LAST_SECOND = datetime(1969, 12, 31, 23, 59, 59)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wide.ROWS)
def test_every_transform_gives_what_pyiceberg_gives(content: list[Any]) -> None:
    table = wide.table(content)
    for name, (kind, _) in wide.COLUMNS.items():
        column = physical(table.column(name))
        for transform in TRANSFORMS:
            if transform.can_transform(kind) and not _beyond(transform, column):
                reference = transform.transform(kind)
                expected = [None if value is None else reference(value) for value in column.to_pylist()]
                assert _nan_free(transformed(column, transform, kind)) == _nan_free(expected)


def _beyond(transform: Transform[Any, Any], column: pa.ChunkedArray) -> bool:
    # Truncated downwards, the smallest longs leave the 64 bits; Java wraps around, so do we, pyiceberg does not.
    return isinstance(transform, TruncateTransform) and any(
        isinstance(value, int) and (abs(value) > LONG_EDGE or (value < -(2**31) + 3 and column.type == pa.int32()))
        for value in column.to_pylist()
    )


def _nan_free(values: Any) -> list[Any]:
    return [
        "nan" if isinstance(value, float) and math.isnan(value) else value
        for value in getattr(values, "to_pylist", lambda: values)()
    ]


@pytest.mark.parametrize(
    "kind, value, hashed",
    [
        (IntegerType(), 34, 2017239379),
        (LongType(), 34, 2017239379),
        (DecimalType(4, 2), Decimal("14.20"), -500754589),
        (DateType(), date(2017, 11, 16), -653330422),
        (TimeType(), time(22, 31, 8), -662762989),
        (TimestampType(), SPEC_TIME, -2047944441),
        (TimestamptzType(), datetime(2017, 11, 16, 22, 31, 8, 1, tzinfo=UTC), -1207196810),
        (StringType(), "iceberg", 1210000089),
        (UUIDType(), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
        (BinaryType(), b"\x00\x01\x02\x03", -188683207),
    ],
    ids=str,
)
def test_buckets_follow_the_hashes_in_the_spec(kind: PrimitiveType, value: Any, hashed: int) -> None:
    arrow = {"time": pa.time64("us"), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC")}
    column = physical(pa.chunked_array([pa.array([value, None], arrow.get(str(kind)))]))
    count = 2**31 - 1
    assert transformed(column, BucketTransform(count), kind).to_pylist() == [(hashed & 0x7FFFFFFF) % count, None]


@pytest.mark.parametrize(
    "transform, kind, value, result",
    [
        (TruncateTransform(10), IntegerType(), -1, -10),
        (TruncateTransform(10), LongType(), 1, 0),
        (TruncateTransform(50), DecimalType(9, 2), Decimal("10.65"), Decimal("10.50")),
        (TruncateTransform(3), StringType(), "iceberg", "ice"),
        (TruncateTransform(3), BinaryType(), b"\x01\x02\x03\x04\x05", b"\x01\x02\x03"),
        (DayTransform(), TimestampType(), LAST_SECOND, -1),
        (HourTransform(), TimestampType(), LAST_SECOND, -1),
        (MonthTransform(), DateType(), date(1969, 12, 31), -1),
        (YearTransform(), DateType(), date(1969, 12, 31), -1),
    ],
    ids=str,
)
def test_truncation_and_times_before_1970_go_down(
    transform: Transform[Any, Any], kind: PrimitiveType, value: Any, result: Any
) -> None:
    typed = pa.int32() if isinstance(kind, IntegerType) else pa.array([value]).type
    decimal = pa.decimal128(9, 2) if isinstance(kind, DecimalType) else typed
    column = physical(pa.chunked_array([pa.array([value], decimal)]))
    assert transformed(column, transform, kind).to_pylist() == [result]


def test_an_unknown_transform_is_refused() -> None:
    with pytest.raises(SchemaRefused, match="zorder"):
        transformed(pa.chunked_array([[1]]), UnknownTransform("zorder"), LongType())


SCHEMA = Schema(
    NestedField(1, "country", StringType()),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "box", StructType(NestedField(4, "id", UUIDType()))),
    NestedField(5, "x", DoubleType()),
)


def _split(rows: pa.Table, *fields: tuple[int, Transform[Any, Any], str]) -> list[Part]:
    spec = PartitionSpec(*(PartitionField(source, 1000 + source, how, name) for source, how, name in fields))
    return list(Splitter(spec, SCHEMA).split(rows))


def _rows(countries: list[str | None]) -> pa.Table:
    ids = [{"id": UUID(int=number % 2).bytes} for number in range(len(countries))]
    return pa.table(
        {
            "country": pa.array(countries, pa.large_string()),
            "price": pa.array([Decimal(number) for number in range(len(countries))], pa.decimal128(9, 2)),
            "box": pa.array(ids, pa.struct({"id": pa.binary(16)})),
            "x": pa.array([float(number) for number in range(len(countries))]),
        }
    )


def test_rows_keep_their_order_within_a_partition() -> None:
    parts = _split(_rows(["b", "a", None, "b", "a", "b"]), (1, IdentityTransform(), "country"))
    assert {part.values: part.rows["x"].to_pylist() for part in parts} == {
        ("b",): [0, 3, 5],
        ("a",): [1, 4],
        (None,): [2],
    }


def test_several_fields_split_by_their_combination() -> None:
    parts = _split(_rows(["b", "a", "b", "b"]), (1, IdentityTransform(), "country"), (4, IdentityTransform(), "box.id"))
    found = {part.values: part.rows["x"].to_pylist() for part in parts}
    assert found == {
        ("b", UUID(int=0).bytes): [0, 2],
        ("a", UUID(int=1).bytes): [1],
        ("b", UUID(int=1).bytes): [3],
    }


def test_decimals_are_the_bytes_of_an_avro_fixed() -> None:
    (part,) = _split(_rows(["a"]), (2, IdentityTransform(), "price"))
    assert part.values == ((0).to_bytes(4, "big"),)
    parts = _split(_rows(["a"] * 3), (2, TruncateTransform(100), "price"))
    assert [unscaled(Decimal(int.from_bytes(part.values[0], "big", signed=True)), 0) for part in parts] == [0, 100, 200]


def test_a_single_partition_copies_nothing() -> None:
    rows = _rows(["a"] * 4)
    (part,) = _split(rows, (1, IdentityTransform(), "country"))
    assert part.rows is rows


def test_an_unpartitioned_table_is_one_part() -> None:
    (part,) = _split(_rows(["a", "b"]))
    assert (part.values, part.path) == ((), "")


@pytest.mark.parametrize("value", ["../../etc", "a/b%2F\\c", "", "ü?#", "x" * 500, ".."])
def test_folder_names_never_need_interpretation(value: str) -> None:
    (part,) = _split(_rows([value]), (1, IdentityTransform(), "land/1"))
    location = f"file:///t/data/{part.path}/f.parquet"
    assert normal(location) == location
    assert part.path.startswith("land_x2F1=")
    assert len(part.path) < 100


def test_a_time_outside_of_pythons_calendar_is_split_all_the_same() -> None:
    schema = Schema(NestedField(1, "t", TimestampType()))
    spec = PartitionSpec(PartitionField(1, 1000, HourTransform(), "t_hour"))
    rows = pa.table({"t": pa.array([2**62], pa.timestamp("us"))})
    (part,) = Splitter(spec, schema).split(rows)
    assert part.values == (2**62 // 3_600_000_000,)
