"""
Reads what a fold needs of files: key columns of data files and of equality delete files, positions of position delete
files.

Every file is hostile until read: no more bytes of it are read than its entry says, no more are made of it than fit in
memory, and whatever is wrong with it is a CannotRead that names it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import BookkeeperError, CannotRead, PathRefused, StorageUnavailable
from bookkeeper.format.entries import DataFile
from bookkeeper.format.projection import Projection, constants
from bookkeeper.format.read_parquet import batches
from bookkeeper.format.sparse_file import Content
from bookkeeper.ledger.view import View
from bookkeeper.stores.locations import normal_file
from bookkeeper.stores.store import Store, key_in

#: the columns of a position delete file (Iceberg spec, "Reserved Field IDs")
FILE_PATH, POSITION = 2_147_483_546, 2_147_483_545
POSITIONS_SCHEMA = Schema(
    NestedField(FILE_PATH, "file_path", StringType(), required=True),
    NestedField(POSITION, "pos", LongType(), required=True),
)
#: of a file, by its entry
MOST_FILE_BYTES = 512 * 2**20
#: of the columns that are read of one file, in Arrow: texts in a dictionary take a millionth of that in the file
MOST_ARROW_BYTES = 2**30
#: small files are read together
TOGETHER_BYTES = 64 * 2**20


class KeyColumns:
    """Reads one key of a table: the columns with these field ids, as the table has them now."""

    def __init__(self, view: View, key_ids: Iterable[int]) -> None:
        schema = view.metadata.schema()
        self.schema = Schema(*(schema.find_field(number) for number in key_ids))
        self.arrow: pa.Schema = schema_to_pyarrow(self.schema)
        self._nullable = Schema(*(field.model_copy(update={"required": False}) for field in self.schema.fields))
        self._mapping, self._view = view.table.name_mapping(), view

    def of_data(self, file: DataFile, spec_id: int, data: Content) -> pa.Table:
        """The keys of a data file, row by row; a column that is newer than the file has its value there."""
        return self._read(file, data, self.schema, self._constants(file, spec_id))

    def names_in(self, file: DataFile, spec_id: int, source: pa.Schema) -> list[str] | None:
        """The columns that `of_data` reads of a data file with this schema, None: all; raises CannotRead."""
        return Projection(source, self.schema, self.arrow, self._mapping, self._constants(file, spec_id)).names

    def _constants(self, file: DataFile, spec_id: int) -> Mapping[int, pa.Array]:
        return constants(self._view.specs[spec_id], file.partition, self.schema, self.arrow)

    def of_deletes(self, file: DataFile, data: Content) -> pa.Table:
        """
        The keys of an equality delete file, which must have all columns: one it lacks would delete nulls.

        A null in a required column deletes no row, for no row has it, and is read.
        """
        return self._read(file, data, self._nullable, None)

    def _read(self, file: DataFile, data: Content, schema: Schema, known: Mapping[int, pa.Array] | None) -> pa.Table:
        arrow: pa.Schema = schema_to_pyarrow(schema)

        def projection_of(source: pa.Schema) -> Projection:
            found = Projection(source, schema, arrow, self._mapping, known or {})
            if known is None and found.missing:
                raise CannotRead(f"it lacks the column with the field id {min(found.missing)}")
            return found

        return _rows(file, data, arrow, projection_of)


_POSITIONS_ARROW: pa.Schema = schema_to_pyarrow(POSITIONS_SCHEMA)


def positions_of(file: DataFile, data: bytes, of: str) -> pa.Array:
    """
    The positions in a position delete file that is for one data file, `of`, by `file_key`; raises CannotRead.
    """
    rows = position_rows(file, data)
    for path in pc.unique(rows.column("file_path")).to_pylist():
        if file_key(path) != of:
            raise CannotRead(f"{file.path[:300]}: it has positions of {path[:300]} too")
    return rows.column("pos").combine_chunks()


def position_rows(file: DataFile, data: bytes) -> pa.Table:
    """
    The rows of a position delete file: `file_path` and `pos`. Raises CannotRead.
    """

    def projection_of(source: pa.Schema) -> Projection:
        return Projection(source, POSITIONS_SCHEMA, _POSITIONS_ARROW, None, {})

    return _rows(file, data, _POSITIONS_ARROW, projection_of)


def _rows(file: DataFile, data: Content, schema: pa.Schema, projection_of: Any) -> pa.Table:
    try:
        if len(data) != file.size_bytes:
            raise CannotRead(f"it has {len(data)} bytes, the table says {file.size_bytes}")
        found, size = [schema.empty_table()], 0
        for batch in batches(data, file.record_count, projection_of):
            found.append(batch)
            size += batch.nbytes
            if size > MOST_ARROW_BYTES:
                raise CannotRead(f"the columns that are read of it take more than {MOST_ARROW_BYTES} bytes in memory")
        return pa.concat_tables(found)
    except CannotRead as exc:
        raise CannotRead(f"{file.path[:300]}: {exc}") from exc


def read_files(store: Store, files: Iterable[DataFile]) -> Iterator[tuple[DataFile, bytes | CannotRead]]:
    """
    The content of each file, or why there is none; small ones are read together. Raises StorageUnavailable.
    """
    part, size = list[DataFile](), 0
    for file in files:
        if part and size + file.size_bytes > TOGETHER_BYTES:
            yield from _together(store, part)
            part, size = [], 0
        part.append(file)
        size += file.size_bytes
    yield from _together(store, part)


def _together(store: Store, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes | CannotRead]]:
    keys = {file.path: key_of(store, file) for file in files}
    wanted = {key: file.size_bytes for file in files if isinstance(key := keys[file.path], str)}
    found = store.read_many([*wanted], wanted) if wanted else {}
    for file in files:
        key = keys[file.path]
        data = found[key] if isinstance(key, str) else key
        yield file, why_not(file, data) if isinstance(data, BookkeeperError) else data


def why_not(file: DataFile, error: BookkeeperError) -> CannotRead:
    """
    Why the file cannot be read; raises StorageUnavailable, which says nothing of the file.
    """
    if isinstance(error, StorageUnavailable):
        raise error
    return CannotRead(f"{file.path[:300]}: {error}")


def key_of(store: Store, file: DataFile) -> str | BookkeeperError:
    """
    Its key in the store, or why it is not worth a read.
    """
    if file.file_format.upper() != "PARQUET":
        return CannotRead(f"only Parquet files are read, it is {file.file_format[:40]}")
    if file.key_metadata is not None:
        return CannotRead("it is encrypted")
    if not 0 < file.size_bytes <= MOST_FILE_BYTES:
        return CannotRead(f"it has {file.size_bytes} bytes, up to {MOST_FILE_BYTES} are read")
    try:
        return key_in(store, normal_file(file.path))
    except PathRefused as exc:
        return exc
