"""
Arrow columns as the physical values that Iceberg stores: dates and times as numbers, UUIDs as bytes.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.types import DecimalType, IcebergType

from bookkeeper.format.bounds import Leaf, Metrics, lower_bound, unscaled, upper_bound
from bookkeeper.format.partition import avro_type

_FLOATS = {"float", "double"}


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


def avro_value(kind: IcebergType, value: Any) -> Any:
    """
    A physical value as a partition tuple holds it: decimals as the bytes of an Avro fixed.
    """
    if value is None or not isinstance(kind, DecimalType):
        return value
    size = avro_type(kind, 0)["size"]
    return unscaled(value, kind.scale).to_bytes(size, "big", signed=True)


class NanCounts:
    """NaN values by field id, which no Parquet footer holds."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        floats = [leaf for leaf in leaves if str(leaf.kind) in _FLOATS and leaf.counts and not leaf.repeated]
        self._leaves = tuple(floats)
        self.counts = {leaf.field_id: 0 for leaf in floats}

    def add(self, table: pa.Table) -> None:
        """Count the rows of `table`."""
        for leaf in self._leaves:
            found = pc.sum(pc.is_nan(column_at(table, leaf.path))).as_py()
            self.counts[leaf.field_id] += found or 0


class Gathered:
    """
    Counts and bounds taken from Arrow, for a format without a footer; nothing for columns inside lists and maps.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._leaves = tuple(leaf for leaf in leaves if leaf.counts and not leaf.repeated)
        self._nans = NanCounts(leaves)
        self._values = {leaf.field_id: 0 for leaf in self._leaves}
        self._nulls = dict(self._values)
        self._ranges: dict[int, tuple[Any, Any]] = {}

    def add(self, table: pa.Table) -> None:
        """Take the rows of `table` into account."""
        self._nans.add(table)
        for leaf in self._leaves:
            column = physical(column_at(table, leaf.path))
            self._values[leaf.field_id] += len(column)
            self._nulls[leaf.field_id] += column.null_count
            if leaf.bounds:
                self._widen(leaf, column)

    def _widen(self, leaf: Leaf, column: pa.ChunkedArray) -> None:
        if str(leaf.kind) in _FLOATS:
            column = column.filter(pc.invert(pc.is_nan(column)))
        if pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())
        found = pc.min_max(column).as_py()
        least, greatest = found["min"], found["max"]
        if least is None:
            return
        known = self._ranges.get(leaf.field_id, (least, greatest))
        self._ranges[leaf.field_id] = (min(least, known[0]), max(greatest, known[1]))

    def metrics(self) -> Metrics:
        """What was gathered."""
        bounded = [(leaf, *self._ranges[leaf.field_id]) for leaf in self._leaves if leaf.field_id in self._ranges]
        upper = {leaf.field_id: upper_bound(leaf, greatest) for leaf, _, greatest in bounded}
        return Metrics(
            value_counts=self._values,
            null_value_counts=self._nulls,
            nan_value_counts=self._nans.counts,
            lower_bounds={leaf.field_id: lower_bound(leaf, least) for leaf, least, _ in bounded},
            upper_bounds={number: bound for number, bound in upper.items() if bound is not None},
        )
