"""
Parquet and Arrow files as a source with positions: the number of a row. Such a file must not change at all.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import accumulate
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.errors import CannotRead, NotPossible
from bookkeeper.format.arrow_memory import written_size
from bookkeeper.format.batch_size import batch_rows
from bookkeeper.format.input_files import row_kind
from bookkeeper.format.page_headers import MOST_DICTIONARY_HEADER, mean_of_dictionary

#: of a fingerprint: so many pieces, spread over the whole file, and of each so many bytes
_PIECES, _PIECE_BYTES = 256, 4096
#: of a batch; without the bound in bytes 16,384 values of 1 MiB would be in memory at once
_BATCH_ROWS, _BATCH_BYTES = 16_384, 64 * 2**20


def fingerprint(name: str) -> bytes:
    """
    The size of such a file and a hash of pieces of it, the last of which is its end; a file of up to 1 MiB is hashed
    whole.

    The end alone says where everything is, and need not say what: two exports with the same columns and number of rows
    have one size and one end where the columns are many, or the last values are the same.
    """
    found = hashlib.sha256()
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        last = max(size - _PIECE_BYTES, 0)
        for number in range(_PIECES):
            found.update(os.pread(file.fileno(), _PIECE_BYTES, last * number // (_PIECES - 1)))
    return f"{size}:{found.hexdigest()}".encode()


def batches(name: str, row: int, data: bytes | None = None) -> Iterator[tuple[int, int, pa.Table]]:
    """
    The rows from number `row` on: the number behind the last of them, how many there are in all, and the rows, few at
    once where a dictionary unpacks to much. With `data`, the bytes of a stranger's file, one of Parquet that does not
    tell how many is refused.

    Raises NotPossible where the file is damaged or has fewer than `row` rows.
    """
    with _readable(name):
        found = _parquet(name, row, data) if row_kind(name) == "Parquet" else _arrow(name, row)
        for end, total, table in found:
            if table.num_rows:
                yield end, total, table


def empty(name: str) -> pa.Table:
    """
    The columns of a file without rows; raises NotPossible where it is damaged.
    """
    with _readable(name):
        if row_kind(name) == "Parquet":
            return pq.read_schema(name).empty_table()
        with pa.memory_map(name) as file:
            return pa.ipc.open_file(file).schema.empty_table()


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, CannotRead) as exc:
        raise NotPossible(f"{name} cannot be read as {row_kind(name)}: {str(exc)[:200]}") from exc


def _parquet(name: str, row: int, data: bytes | None) -> Iterator[tuple[int, int, pa.Table]]:
    with closing(pq.ParquetFile(name)) as file:
        counts = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
        total = sum(counts)
        group, end = _first(counts, row)
        size = sum(file.metadata.row_group(index).total_byte_size for index in range(len(counts)))
        most = max(1, min(_BATCH_ROWS, _BATCH_BYTES * total // max(1, size)))
        most = min(most, _most_rows(name, file.metadata) if data is None else batch_rows(data, file.metadata))
        for batch in file.iter_batches(batch_size=most, row_groups=range(group, len(counts))):
            begin, end = end, end + batch.num_rows
            yield end, total, pa.Table.from_batches([batch]).slice(max(row - begin, 0))


def _most_rows(name: str, footer: pq.FileMetaData) -> int:
    """Rows of a user's own Parquet file to decode at once, by the mean size of the values in its dictionaries."""
    most = _BATCH_ROWS
    with open(name, "rb") as file:
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page:
                    head = os.pread(file.fileno(), MOST_DICTIONARY_HEADER, chunk.dictionary_page_offset)
                    size = mean_of_dictionary(head) * chunk.num_values // max(1, group.num_rows)
                    most = min(most, _BATCH_BYTES // max(1, size))
    return max(1, most)


def _arrow(name: str, row: int) -> Iterator[tuple[int, int, pa.Table]]:
    # Not mapped: rows that the writer keeps would be read from a file that may be gone by then.
    with pa.OSFile(name) as raw, pa.ipc.open_file(raw) as file:
        counts = [file.get_batch(index).num_rows for index in range(file.num_record_batches)]
        total = sum(counts)
        index, end = _first(counts, row)
        for number in range(index, len(counts)):
            table = pa.Table.from_batches([file.get_batch(number)])
            size = table.nbytes + sum(written_size(chunk) for column in table.columns for chunk in column.chunks)
            most = max(1, min(_BATCH_ROWS, _BATCH_BYTES * table.num_rows // max(1, size)))
            for first in range(0, table.num_rows, most):
                piece = table.slice(first, most)
                begin, end = end, end + piece.num_rows
                yield end, total, piece.slice(max(row - begin, 0))


def _first(counts: list[int], row: int) -> tuple[int, int]:
    """The first group that has rows from `row` on, and the number of its first row."""
    begins = list(accumulate(counts, initial=0))
    index = sum(end <= row for end in begins[1:])
    return index, begins[index]


def as_json(row: pa.Table) -> tuple[bytes, bool]:
    """
    One row as JSON, for the file of bad lines; False where it shows a value that JSON or Python does not hold.
    """
    shown = {name: _value(column) for name, column in zip(row.column_names, row.columns, strict=True)}
    try:
        return json.dumps(shown, default=_exactly).encode(), not any(
            isinstance(item, _Shown) for item in shown.values()
        )
    except ValueError:
        return json.dumps(shown, default=_shown).encode(), False


class _Shown(str):
    """A value as Arrow shows it."""


def _value(column: pa.ChunkedArray) -> Any:
    try:
        return column.to_pylist()[0]
    except (ValueError, OverflowError):  # the year 10000, nanoseconds, a text that is not UTF-8
        return _Shown(" ".join(column.to_string().split()))


def _exactly(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
