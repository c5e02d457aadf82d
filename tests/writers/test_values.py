"""Lines of JSON and CSV as rows: what is taken, what is bad and why, and that nothing else ever breaks."""

import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.errors import SchemaRefused
from tests.support import wide
from tests.support.desk import SCHEMA
from writers.loader.records import BadLine, UnknownColumn, csv_parser, ndjson_parser, table_of
from writers.values.cast import cast
from writers.values.json_values import converter, text_converter

BOX = StructType(
    NestedField(1, "a", LongType(), required=True), NestedField(2, "at", TimestamptzType(), required=False)
)


@pytest.mark.parametrize(
    "kind, given, stored",
    [
        (StringType(), "ü", "ü"),
        (BooleanType(), True, True),
        (IntegerType(), -(2**31), -(2**31)),
        (LongType(), 2**63 - 1, 2**63 - 1),
        (FloatType(), 1, 1.0),
        (DoubleType(), Decimal("0.5"), 0.5),
        (DecimalType(5, 2), "-999.99", Decimal("-999.99")),
        (DecimalType(5, 2), 7, Decimal("7.00")),
        (DecimalType(5, 2), Decimal("1.500"), Decimal("1.50")),
        (DateType(), "2026-01-31", date(2026, 1, 31)),
        (TimeType(), "12:30:00.000001", time(12, 30, 0, 1)),
        (TimestampType(), "1970-01-01T00:00:01", 1_000_000),
        (TimestamptzType(), "1970-01-01T01:00:00+01:00", 0),
        (TimestamptzType(), "1969-12-31T23:59:59.999999Z", -1),
        (UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes),
        (BinaryType(), "ü", "ü".encode()),
        (FixedType(2), "ab", b"ab"),
        (ListType(1, LongType(), element_required=False), [1, None], [1, None]),
        (MapType(1, LongType(), 2, StringType(), value_required=False), {"7": "x", "8": None}, [(7, "x"), (8, None)]),
        (BOX, {"a": 1, "at": "1970-01-01T00:00:00Z"}, {"a": 1, "at": 0}),
        (BOX, {"a": 1}, {"a": 1, "at": None}),
    ],
    ids=str,
)
def test_a_json_value_that_fits_is_taken(kind: IcebergType, given: Any, stored: Any) -> None:
    assert converter(kind)(given) == stored


