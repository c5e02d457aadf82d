"""
Reads the rows of one data file as Arrow batches, in the columns that the table has now.

pyiceberg's own scan decodes a whole file at once, and no Avro. Its projection of renamed, added or promoted columns is
used here.
"""

from collections.abc import Iterator, Set
from functools import partial
from io import BytesIO
from itertools import islice
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.io import InputStream
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, prune_columns, visit_with_partner
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, PrimitiveType

from bookkeeper.consumers import avro_rows
from bookkeeper.consumers.reading import reading
from bookkeeper.consumers.snapshot_files import TableFile
from bookkeeper.errors import NotPossible
from bookkeeper.format.partition_tuples import partition_value
from bookkeeper.format.projection import inside
from bookkeeper.stores.locations import local_path

ROWS = 500
PARQUET, AVRO = "PARQUET", "AVRO"
Batches = Iterator[pa.RecordBatch]
#: bytes that are decoded at once: little, or the memory of each batch comes twice; more of each column where there are
#: many, and more where a projection takes 1.5 ms each time
PIECE_BYTES, PIECE_BYTES_OF_COLUMN, PROJECTED_BYTES = 2**18, 2**16, 2**22
#: of each column bytes that are read at once: on a disk little, elsewhere each read is a round trip; a file with no
#: more bytes than these is read column by column
DISK_BUFFER, DISK_BUFFERS, REMOTE_BUFFER, SMALL_BYTES = 2**18, 2**23, 2**24, 2**20


