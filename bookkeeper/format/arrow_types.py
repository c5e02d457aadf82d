"""
Which Iceberg type holds all values of an Arrow type: of files and frames that users give.
"""

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids

_HOLDS = {
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def holding(kind: pa.DataType) -> pa.DataType:
    """
    The type without what Iceberg does not have: of a plain one that Iceberg has a type for, which holds its values.

    Of nanoseconds microseconds: the writer checks that no value is lost.
    """
    if pa.types.is_dictionary(kind):
        return holding(kind.value_type)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return _HOLDS.get(kind, kind)


def type_of_arrow(kind: pa.DataType) -> str | None:
    """
    The name of the Iceberg type of a column for such values; None for nulls, nested types and what Iceberg has not.
    """
    plain = holding(kind)
    if pa.types.is_nested(plain) or pa.types.is_null(plain) or (pa.types.is_decimal(plain) and plain.scale < 0):
        return None
    try:
        return str(_pyarrow_to_schema_without_ids(pa.schema([("x", plain)])).fields[0].field_type)
    except UnsupportedPyArrowTypeException:
        return None
