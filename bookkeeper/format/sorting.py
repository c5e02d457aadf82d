"""
Sorts Arrow rows by a table's sort order (Iceberg spec, "Sorting").
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.open_file import sliced
from bookkeeper.format.transforms import column_at, physical, transformed

#: floats -> the integers of as many bits, and all their bits but the sign
_BITS = {pa.float32(): (pa.int32(), 2**31 - 1), pa.float64(): (pa.int64(), 2**63 - 1)}


class Sorter:
    """Sorts rows in the table's schema; `id` is the sort order's."""

    def __init__(self, order: SortOrder, schema: Schema) -> None:
        self.id = order.order_id
        self._keys = [_Key(field, schema) for field in order.fields]

    def sort(self, rows: pa.Table) -> pa.Table | None:
        """The rows in order, equal ones as they were; None where a value has no place in the order."""
        rows = rows.combine_chunks()
        order = self._order(rows)
        return None if order is None else rows.take(order)

    def pieces(self, parts: Sequence[pa.Table], most_bytes: int) -> Iterator[pa.Table] | None:
        """`sort` of the rows of all parts, in tables of about `most_bytes`: no second copy of all rows is made."""
        rows = pa.concat_tables(parts)
        order = self._order(rows)
        if order is None:
            return None
        pieces = sliced(pa.table({"at": order}), 8 * most_bytes * rows.num_rows // max(rows.nbytes, 1))
        ends = list(accumulate(part.num_rows for part in parts))
        return (_gathered(parts, ends, piece.column("at").combine_chunks()) for piece in pieces)

    def _order(self, rows: pa.Table) -> pa.Array | None:
        try:
            columns = {f"k{index}": key.values(rows) for index, key in enumerate(self._keys)}
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            return None  # such as a decimal that is truncated to one with more digits than its type has
        keys = [(name, *key.direction) for name, key in zip(columns, self._keys, strict=True)]
        return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _gathered(parts: Sequence[pa.Table], ends: Sequence[int], rows: pa.Array) -> pa.Table:
    """
    The rows with these numbers, counted over all parts, which end at `ends`.

    They are taken part by part and then put in order: Arrow's own take would copy all parts into one first, each time.
    """
    ascending = pc.sort_indices(rows)
    numbers, found, begin = rows.take(ascending), list[pa.Table](), 0
    for part, end in zip(parts, ends, strict=True):
        upto = pc.sum(pc.less(numbers, pa.scalar(end, numbers.type))).as_py() or 0
        first = pa.scalar(end - part.num_rows, numbers.type)
        found.append(part.take(pc.subtract(numbers.slice(begin, upto - begin), first)))
        begin = upto
    back = pc.inverse_permutation(ascending.cast(pa.int64()))
    return pa.concat_tables(found).combine_chunks().take(back)


class _Key:
    def __init__(self, field: SortField, schema: Schema) -> None:
        self._transform, self._source = field.transform, schema.find_type(field.source_id)
        self._path = str(schema.find_column_name(field.source_id)).split(".")
        order = "ascending" if field.direction == SortDirection.ASC else "descending"
        self.direction = order, "at_start" if field.null_order == NullOrder.NULLS_FIRST else "at_end"

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        return _ordered(transformed(physical(column_at(rows, self._path)), self._transform, self._source))


def _ordered(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """
    Floats as integers of the same order: -NaN, -Infinity, ..., -0, 0, ..., Infinity, NaN. Arrow puts NaN beside null,
    and takes -0 for 0.
    """
    if column.type not in _BITS:
        return column
    kind, magnitude = _BITS[column.type]
    bits = pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
    # All bits of the magnitude of a negative number are turned: the larger one is the smaller.
    flipped = pc.bit_wise_xor(bits, pa.scalar(magnitude, kind))
    return pc.if_else(pc.less(bits, pa.scalar(0, kind)), flipped, bits)


def sorter_of(order: SortOrder, schema: Schema) -> Sorter | None:
    """
    What sorts by this order, or None: it has no fields, or names a column, a type or a transform that is not sortable
    here.
    """
    if order.is_unsorted:
        return None
    try:
        if not all(field.transform.can_transform(schema.find_type(field.source_id)) for field in order.fields):
            return None  # a table can have bucket of double: it would fail at the first value
        sorter = Sorter(order, schema)
        fits = sorter.sort(schema_to_pyarrow(schema).empty_table()) is not None
    except (ValueError, TypeError, KeyError, SchemaRefused, pa.ArrowException):
        return None
    return sorter if fits else None
