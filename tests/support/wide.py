"""
A table with a column of every type, and rows for it out of hypothesis.
"""

from datetime import UTC
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_EXACT = Context(prec=60)


def _numbers(digits: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda unscaled: Decimal(unscaled).scaleb(-2, context=_EXACT))


#: column -> type and values, as Arrow gives them back
COLUMNS: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "truth": (BooleanType(), st.booleans()),
    "small": (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "large": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "single": (FloatType(), st.floats(width=32)),
    "double": (DoubleType(), st.floats()),
    "cents": (DecimalType(9, 2), _numbers(9)),
    "euros": (DecimalType(18, 2), _numbers(18)),
    "debts": (DecimalType(38, 2), _numbers(38)),
    "day": (DateType(), st.dates()),
    "clock": (TimeType(), st.times()),
    "local": (TimestampType(), st.datetimes()),
    "instant": (TimestamptzType(), st.datetimes(timezones=st.just(UTC))),
    "text": (StringType(), st.text(max_size=40) | st.text(alphabet="\ud7ff\U0010ffffa", max_size=20)),
    "blob": (
        BinaryType(),
        st.binary(max_size=40) | st.binary(min_size=14, max_size=20).map(lambda b: b"\xff" * len(b)),
    ),
    "hash": (FixedType(4), st.binary(min_size=4, max_size=4)),
    "id": (UUIDType(), st.uuids()),
}
FIELDS = [NestedField(number, name, kind) for number, (name, (kind, _)) in enumerate(COLUMNS.items(), 1)]
NESTED = [
    NestedField(50, "box", StructType(NestedField(51, "inner", LongType()), NestedField(52, "note", StringType()))),
    NestedField(60, "tags", ListType(61, StringType(), element_required=False)),
    NestedField(70, "counts", MapType(71, StringType(), 72, IntegerType(), value_required=False)),
]
SCHEMA = Schema(*FIELDS, *NESTED)
ARROW = schema_to_pyarrow(SCHEMA)

_box = st.fixed_dictionaries({"inner": st.none() | st.integers(-9, 9), "note": st.none() | st.text(max_size=20)})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.none() | values for name, (_, values) in COLUMNS.items()},
            "box": st.none() | _box,
            "tags": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
            "counts": st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.integers(0, 9)), max_size=2),
        }
    ),
    max_size=12,
)


def table(content: list[dict[str, Any]]) -> pa.Table:
    """The rows as Arrow."""
    columns = [pa.array([_plain(row[field.name]) for row in content], _storage(field.type)) for field in ARROW]
    built = [column.cast(field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.Table.from_arrays(built, schema=ARROW)


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.binary(16) if isinstance(kind, pa.UuidType) else kind


def leaf_values(content: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """Field id -> all values of a primitive column that is in no list or map."""
    found = {field.field_id: [row[field.name] for row in content] for field in FIELDS}
    boxes = [row["box"] for row in content]
    found[51] = [None if box is None else box["inner"] for box in boxes]
    found[52] = [None if box is None else box["note"] for box in boxes]
    return found
