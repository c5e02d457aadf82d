"""
Arrow in, a Parquet file in memory out, with the metrics of its footer.

Rows are kept as Arrow until a row group is worth writing; the file never touches the local disk.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.format import footer
from bookkeeper.format.bounds import UNORDERED, Leaf
from bookkeeper.format.open_file import UNSORTED, Finished, RowCounts
from bookkeeper.format.required import settled
from bookkeeper.format.sorting import Sorter

ROW_GROUP_BYTES = 64 * 2**20  # of Arrow data
_NEARLY_FULL = 0.95


class ParquetFile:
    """Implements OpenFile. With a `sorter` each row group is sorted, and a file of one row group is."""

    def __init__(
        self,
        schema: pa.Schema,
        leaves: tuple[Leaf, ...],
        compression: str,
        target_bytes: int,
        sorter: Sorter | None = None,
        bloom_filters: Mapping[str, Any] | None = None,
    ) -> None:
        self.rows = 0
        self._leaves, self._target, self._sorter = leaves, target_bytes, sorter
        self._counts = RowCounts(leaves)
        self._sink = pa.BufferOutputStream()
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            store_schema=False,  # readers go by field id; Arrow's own schema would only be weight
            store_decimal_as_integer=True,  # as the Iceberg spec wants small decimals
            metadata_collector=self._footers,
            write_statistics=_with_statistics(schema, leaves),
            bloom_filter_options=dict(bloom_filters) if bloom_filters else None,
        )
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._encoded_bytes = 0

    def bytes_to_add(self) -> int:
        """See OpenFile."""
        left = (self._target - self._sink.tell()) / self._ratio()
        return int(max(min(ROW_GROUP_BYTES, left) - self._waiting_bytes, 1))

    def add(self, rows: pa.Table) -> None:
        """See OpenFile."""
        self._counts.add(rows)
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES or self.size() >= self._target:
            self.write_row_group()

    def size(self) -> int:
        """See OpenFile."""
        return int(self._sink.tell() + self._waiting_bytes * self._ratio())

    def memory(self) -> int:
        """See OpenFile."""
        return int(self._sink.tell() + self._waiting_bytes)

    def full(self) -> bool:
        """See OpenFile."""
        return self.size() >= self._target * _NEARLY_FULL

    def finish(self) -> Finished:
        """See OpenFile."""
        self.write_row_group()
        self._writer.close()
        found = self._footers[0]
        metrics = footer.metrics(found, self._leaves, self._counts)
        # Each row group is sorted; of two, the second may begin below the end of the first.
        order = self._sorter.id if self._sorter is not None and found.num_row_groups < 2 else UNSORTED
        return Finished(self._sink.getvalue(), self.rows, metrics, order)

    def write_row_group(self) -> None:
        """Write the rows that wait; from then on it is known how well such rows compress."""
        if self._waiting:
            rows = settled(pa.concat_tables(self._waiting))
            if self._sorter is not None:
                ordered = self._sorter.sort(rows)
                rows, self._sorter = (rows, None) if ordered is None else (ordered, self._sorter)
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
            self._encoded_bytes += self._waiting_bytes
            self._waiting, self._waiting_bytes = [], 0

    def _ratio(self) -> float:
        # Before the first row group it is not known how well these rows compress.
        return self._sink.tell() / self._encoded_bytes if self._encoded_bytes else 1.0


def _with_statistics(schema: pa.Schema, leaves: tuple[Leaf, ...]) -> bool | list[str]:
    """The columns that have statistics in the file, by their paths there; True for all."""
    if not any(str(leaf.kind) in UNORDERED for leaf in leaves):
        return True
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, schema).close()
    columns = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    return [columns.column(at).path for at, leaf in enumerate(leaves) if str(leaf.kind) not in UNORDERED]
