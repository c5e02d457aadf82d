"""
Arrow columns as the physical values that Iceberg stores, and Iceberg's partition transforms on those.

Transforms follow the spec ("Partition Transforms"): whole columns at once where Arrow can; bucket hashes each distinct
value with mmh3.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import mmh3
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DecimalType, IcebergType

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.bounds import serialized

_HOUR = 3_600_000_000
_LONGS = {"int", "long", "date", "time", "timestamp", "timestamptz"}


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """
    The column at `path`, through structs; null where a struct around it is.
    """
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def physical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """
    `column` with dates and times as ints and UUIDs as 16 bytes; everything else as it is.
    """
    kind = column.type
    if isinstance(kind, pa.UuidType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return column.cast(pa.int64())
    return column


def transformed(column: pa.ChunkedArray, transform: Transform[Any, Any], source: IcebergType) -> pa.ChunkedArray:
    """
    The partition values of a physical column; raises SchemaRefused for a transform this program does not know.
    """
    if isinstance(transform, IdentityTransform):
        return column
    if isinstance(transform, VoidTransform):
        return pa.chunked_array([pa.nulls(len(column), column.type)])
    if isinstance(transform, BucketTransform):
        return by_value(column, _bucket(transform.num_buckets, source), pa.int32())
    if isinstance(transform, TruncateTransform):
        return _truncated(column, transform, source)
    if isinstance(transform, (YearTransform, MonthTransform, DayTransform, HourTransform)):
        return _TEMPORAL[type(transform)](column, source)
    raise SchemaRefused(f"{transform!r} of the partition spec is not known here", hint="Upgrade the writer.")


def by_value(column: pa.ChunkedArray, act: Callable[[Any], Any], kind: pa.DataType) -> pa.ChunkedArray:
    """
    `act` on every value, computed once per distinct one; null stays null.
    """
    encoded = column.combine_chunks().dictionary_encode()
    values = pa.array([act(value) for value in encoded.dictionary.to_pylist()], kind)
    return pa.chunked_array([values.take(encoded.indices)])


def _bucket(count: int, source: IcebergType) -> Callable[[Any], int]:
    hashed = mmh3.hash
    if str(source) in _LONGS:
        pack = struct.Struct("<q").pack
        return lambda value: (hashed(pack(value)) & 0x7FFFFFFF) % count
    if isinstance(source, DecimalType):
        return lambda value: (hashed(serialized(source, value)) & 0x7FFFFFFF) % count
    return lambda value: (hashed(value) & 0x7FFFFFFF) % count


def _truncated(column: pa.ChunkedArray, transform: TruncateTransform[Any], source: IcebergType) -> pa.ChunkedArray:
    width = transform.width
    if str(source) == "string":
        return pc.utf8_slice_codeunits(column, 0, width)
    if str(source) == "binary":
        return pc.binary_slice(column, 0, width)
    if isinstance(source, DecimalType):
        return by_value(column, transform.transform(source), column.type)
    return pc.multiply(_floor_divided(column, width), pa.scalar(width, column.type))


def _floor_divided(column: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    divisor = pa.scalar(by, column.type)
    quotient = pc.divide(column, divisor)  # towards zero
    uneven = pc.not_equal(pc.multiply(quotient, divisor), column)
    down = pc.and_(uneven, pc.less(column, pa.scalar(0, column.type)))
    return pc.subtract(quotient, down.cast(column.type))


def _days(column: pa.ChunkedArray, source: IcebergType) -> pa.ChunkedArray:
    return column if str(source) == "date" else _floor_divided(column, 24 * _HOUR)


def _calendar(column: pa.ChunkedArray, source: IcebergType) -> pa.ChunkedArray:
    return _days(column, source).cast(pa.int32()).cast(pa.date32())


def _years(column: pa.ChunkedArray, source: IcebergType) -> pa.ChunkedArray:
    return pc.subtract(pc.year(_calendar(column, source)), 1970)


def _months(column: pa.ChunkedArray, source: IcebergType) -> pa.ChunkedArray:
    calendar = _calendar(column, source)
    return pc.add(pc.multiply(pc.subtract(pc.year(calendar), 1970), 12), pc.subtract(pc.month(calendar), 1))


_TEMPORAL: dict[type, Callable[[pa.ChunkedArray, IcebergType], pa.ChunkedArray]] = {
    HourTransform: lambda column, source: _floor_divided(column, _HOUR),
    DayTransform: _days,
    MonthTransform: _months,
    YearTransform: _years,
}
