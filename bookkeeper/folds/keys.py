"""
Which rows have deleted keys: whole columns at once, in Arrow's hash tables.

A key of several columns becomes one number, column by column: its place among the distinct values of the first column,
then the place of the pair of that and the second one, and so on. Nulls are values like others: an equality delete of
null deletes null (Iceberg spec, "Equality Delete Files").
"""

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.format.transforms import physical


class DeletedKeys:
    """The keys of equality delete files, each with the sequence number of the newest that deletes it."""

    def __init__(self, keys: pa.Table, numbers: pa.Array) -> None:
        """One row of `keys`, and one of `numbers`, for each deleted key of each file."""
        columns = _plain(keys)
        #: distinct values of each column, as `physical` has them
        self.values: list[pa.Array] = [pc.unique(column) for column in columns]
        #: distinct pairs of what came before a column, and of its values
        self._pairs = list[pa.Array]()
        codes = pc.index_in(columns[0], value_set=self.values[0])
        for column, values in zip(columns[1:], self.values[1:], strict=True):
            pairs = _pairs(codes, column, values)
            self._pairs.append(pc.unique(pairs))
            codes = pc.index_in(pairs, value_set=self._pairs[-1])
        found = pa.table({"code": codes, "number": numbers}).group_by("code").aggregate([("number", "max")])
        #: by code; codes are dense
        self._newest = found.sort_by("code").column("number_max").combine_chunks()

    def deleted(self, keys: pa.Table) -> tuple[pa.Array, pa.Array]:
        """The rows whose keys are deleted, in ascending order, and for each the number of the newest delete."""
        columns = _plain(keys)
        rows, codes = _found(pc.index_in(columns[0], value_set=self.values[0]))
        for column, values, known in zip(columns[1:], self.values[1:], self._pairs, strict=True):
            hits, codes = _found(pc.index_in(_pairs(codes, column.take(rows), values), value_set=known))
            rows = rows.take(hits)
        return rows, self._newest.take(codes)


def _pairs(codes: pa.Array, column: pa.Array, values: pa.Array) -> pa.Array:
    """A number for each pair of a code and a value; null where it is none of these values."""
    places = pc.index_in(column, value_set=values).cast(pa.int64())
    # Both are less than 2^31: a product never overflows.
    return pc.add(pc.multiply(codes.cast(pa.int64()), pa.scalar(len(values), pa.int64())), places)


def _found(codes: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Where codes are not null, and those."""
    rows = pc.indices_nonzero(codes.is_valid())
    return rows, codes.take(rows)


def _plain(keys: pa.Table) -> list[pa.Array]:
    return [physical(column).combine_chunks() for column in keys.columns]