@pytest.mark.parametrize(
    "kind, given, reason",
    [
        (StringType(), 1, "1 is not a text"),
        (StringType(), "\ud800", "surrogates"),
        (BooleanType(), "true", "not true or false"),
        (IntegerType(), 2**31, "does not fit into 32 bits"),
        (IntegerType(), True, "not a whole number"),
        (LongType(), 1.0, "not a whole number"),
        (LongType(), "1", "not a whole number"),
        (FloatType(), 1e39, "does not fit into 32 bits"),
        (DoubleType(), 10**400, "does not fit into 64 bits"),
        (DoubleType(), "NaN", "not a number"),
        (DecimalType(5, 2), "1000", "does not fit into decimal(5, 2)"),
        (DecimalType(5, 2), "1.001", "does not fit"),
        (DecimalType(5, 2), "NaN", "not a decimal"),
        (DecimalType(5, 2), "much", "not a decimal"),
        (DateType(), "31.1.2026", "is not a date; write it like 2026-01-31"),
        (TimeType(), "12:00:00Z", "is not a time of day without a zone"),
        (TimestampType(), "2026-01-31T12:00:00Z", "has a time zone"),
        (TimestamptzType(), "2026-01-31T12:00:00", "has no time zone"),
        (TimestamptzType(), 1700000000, "not a text"),
        (TimestamptzType(), "noon", "is not a time; write it like 2026-01-31T12:00:00, with Z or +01:00 for a zone"),
        (TimestampType(), "2026-01-31T12:00:00.1234567", "has parts of a microsecond"),
        (TimeType(), "12:00:00.1234567", "has parts of a microsecond"),
        (UUIDType(), "7", "is not a UUID"),
        (FixedType(2), "abc", "3 bytes are given"),
        (ListType(1, LongType(), element_required=True), [None], "'element' is missing"),
        (ListType(1, LongType(), element_required=True), 1, "not a list"),
        (MapType(1, StringType(), 2, LongType(), value_required=True), {"k": None}, "'k' is missing"),
        (BOX, {"at": None}, "'a' is missing"),
        (BOX, {"a": 1, "b": 2}, "'b' is not a field"),
        (BOX, [1], "not an object"),
    ],
    ids=str,
)
def test_a_json_value_that_does_not_fit_says_why(kind: IcebergType, given: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        converter(kind)(given)


def test_binary_columns_may_be_base64() -> None:
    assert converter(BinaryType(), base64_bytes=True)("AP8=") == b"\x00\xff"
    with pytest.raises(ValueError, match="base64"):
        converter(BinaryType(), base64_bytes=True)("???")


@pytest.mark.parametrize(
    "kind, text, stored",
    [
        (BooleanType(), "TRUE", True),
        (LongType(), "-7", -7),
        (DoubleType(), "1e3", 1000.0),
        (DecimalType(5, 2), "1.5", Decimal("1.50")),
        (StringType(), "7", "7"),
        (ListType(1, LongType(), element_required=False), "[1,2]", [1, 2]),
    ],
    ids=str,
)
def test_a_csv_text_is_read_as_one_writes_it(kind: IcebergType, text: str, stored: Any) -> None:
    assert text_converter(kind)(text) == stored


@pytest.mark.parametrize("kind, text", [(BooleanType(), "yes"), (LongType(), "1.0"), (LongType(), "9" * 5000)], ids=str)
def test_a_csv_text_that_is_something_else_is_bad(kind: IcebergType, text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        text_converter(kind)(text)


LINE = b'{"timestamp": "2026-01-01T00:00:00Z", "key": "k", "value": null}\r\n'


def test_a_json_line_becomes_a_row() -> None:
    row = ndjson_parser(SCHEMA)(LINE)
    assert row == {1: 1767225600000000, 2: "k"}
    table = table_of([row, row], SCHEMA)
    assert table["timestamp"].to_pylist() == [datetime(2026, 1, 1, tzinfo=UTC)] * 2
    assert table["value"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"nonsense", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"key": "k"}', "required column 'timestamp' is missing"),
        (b'{"timestamp": "2026-01-01T00:00:00Z", "key": null}', "required column 'key' is missing"),
        (b'{"timestamp": "2026-01-01T00:00:00Z", "key": 7}', "column 'key': 7 is not a text"),
        (b'{"key": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(BadLine) as caught:
        ndjson_parser(SCHEMA)(line)
    assert reason in str(caught.value)


def test_an_unknown_column_is_a_bad_line_of_its_own_kind() -> None:
    with pytest.raises(UnknownColumn, match="'colour'"):
        ndjson_parser(SCHEMA)(b'{"colour": 1}')


def test_a_csv_line_follows_its_header() -> None:
    parse = csv_parser(SCHEMA, b"key;timestamp;value\n", delimiter=";")
    assert parse(b'"a;b";2026-01-01T00:00:00Z;\n') == {1: 1767225600000000, 2: "a;b"}
    assert parse(b";2026-01-01T00:00:00Z;x")[2] == "", "an empty text in a required column"
    for line, reason in ((b"a;b", "2 fields"), (b'"a;2026-01-01T00:00:00Z;x', "not CSV"), (b"a;;x", "'timestamp'")):
        with pytest.raises(BadLine, match=reason):
            parse(line)


def test_a_csv_header_with_an_unknown_column_is_refused_at_once() -> None:
    with pytest.raises(SchemaRefused, match="colour"):
        csv_parser(SCHEMA, b"key,colour\n")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["2026-01-31T12:00:00Z", "0001-01-01T00:00:00", "9999-12-31", "12:00", "1e5", "1E+90", "\ud800"])
    | st.decimals(allow_nan=False, allow_infinity=False).map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "inner", "note", "7"]), inner),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([field.name for field in wide.SCHEMA.fields]), _json))
def test_whatever_json_says_it_becomes_a_row_or_a_bad_line(data: dict[str, Any]) -> None:
    try:
        row = ndjson_parser(wide.SCHEMA)(json.dumps(data).encode())
    except BadLine:
        return
    assert cast(table_of([row], wide.SCHEMA), wide.SCHEMA, wide.ARROW, {}).num_rows == 1


def test_decimals_in_json_are_not_read_as_floats() -> None:
    schema = Schema(NestedField(1, "price", DecimalType(38, 20)))
    row = ndjson_parser(schema)(b'{"price": 0.10000000000000000001}')
    assert row == {1: Decimal("0.10000000000000000001")}
