"""
How many rows of a Parquet file are decoded at once, so that a batch fits in memory whatever the file holds.

Pages tell the size of encoded values only. A dictionary makes them small: a text of 1 MiB that is in each of 65,536
rows takes 1 MiB in a file and 64 GiB in memory. So does DELTA_BYTE_ARRAY. Sizes that the footer says
are not believed.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.errors import CannotRead
from bookkeeper.format.page_headers import Pages, pages
from bookkeeper.format.sparse_file import Content, content_file

#: bytes of a batch, on average and at most
BATCH_BYTES, MOST_BATCH_BYTES = 8 * 2**20, 64 * 2**20
MOST_BATCH_ROWS = 65_536
#: of a column in one row group, uncompressed: no page of it is larger
MOST_CHUNK_BYTES = 2**30
#: of the values of lists in one row group, decoded: a single row may have them all
MOST_LISTS_BYTES = 512 * 2**20
#: of a column in DELTA_BYTE_ARRAY, were all its values as long as they may be: batches of it are small, this is 4,096
MOST_DELTA_BYTES = 4096 * MOST_BATCH_BYTES
#: a value of fixed width, with what Arrow needs beside it
_VALUE_BYTES = 16


def batch_rows(data: Content, footer: pq.FileMetaData, names: Collection[str] | None = None) -> int:
    """
    Rows to decode at once, at least one, of the columns with these `names` (None: all); raises CannotRead where one
    row may be too much.
    """
    rows: int = footer.num_rows
    columns = columns_below(footer, names)
    chunks = [chunk for index in range(footer.num_row_groups) for chunk in _chunks(data, footer, index, columns)]
    size = sum(chunk.pages.bytes for chunk in chunks)
    wide: int = MOST_BATCH_BYTES // max(sum(map(_width, columns.values())), 1)
    most = max(1, min(MOST_BATCH_ROWS, wide, rows * BATCH_BYTES // max(size, 1)))
    if min(most, rows) * size <= MOST_BATCH_BYTES and not any(
        column.max_repetition_level for column in columns.values()
    ):
        return most  # even if every row had all bytes of the file: so it is with small ones
    return min([most, *(limit for chunk in chunks for limit in _limits(data, footer, chunk, most))])


def columns_below(footer: pq.FileMetaData, names: Collection[str] | None) -> dict[int, Any]:
    """
    The columns that `names` have (None: all), by their place in the file.
    """
    columns = {at: footer.schema.column(at) for at in range(footer.num_columns)}
    return {at: column for at, column in columns.items() if names is None or _is_below(column.path, names)}


def _is_below(path: str, names: Collection[str]) -> bool:
    """Whether the column lies in one of these; it counts too where a name with a dot in it leaves that open."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


class _Chunk(NamedTuple):
    """A column in one row group: `values` in all, bytes that each takes in Arrow beside its text."""

    group: int
    rows: int
    name: str
    values: int
    width: int
    repeated: bool
    text: bool
    pages: Pages


def _width(column: Any) -> int:
    return max(_VALUE_BYTES, column.length or 0)  # a null of fixed width takes its room too


def _chunks(data: Content, footer: pq.FileMetaData, index: int, columns: Mapping[int, Any]) -> Iterator[_Chunk]:
    # A damaged description of a column makes pyarrow end the process when it is asked for, and is an error when it is
    # read: so it is read first.
    if _first_row(data, footer, index, [column.path for column in columns.values()]) is None:
        return
    group = footer.row_group(index)
    for at, column in columns.items():
        chunk = group.column(at)
        offsets = [chunk.data_page_offset]
        if chunk.has_dictionary_page and chunk.dictionary_page_offset > 0:
            offsets.append(chunk.dictionary_page_offset)
        found = pages(data, min(offsets), chunk.total_compressed_size)
        name, text = chunk.path_in_schema, chunk.physical_type.endswith("BYTE_ARRAY")
        if found.bytes > MOST_CHUNK_BYTES:
            raise CannotRead(f"column {name[:100]!r} has {found.bytes} bytes")
        repeated = column.max_repetition_level > 0
        yield _Chunk(index, group.num_rows, name, chunk.num_values, _width(column), repeated, text, found)


