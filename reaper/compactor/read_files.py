"""
The rows of Parquet files, in the table's schema, a batch at a time.

Every file is hostile until read: no more bytes of it are read than its entry says, no more rows than its entry says are
taken, and whatever is wrong with it is a CannotRewrite that names it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from bookkeeper.contract.rewrite import ReplacedFile
from bookkeeper.errors import BookkeeperError, CannotRead, StorageUnavailable
from bookkeeper.format.entries import DataFile
from bookkeeper.format.projection import Projection, constants
from bookkeeper.format.read_parquet import batches
from bookkeeper.stores.together import in_parts
from reaper.compactor.group import CannotRewrite
from reaper.compactor.pacing import Pacing
from reaper.files.storage import Storage

#: a file is read whole
MOST_FILE_BYTES = 512 * 2**20
#: small files are read together
TOGETHER_BYTES = 16 * 2**20
#: rows of one group, in memory: 16 times the largest target. One thread compacts all tables, at about 1 GiB a second
MOST_GROUP_BYTES = 8 * 2**30


class Files:
    """Reads the files of one partition, `values`, of one spec."""

    def __init__(self, table: Table, spec: PartitionSpec, values: tuple[Any, ...], storage: Storage) -> None:
        self.schema: Schema = table.schema()
        self.arrow: pa.Schema = schema_to_pyarrow(self.schema)
        self._mapping = table.name_mapping()
        self._constants = constants(spec, values, self.schema, self.arrow)
        self._storage = storage
        self._last: tuple[pa.Schema, Projection] | None = None

    def rows(self, files: Iterable[ReplacedFile], pacing: Pacing) -> Iterator[pa.Table]:
        """
        The rows of these files, in their order; raises CannotRewrite, StorageUnavailable.
        """
        named = {item.file.path: item.file for item in files}
        sizes, size = dict.fromkeys(named, 0), 0
        for part in in_parts(((path, file.size_bytes) for path, file in named.items()), TOGETHER_BYTES):
            pacing.spend(sum(part.values()))
            found = self._storage.read_together(part)
            for path in part:
                for rows in self._rows(named[path], found.pop(path), pacing):
                    sizes[path] += rows.nbytes
                    size += rows.nbytes
                    if size > MOST_GROUP_BYTES:
                        raise _too_large(sizes)
                    yield rows

    def _rows(self, file: DataFile, data: bytes | BookkeeperError, pacing: Pacing) -> Iterator[pa.Table]:
        if isinstance(data, StorageUnavailable):
            raise data
        try:
            if isinstance(data, BookkeeperError):
                raise CannotRewrite(str(data))
            yield from self._decoded(file, data, pacing)
        except CannotRewrite as exc:
            raise CannotRewrite(f"{file.path[:300]}: {exc}", file.path) from exc

    def _decoded(self, file: DataFile, data: bytes, pacing: Pacing) -> Iterator[pa.Table]:
        if len(data) != file.size_bytes:
            raise CannotRewrite(f"it has {len(data)} bytes, the table says {file.size_bytes}")
        count = 0
        for batch in _batches(data, file, self):
            pacing.check()
            count += batch.num_rows
            yield batch
        if count != file.record_count:
            raise CannotRewrite(f"it has {count} rows, the table says {file.record_count}")

    def projection(self, source: pa.Schema) -> Projection:
        """How files with this Arrow schema are read; raises CannotRead."""
        # Most files of a group have one schema.
        if self._last is None or not self._last[0].equals(source, check_metadata=True):
            projection = Projection(source, self.schema, self.arrow, self._mapping, self._constants)
            self._last = (source, projection)
        return self._last[1]


def check_readable(files: Iterable[ReplacedFile]) -> None:
    """
    Raises CannotRewrite for what is not worth a read: another format, encrypted, too large, or named twice.
    """
    seen = set[str]()
    for item in files:
        file, shown = item.file, item.file.path[:300]
        if file.file_format.upper() != "PARQUET":
            raise CannotRewrite(
                f"{shown}: only Parquet files are rewritten here, it is {file.file_format[:40]}", file.path
            )
        if file.key_metadata is not None:
            raise CannotRewrite(f"{shown}: it is encrypted", file.path)
        if not 0 < file.size_bytes <= MOST_FILE_BYTES:
            raise CannotRewrite(f"{shown}: it has {file.size_bytes} bytes, up to {MOST_FILE_BYTES} are read", file.path)
        if file.path in seen:
            raise CannotRewrite(f"{shown}: the table names it twice", file.path)
        seen.add(file.path)


def _too_large(sizes: Mapping[str, int]) -> CannotRewrite:
    path = max(sizes, key=sizes.__getitem__)
    return CannotRewrite(
        f"{path[:300]}: the group has rows of more than {MOST_GROUP_BYTES} bytes, most of them here", path
    )


def _batches(data: bytes, file: DataFile, files: Files) -> Iterator[pa.Table]:
    try:
        yield from batches(data, file.record_count, files.projection)
    except CannotRead as exc:
        raise CannotRewrite(str(exc)) from exc
