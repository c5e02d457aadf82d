"""
The metrics of a data file from its Parquet footer, which the writer has in memory: no file is read again.
"""

from typing import Any

from pyarrow.parquet import ColumnChunkMetaData, FileMetaData  # type: ignore[import-untyped]

from bookkeeper.format.bounds import Leaf, Metrics, lower_bound, upper_bound
from bookkeeper.format.open_file import RowCounts

_FLOATS = {"float", "double"}


class _Column:
    """One column over the row groups seen so far."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.size = self.values = 0
        self.nulls: int | None = 0
        self.least: Any = None
        self.greatest: Any = None
        self.bounded = leaf.bounds

    def add(self, chunk: ColumnChunkMetaData) -> None:
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        if not self.leaf.counts:
            return
        statistics = chunk.statistics if chunk.is_stats_set else None
        nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
        self.nulls = None if nulls is None or self.nulls is None else self.nulls + nulls
        if self.bounded:
            self._widen(chunk, statistics, nulls)

    def _widen(self, chunk: ColumnChunkMetaData, statistics: Any, nulls: int | None) -> None:
        if statistics is not None and statistics.has_min_max:
            least, greatest = statistics.min_raw, statistics.max_raw
            if str(self.leaf.kind).startswith("decimal") and isinstance(least, bytes):
                least, greatest = (int.from_bytes(raw, "big", signed=True) for raw in (least, greatest))
            self.least = least if self.least is None else min(self.least, least)
            self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)
        elif nulls != chunk.num_values and str(self.leaf.kind) not in _FLOATS:
            # Values longer than Parquet keeps statistics for; floats without any hold nothing but NaN.
            self.bounded = False


def metrics(footer: FileMetaData, leaves: tuple[Leaf, ...], counts: RowCounts | None = None) -> Metrics:
    """
    The metrics of a file whose columns are `leaves`, in this order; `counts` has what is not in a footer.
    """
    columns = [_Column(leaf) for leaf in leaves]
    offsets = []
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        chunks = [group.column(position) for position in range(len(columns))]
        offsets.append(_start(chunks[0]))
        for column, chunk in zip(columns, chunks, strict=True):
            column.add(chunk)
    return _gathered(columns, tuple(sorted(offsets)), counts or RowCounts(()))


def _start(chunk: ColumnChunkMetaData) -> int:
    data, dictionary = int(chunk.data_page_offset), chunk.dictionary_page_offset
    return min(data, int(dictionary)) if chunk.has_dictionary_page and dictionary else data


def _gathered(columns: list[_Column], offsets: tuple[int, ...], counts: RowCounts) -> Metrics:
    bounded = [column for column in columns if column.bounded and column.greatest is not None]
    upper = {column.leaf.field_id: upper_bound(column.leaf, column.greatest) for column in bounded}
    counted = [column for column in columns if column.leaf.counts]
    return Metrics(
        column_sizes={column.leaf.field_id: column.size for column in columns},
        value_counts={column.leaf.field_id: column.values for column in counted},
        null_value_counts={
            **{column.leaf.field_id: column.nulls for column in counted if column.nulls is not None},
            **counts.nulls,
        },
        nan_value_counts=counts.nans,
        lower_bounds={column.leaf.field_id: lower_bound(column.leaf, column.least) for column in bounded},
        upper_bounds={number: bound for number, bound in upper.items() if bound is not None},
        split_offsets=offsets,
    )
