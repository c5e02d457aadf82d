"""What rows may look like, and what is refused because it would lose or invent something."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from bookkeeper.errors import SchemaRefused
from writers.values.cast import cast

SCHEMA = Schema(
    NestedField(1, "number", IntegerType()),
    NestedField(2, "long", LongType()),
    NestedField(3, "double", DoubleType()),
    NestedField(4, "text", StringType()),
    NestedField(5, "bytes", BinaryType()),
    NestedField(6, "instant", TimestamptzType()),
    NestedField(7, "local", TimestampType()),
    NestedField(8, "id", UUIDType()),
    NestedField(9, "price", DecimalType(9, 2)),
    NestedField(10, "hash", FixedType(4)),
    NestedField(11, "flag", BooleanType()),
    NestedField(
        20, "box", StructType(NestedField(21, "a", LongType(), required=True), NestedField(22, "b", StringType()))
    ),
    NestedField(30, "tags", ListType(31, StringType(), element_required=True)),
    NestedField(40, "counts", MapType(41, StringType(), 42, LongType(), value_required=True)),
)
TARGET = schema_to_pyarrow(SCHEMA)
UTC_TIMES = pa.timestamp("us", "UTC")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _conformed(**columns: Any) -> dict[str, list[Any]]:
    table = cast(pa.table(columns), SCHEMA, TARGET, {})
    assert table.schema.equals(TARGET)
    return {name: table[name].to_pylist() for name in columns}


@pytest.mark.parametrize(
    "name, given, expected",
    [
        ("long", pa.array([1, None], pa.int8()), [1, None]),
        ("number", pa.array([1, 2], pa.int64()), [1, 2]),
        ("double", pa.array([1, 2], pa.int32()), [1.0, 2.0]),
        ("double", pa.array([1.5], pa.float32()), [1.5]),
        ("text", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("text", pa.array(["a"], pa.string_view()), ["a"]),
        ("bytes", pa.array(["a"]), [b"a"]),
        ("bytes", pa.array([b"abcd"], pa.binary(4)), [b"abcd"]),
        ("instant", pa.array([NOON], pa.timestamp("ms", "Europe/Vienna")), [NOON]),
        ("local", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("s")), [NOON.replace(tzinfo=None)]),
        ("id", pa.array([UUID(int=7).bytes], pa.binary(16)), [UUID(int=7)]),
        ("price", pa.array([Decimal("1.5")], pa.decimal128(4, 1)), [Decimal("1.50")]),
        ("flag", pa.array([None], pa.null()), [None]),
        ("box", pa.array([{"a": 1}, None]), [{"a": 1, "b": None}, None]),
        ("box", pa.array([{"b": "x", "a": 1}]), [{"a": 1, "b": "x"}]),
        ("tags", pa.array([["x"], None, []]), [["x"], None, []]),
        ("counts", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int16())), [[("k", 1)]]),
    ],
)
def test_what_fits_without_loss_is_taken(name: str, given: pa.Array, expected: list[Any]) -> None:
    assert _conformed(**{name: given}) == {name: expected}


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("number", pa.array([2**31]), "'number'.*not in range"),
        ("number", pa.array(["1"]), "'number' has type string"),
        ("number", pa.array([1.0]), "'number' has type double"),
        ("text", pa.array([b"\xff"]), "'text' has type binary"),
        ("instant", pa.array([NOON.replace(tzinfo=None)]), "'instant' has type timestamp"),
        ("local", pa.array([NOON], UTC_TIMES), "'local' has type timestamp"),
        ("instant", pa.array([1], pa.timestamp("ns", "UTC")), "'instant'.*lose data"),
        ("price", pa.array([Decimal("1.555")]), "'price'.*data loss"),
        ("hash", pa.array([b"abc"], pa.binary(3)), "'hash'"),
        ("flag", pa.array([1]), "'flag' has type long"),
        ("box", pa.array([{"b": "x"}]), "'box.a' is missing or null in 1 rows"),
        ("box", pa.array([{"a": None}, None, {"a": 1}]), "'box.a' is missing or null in 1 rows"),
        ("box", pa.array([{"a": 1, "c": 1}]), "no column 'box.c'"),
        ("tags", pa.array([["x", None]]), "elements of 'tags' are required"),
        ("counts", pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())), "values of 'counts' are required"),
        ("other", pa.array([1]), "no column 'other'; it has number, long"),
    ],
)
def test_what_would_lose_or_invent_something_is_refused(name: str, given: pa.Array, words: str) -> None:
    with pytest.raises(SchemaRefused, match=words):
        _conformed(**{name: given})


def test_times_without_a_zone_are_refused_with_a_hint() -> None:
    with pytest.raises(SchemaRefused) as caught:
        _conformed(instant=pa.array([NOON.replace(tzinfo=None)]))
    assert "zone" in caught.value.hint


def test_a_column_given_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["long", "long"])
    with pytest.raises(SchemaRefused, match="twice"):
        cast(table, SCHEMA, TARGET, {})


def test_a_missing_required_column_is_refused() -> None:
    schema = Schema(NestedField(1, "key", StringType(), required=True), NestedField(2, "n", LongType()))
    with pytest.raises(SchemaRefused, match="'key' is missing"):
        cast(pa.table({"n": [1]}), schema, schema_to_pyarrow(schema), {})
    with pytest.raises(SchemaRefused, match="'key' holds 1 null"):
        cast(pa.table({"key": ["a", None]}), schema, schema_to_pyarrow(schema), {})


def test_a_chunked_struct_keeps_its_nulls() -> None:
    chunks = pa.chunked_array(
        [pa.array([{"a": 1}, None]), pa.array([{"a": 2}]), pa.array([None], pa.struct({"a": pa.int64()}))]
    )
    assert _conformed(box=chunks) == {"box": [{"a": 1, "b": None}, None, {"a": 2, "b": None}, None]}


def test_a_former_name_still_leads_to_its_column() -> None:
    table = cast(pa.table({"longish": [7]}), SCHEMA, TARGET, {"longish": 2, "gone": 99})
    assert table["long"].to_pylist() == [7]
    with pytest.raises(SchemaRefused, match="'gone'"):
        cast(pa.table({"gone": [7]}), SCHEMA, TARGET, {"longish": 2, "gone": 99})


def test_texts_of_uuids_are_read_as_those_of_lines_and_sixteen_letters_are_none() -> None:
    one = UUID(int=2**127 + 11)
    texts = [str(one), str(one).upper(), one.hex, one.urn, f"{{{one}}}", None]
    assert _conformed(id=texts) == {"id": [one] * 5 + [None]}
    assert _conformed(id=pa.array([str(one), str(one)]).dictionary_encode()) == {"id": [one, one]}
    for wrong in ("sixteen letters!", "", f"{one}\n"):
        with pytest.raises(SchemaRefused, match=r"column 'id': .* is not a UUID"):
            _conformed(id=[wrong])
