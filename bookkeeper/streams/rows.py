"""
Reads the rows of one data file, in the columns that the table has now, 500 at a time.

pyiceberg's own scan decodes a whole file at once, and no Avro. Its projection of renamed, added or promoted columns is
used here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputStream
from pyiceberg.io.pyarrow import _get_column_projection_values, _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.types import ListType, MapType

from bookkeeper.errors import BookkeeperError, NotPossible, StorageUnavailable
from bookkeeper.stores.store import translated

ROWS = 500


def rows(table: Table, file: DataFile, columns: Sequence[str], after: int = 0) -> Iterator[dict[str, Any]]:
    """
    The rows of a file of this table after the first `after`; raises Missing, StorageUnavailable, NotPossible.
    """
    wanted = table.schema().select(*columns) if columns else table.schema()
    readers = {FileFormat.PARQUET: _parquet, FileFormat.AVRO: _avro}
    if file.file_format not in readers:
        raise NotPossible(f"{file.file_path}: {file.file_format} cannot be read here")
    with reading(file.file_path), table.io.new_input(file.file_path).open() as source:
        found = islice(readers[file.file_format](table, file, source, wanted), after, None)
        yield from ({name: row[name] for name in columns} for row in found) if columns else found


@contextmanager
def reading(what: str) -> Iterator[None]:
    """
    Turns the errors of file systems and decoders into Missing, StorageUnavailable, or NotPossible for a bad file.
    """
    try:
        with translated(what):
            yield
    except BookkeeperError:
        raise
    except (pa.ArrowException, ValueError) as exc:
        raise NotPossible(
            f"{what} cannot be decoded: {exc}", hint="`bookkeeper verify` tells whether it is whole."
        ) from exc
    except Exception as exc:
        # The file systems of pyiceberg share no root of errors.
        raise StorageUnavailable(f"{what}: {type(exc).__name__}: {exc}") from exc


def _parquet(table: Table, file: DataFile, source: InputStream, wanted: Schema) -> Iterator[dict[str, Any]]:
    parquet = pq.ParquetFile(source, pre_buffer=False)
    in_file = pyarrow_to_schema(parquet.schema_arrow, table.metadata.name_mapping(), downcast_ns_timestamp_to_us=True)
    # Lists and maps are selected by their elements, as pyiceberg's own scan does: it refuses to project them whole.
    ids = {
        number
        for number in wanted.field_ids
        if number in in_file.field_ids and not isinstance(wanted.find_type(number), ListType | MapType)
    }
    present = prune_columns(in_file, ids, select_full_types=False)
    spec = table.metadata.specs().get(file.spec_id)
    absent = _get_column_projection_values(file, wanted, table.schema(), spec, in_file.field_ids)
    for batch in parquet.iter_batches(ROWS, columns=[column.name for column in present.columns]):
        shown: pa.RecordBatch = _to_requested_schema(
            wanted, present, batch, True, projected_missing_fields=absent, allow_timestamp_tz_mismatch=True
        )
        yield from shown.to_pylist()


def _avro(table: Table, file: DataFile, source: InputStream, wanted: Schema) -> Iterator[dict[str, Any]]:
    reader = fastavro.reader(source)
    fields = reader.writer_schema["fields"]  # type: ignore[index, call-overload]
    names = {field["field-id"]: field["name"] for field in fields}
    columns = [(column.name, names.get(column.field_id, "")) for column in wanted.fields]
    for row in reader:
        yield {name: row.get(in_file) for name, in_file in columns}  # type: ignore[union-attr]
