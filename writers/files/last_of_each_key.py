"""
Which version of each key wins in a step, in whole columns: the last one; and which keys its deletes must name.

Keys are compared as Iceberg stores them, and sorted in Arrow's order: numbers by value, text and binary by their bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

#: kinds of operations, as numbers in a column
INSERT, UPSERT, DELETE = range(3)


@dataclass(frozen=True, slots=True)
class Versions:
    """The operations of a step by key; masks and ranks are in the order of arrival."""

    #: whether an operation is the last one of its key
    last: pa.Array
    #: the last operation of each key that the step's deletes name: row numbers, sorted by key
    touched: pa.Array
    #: with `keep_all`, how many operations on the same key came before; else 0
    ranks: pa.Array


def versions(keys: Sequence[pa.Array], kinds: pa.Array, keep_all: bool) -> Versions:
    """
    The versions in at least one operation: `keys` are its key columns (physical, without nulls), `kinds` what it does.

    A key that was only inserted needs no delete, for it is new to the table. With `keep_all` one that was inserted
    more than once does: its superseded versions become shadow rows, which only a delete hides.
    """
    columns = {f"k{index}": column for index, column in enumerate(keys)}
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])  # stable
    begins = _begins([column.take(order) for column in keys])
    ends = pa.concat_arrays([begins.slice(1), pa.array([True])])
    back = pc.inverse_permutation(order.cast(pa.int64()))
    last = ends.take(back)
    deleting = pc.not_equal(kinds, pa.scalar(INSERT, kinds.type))
    if keep_all:
        deleting = pc.or_(deleting, pc.invert(last))
    ranks = _ranks(begins).take(back) if keep_all else pa.repeat(pa.scalar(0, pa.int64()), len(kinds))
    return Versions(last, order.take(_with_any(deleting.take(order), ends)), ranks)


def _begins(keys: Sequence[pa.Array]) -> pa.Array:
    """Where in sorted columns another key begins."""
    differs = pa.repeat(pa.scalar(False), len(keys[0]) - 1)
    for column in keys:
        differs = pc.or_(differs, pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    return pa.concat_arrays([pa.array([True]), differs])


def _with_any(wanted: pa.Array, ends: pa.Array) -> pa.Array:
    """The end of each run in which any row is wanted; `ends` says where runs end."""
    at = pc.indices_nonzero(ends)
    upto = pc.cumulative_sum(wanted.cast(pa.int64())).take(at)
    before = pa.concat_arrays([pa.array([0], pa.int64()), upto.slice(0, len(upto) - 1)])
    return at.filter(pc.greater(upto, before))


def _ranks(begins: pa.Array) -> pa.Array:
    """The number of each row in its run, from 0; `begins` says where runs begin."""
    rows = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(begins)))
    run = pc.subtract(pc.cumulative_sum(begins.cast(pa.int64())), 1)
    return pc.subtract(rows, rows.filter(begins).take(run))
