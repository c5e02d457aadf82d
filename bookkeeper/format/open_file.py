"""
A data file that still takes rows, and the counts and bounds of its columns: what Parquet and Avro files share.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.format.bounds import UNORDERED, Leaf, Metrics, lower_bound, upper_bound
from bookkeeper.format.entries import DataFile
from bookkeeper.format.transforms import column_at, physical

#: the id of "no sort order"
UNSORTED = 0
_FLOATS = {"float", "double"}


@dataclass(frozen=True, slots=True)
class Finished:
    """A complete data file in memory."""

    data: Any
    rows: int
    metrics: Metrics
    #: the id of the sort order that all its rows are in
    sort_order_id: int = UNSORTED

    def described(self, path: str, file_format: str, partition: tuple[Any, ...]) -> DataFile:
        """The file as a manifest entry describes it."""
        return DataFile(
            path=path,
            file_format=file_format,
            partition=partition,
            record_count=self.rows,
            size_bytes=len(memoryview(self.data)),
            sort_order_id=self.sort_order_id,
            **{name: getattr(self.metrics, name) for name in self.metrics.__slots__},
        )


class OpenFile(Protocol):
    """A data file that still takes rows."""

    rows: int

    def bytes_to_add(self) -> int:
        """About how many bytes of Arrow data may be added before `full` should be asked again."""

    def add(self, rows: pa.Table) -> None:
        """Take rows in the file's Arrow schema."""

    def size(self) -> int:
        """About how many bytes it has by now."""

    def memory(self) -> int:
        """About how many bytes of memory it holds."""

    def full(self) -> bool:
        """Whether it has reached its target size."""

    def finish(self) -> Finished:
        """Complete it."""


class RowCounts:
    """What our Parquet footers do not hold, by field id: NaN values, and nulls of types without statistics."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        counted = [leaf for leaf in leaves if leaf.counts and not leaf.repeated]
        self._floats = [leaf for leaf in counted if str(leaf.kind) in _FLOATS]
        self._unordered = [leaf for leaf in counted if str(leaf.kind) in UNORDERED]
        self.nans = {leaf.field_id: 0 for leaf in self._floats}
        self.nulls = {leaf.field_id: 0 for leaf in self._unordered}

    def add(self, table: pa.Table) -> None:
        """Count the rows of `table`."""
        for leaf in self._floats:
            found = pc.sum(pc.is_nan(column_at(table, leaf.path))).as_py()
            self.nans[leaf.field_id] += found or 0
        for leaf in self._unordered:
            self.nulls[leaf.field_id] += column_at(table, leaf.path).null_count


class ColumnMetrics:
    """
    Counts and bounds taken from Arrow, for a format without a footer; nothing for columns inside lists and maps.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._leaves = tuple(leaf for leaf in leaves if leaf.counts and not leaf.repeated)
        self._counts = RowCounts(leaves)
        self._values = {leaf.field_id: 0 for leaf in self._leaves}
        self._nulls = dict(self._values)
        self._ranges: dict[int, tuple[Any, Any]] = {}

    def add(self, table: pa.Table) -> None:
        """Take the rows of `table` into account."""
        self._counts.add(table)
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
        """The counts and bounds of all rows so far."""
        bounded = [(leaf, *self._ranges[leaf.field_id]) for leaf in self._leaves if leaf.field_id in self._ranges]
        upper = {leaf.field_id: upper_bound(leaf, greatest) for leaf, _, greatest in bounded}
        return Metrics(
            value_counts=self._values,
            null_value_counts=self._nulls,
            nan_value_counts=self._counts.nans,
            lower_bounds={leaf.field_id: lower_bound(leaf, least) for leaf, least, _ in bounded},
            upper_bounds={number: bound for number, bound in upper.items() if bound is not None},
        )


def sliced(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """
    The rows in slices of about `most_bytes` of Arrow data, at least one row each.
    """
    while rows.num_rows:
        size = rows.nbytes
        count = rows.num_rows if size <= most_bytes else max(rows.num_rows * most_bytes // size, 1)
        yield rows.slice(0, count)
        rows = rows.slice(count)