def _limits(data: Content, footer: pq.FileMetaData, chunk: _Chunk, rows: int) -> Iterator[int]:
    values = -(-chunk.values // max(chunk.rows, 1))  # of a row, on average
    widest = chunk.width
    if values * widest > MOST_BATCH_BYTES:
        raise CannotRead(f"a row has {values} values in column {chunk.name[:100]!r}")
    # One row of many can have all values of lists, whatever the average is.
    if chunk.repeated and chunk.values * widest > MOST_LISTS_BYTES:
        raise CannotRead(f"lists in column {chunk.name[:100]!r} have {chunk.values} values")
    if chunk.text and chunk.pages.delta:
        widest = max(widest, chunk.pages.bytes)  # a value begins as the one before: the longest may be in every row
        if chunk.values * widest > (MOST_LISTS_BYTES if chunk.repeated else MOST_DELTA_BYTES):
            raise CannotRead(f"column {chunk.name[:100]!r} is too large for its encoding, DELTA_BYTE_ARRAY")
    elif chunk.text and chunk.pages.dictionary:
        if max(rows * values, chunk.values) * chunk.pages.bytes > MOST_BATCH_BYTES:
            widest = max(widest, _longest(data, footer, chunk))
        if chunk.repeated and chunk.values * widest > MOST_LISTS_BYTES:
            _check_lists(data, footer, chunk)
    yield max(1, MOST_BATCH_BYTES // max(values * widest, 1))


def _check_lists(data: Content, footer: pq.FileMetaData, chunk: _Chunk) -> None:
    """Counts the bytes of all texts in lists, without making them: their dictionary and its indices are read."""
    size = 0
    for batch in _dictionaries(data, footer, chunk, MOST_BATCH_ROWS):
        array = _texts(batch)
        if array is None:
            raise CannotRead(f"the size of lists in column {chunk.name[:100]!r} cannot be told")
        lengths = pc.binary_length(array.dictionary).cast(pa.int64())
        size += pc.sum(lengths.take(array.indices)).as_py() or 0
        if size > MOST_LISTS_BYTES:
            raise CannotRead(f"lists in column {chunk.name[:100]!r} have more than {MOST_LISTS_BYTES} bytes")


def _longest(data: Content, footer: pq.FileMetaData, chunk: _Chunk) -> int:
    """The bytes of the longest value in a column's dictionary; of all values where that cannot be told."""
    array = next((_texts(batch) for batch in _dictionaries(data, footer, chunk, 1)), None)
    if array is None or not len(array.dictionary):
        return chunk.pages.bytes
    return int(pc.max(pc.binary_length(array.dictionary)).as_py())


def _dictionaries(data: Content, footer: pq.FileMetaData, chunk: _Chunk, rows: int) -> Iterator[pa.RecordBatch]:
    """A column of a row group, so many rows at once, with its dictionary."""
    name = [chunk.name]
    with pq.ParquetFile(content_file(data), metadata=footer, read_dictionary=name) as opened:
        yield from opened.iter_batches(rows, row_groups=[chunk.group], columns=name, use_threads=False)


def _first_row(data: Content, footer: pq.FileMetaData, group: int, paths: list[str]) -> pa.RecordBatch | None:
    """The first row of a row group."""
    with pq.ParquetFile(content_file(data), metadata=footer) as opened:
        return next(opened.iter_batches(1, row_groups=[group], columns=paths, use_threads=False), None)


def _texts(batch: pa.RecordBatch) -> Any:
    """The texts with their dictionary that are inside a batch's one column; None where they cannot be told."""
    array = batch.column(0) if batch.num_columns == 1 else None
    while array is not None and not pa.types.is_dictionary(array.type):
        array = _inner(array)
    return array


def _inner(array: Any) -> Any:
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return array.values
    if pa.types.is_struct(array.type) and array.type.num_fields == 1:
        return array.field(0)
    return None