class Projection:
    """
    Files of a table as Arrow batches in the schema `wanted`.

    What it finds out about the schema of one file holds for all that have the same: pyiceberg's visitors take 1.5 ms.
    """

    def __init__(self, table: Table, wanted: Schema) -> None:
        self._table, self._wanted = table, wanted
        #: by the bytes of a file's Arrow schema, field ids included
        self._known: dict[bytes, _InFile] = {}

    def batches(
        self, file: TableFile, after: int, most_rows: int, most_bytes: int, data: bytes | None = None
    ) -> Batches:
        """
        The rows of a file after the first `after`; `data` are its bytes, if they are in memory.

        Each batch has at most `most_rows` rows, and about `most_bytes` bytes when a row is smaller than that. Raises
        Missing, StorageUnavailable, NotPossible.
        """
        if file.file_format not in (PARQUET, AVRO):
            raise NotPossible(f"{file.file_path}: {file.file_format} cannot be read here")
        with reading(file.file_path), self._opened(file, data) as source:
            if file.file_format == AVRO:
                found = avro_rows.rows(cast(IO[bytes], source), self._wanted, partial(self._constants, file))
                yield from _avro_batches(found, self._wanted, after, most_rows)
                return
            parquet = parquet_file(source if data is None else pa.BufferReader(data), self._table)
            first, groups = _row_groups(parquet.metadata, after)
            in_file = self._in_file(parquet)
            most = min(most_bytes, in_file.piece_bytes)
            size = max(1, min(most_rows, most * parquet.metadata.num_rows // max(1, _bytes(parquet.metadata))))
            for batch in self._shown(file, in_file, parquet, size, groups):
                if first < batch.num_rows:
                    yield from _slices(batch.slice(first) if first else batch, most_bytes)
                first = max(0, first - batch.num_rows)

    def _opened(self, file: TableFile, data: bytes | None) -> InputStream:
        return self._table.io.new_input(file.file_path).open() if data is None else cast(InputStream, BytesIO(data))

    def _shown(
        self, file: TableFile, found: "_InFile", parquet: pq.ParquetFile, size: int, groups: list[int]
    ) -> Batches:
        absent = {} if found.is_wanted else self._constants(file, self._wanted.field_ids - found.ids)
        # Without threads: each of them keeps memory of its own, and they are no faster.
        for batch in parquet.iter_batches(size, row_groups=groups, columns=found.columns, use_threads=False):
            if found.is_wanted:
                yield batch
                continue
            visitor = _WithNulls(found.present, True, False, absent, allow_timestamp_tz_mismatch=True)
            shown = visit_with_partner(self._wanted, batch, visitor, ArrowAccessor(found.present))
            yield pa.RecordBatch.from_struct_array(shown)

    def _constants(self, file: TableFile, ids: Set[int]) -> dict[int, Any]:
        """The values of those of these columns by which the file is partitioned as they are, by field id."""
        spec = self._table.metadata.specs().get(file.spec_id)
        pairs = zip(spec.fields, file.partition, strict=True) if spec is not None else ()
        return {
            part.source_id: partition_value(value, self._wanted.find_type(part.source_id))
            for part, value in pairs
            if part.source_id in ids and isinstance(part.transform, IdentityTransform) and value is not None
        }

    def _in_file(self, parquet: pq.ParquetFile) -> "_InFile":
        written = parquet.schema_arrow
        key = written.serialize().to_pybytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look(written)
        return found

    def _look(self, written: pa.Schema) -> "_InFile":
        mapping = self._table.metadata.name_mapping()
        in_file = pyarrow_to_schema(written, mapping, downcast_ns_timestamp_to_us=True)
        wanted = self._wanted
        # Lists and maps are selected by their elements, as pyiceberg's own scan does: it refuses to project them whole.
        ids = {
            number
            for number in wanted.field_ids
            if number in in_file.field_ids and not isinstance(wanted.find_type(number), ListType | MapType)
        }
        present = prune_columns(in_file, ids, select_full_types=False)
        columns = [column.name for column in present.columns]
        return _InFile(present, in_file.field_ids, columns, _is_same(present, wanted, written))


class _WithNulls(ArrowProjectionVisitor):
    """pyiceberg's projection, which makes empty ones of null lists and maps where their values are structs."""

    def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
        found = super().list(list_type, list_array, value_array)
        if found is None or found.null_count == list_array.null_count:
            return found
        offsets, (values,) = inside(found, found.values)
        return type(found).from_arrays(offsets, values, type=found.type, mask=list_array.is_null())

    def map(self, map_type: MapType, map_array: Any, key_result: Any, value_result: Any) -> Any:
        found = super().map(map_type, map_array, key_result, value_result)
        if found is None or found.null_count == map_array.null_count:
            return found
        offsets, (keys, values) = inside(found, found.keys, found.items)
        return pa.MapArray.from_arrays(offsets, keys, values, type=found.type, mask=map_array.is_null())


class _InFile(NamedTuple):
    """What a file has of the wanted columns, and all its field ids; `is_wanted`: it needs no projection, but a cast."""

    present: Schema
    ids: set[int]
    columns: list[str]
    is_wanted: bool

    @property
    def piece_bytes(self) -> int:
        """The bytes that are decoded at once."""
        return max(PIECE_BYTES, PIECE_BYTES_OF_COLUMN * len(self.columns)) if self.is_wanted else PROJECTED_BYTES


def _is_same(present: Schema, wanted: Schema, written: pa.Schema) -> bool:
    """Whether the columns are the wanted ones as they stand: plain ones, of the same ids, names, types and order."""
    same = [(item.field_id, item.name, item.field_type) for item in present.fields]
    plain = all(isinstance(item.field_type, PrimitiveType) for item in wanted.fields)
    # Nanoseconds are cut by the projection, and refused by a cast.
    coarse = not any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in written.types)
    return plain and coarse and same == [(item.field_id, item.name, item.field_type) for item in wanted.fields]


def parquet_file(source: Any, table: Table) -> pq.ParquetFile:
    """
    A Parquet file of the table, of which a part of each column is read at a time, and no whole row group.
    """
    opened = pq.ParquetFile(source, pre_buffer=False)
    if isinstance(source, pa.BufferReader) or _bytes(opened.metadata) <= SMALL_BYTES:
        return opened
    columns = max(1, opened.metadata.num_columns)
    disk = max(2**14, min(DISK_BUFFER, DISK_BUFFERS // columns))
    size = REMOTE_BUFFER if local_path(table.metadata.location) is None else disk
    return pq.ParquetFile(source, metadata=opened.metadata, pre_buffer=False, buffer_size=size)


def _row_groups(footer: pq.FileMetaData, after: int) -> tuple[int, list[int]]:
    """The row groups behind the first `after` rows, and how many rows of the first of them are to be skipped."""
    groups = list(range(footer.num_row_groups))
    while groups and after >= footer.row_group(groups[0]).num_rows:
        after -= footer.row_group(groups.pop(0)).num_rows
    return after, groups


def _bytes(footer: pq.FileMetaData) -> int:
    return sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))


def _slices(batch: pa.RecordBatch, most_bytes: int) -> Batches:
    """A dictionary makes a footer's sizes too small by far: what is decoded is cut once more."""
    size = max(1, batch.num_rows * most_bytes // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def _avro_batches(found: Iterator[dict[str, Any]], wanted: Schema, after: int, most_rows: int) -> Batches:
    target = schema_to_pyarrow(wanted, include_field_ids=False)
    left = islice(found, after, None)
    while some := list(islice(left, min(ROWS, most_rows))):
        yield pa.RecordBatch.from_pylist(some, schema=target)
