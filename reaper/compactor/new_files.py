"""
The new files of one rewrite: filled one after another up to the target size, each durable before the next is begun.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from bookkeeper.config.compaction import target_of
from bookkeeper.config.settings import Compaction
from bookkeeper.format.bloom import bloom_filters
from bookkeeper.format.bounds import PREFIX, leaves
from bookkeeper.format.entries import DataFile
from bookkeeper.format.open_file import sliced
from bookkeeper.format.parquet_writer import ParquetFile
from bookkeeper.format.partition_tuples import folder, partition_value
from bookkeeper.format.sorting import Sorter, sorter_of
from bookkeeper.stores.locations import join
from reaper.compactor.group import Group
from reaper.compactor.pacing import Pacing
from reaper.files.storage import Storage, data_path

#: a file is complete in memory before it is uploaded
MOST_TARGET_BYTES = 512 * 2**20
#: rows that are sorted at once, and how they are then copied: bytes of Arrow data
RUN_BYTES, PIECE_BYTES = 128 * 2**20, 8 * 2**20


class NewFiles:
    """Takes the rows of a group in the table's schema and gives DataFiles of its partition, `stem` in their names."""

    def __init__(
        self,
        table: Table,
        spec: PartitionSpec,
        group: Group,
        stem: str,
        compression: str,
        target: int,
        storage: Storage,
        pacing: Pacing,
    ) -> None:
        schema, properties = table.schema(), table.metadata.properties
        modes = {key: value for key, value in properties.items() if key.startswith(PREFIX)}
        columns = leaves(schema, modes)
        self._open_file = partial(
            ParquetFile,
            schema_to_pyarrow(schema),
            columns,
            compression,
            _limit(target, group.bytes),
            bloom_filters=bloom_filters(columns, properties),
        )
        self._place = join(data_path(table.metadata), *_folders(spec, schema, group.partition))
        self._stem, self._values = stem, group.partition
        self._storage, self._pacing = storage, pacing
        self._sorter = sorter_of(table.sort_order(), schema)
        self._open: ParquetFile | None = None
        #: sorted runs that rows of the open file are of; None for rows in no order
        self._runs: set[int | None] = set()
        #: durable files
        self.stored: list[DataFile] = []
        #: locations that an upload was begun for
        self.begun: list[str] = []

    @property
    def rows(self) -> int:
        """The number of rows in the durable files."""
        return sum(file.record_count for file in self.stored)

    @property
    def bytes(self) -> int:
        """The size of the durable files, bytes."""
        return sum(file.size_bytes for file in self.stored)

    def add_sorted(self, rows: Iterable[pa.Table]) -> None:
        """
        Take rows and sort them by the table's sort order, in runs of RUN_BYTES; as they are, where it has none.

        A file whose rows are all of one run is sorted, and says so; of other files only the parts are.
        """
        if self._sorter is None:
            for part in rows:
                self.add(part)
            return
        run, size, number = list[pa.Table](), 0, 0
        for part in _joined(rows):
            if run and size + part.nbytes > RUN_BYTES:
                self._add_run(self._sorter, run, number)
                run, size, number = [], 0, number + 1
            run.append(part)
            size += part.nbytes
        if run:
            self._add_run(self._sorter, run, number)

    def _add_run(self, sorter: Sorter, run: list[pa.Table], number: int) -> None:
        pieces = sorter.pieces(run, PIECE_BYTES)
        for piece in run if pieces is None else pieces:
            self.add(piece, None if pieces is None else number)

    def add(self, rows: pa.Table, run: int | None = None) -> None:
        """Take rows; raises StorageUnavailable, Stopped. Those of a `run` come in its order."""
        while rows.num_rows:
            if self._open is None:
                self._open, self._runs = self._open_file(), set()
            piece = next(sliced(rows, self._open.bytes_to_add()))
            self._open.add(piece)
            self._runs.add(run)
            rows = rows.slice(piece.num_rows)
            if self._open.full():
                self._open.write_row_group()  # until then its rows count as if they did not compress
            if self._open.full():
                self.finish()

    def finish(self) -> None:
        """
        Completes the open file. A crash leaves it whole, torn or not at all: an orphan, which goes by age.
        """
        if self._open is None:
            return
        finished, self._open = self._open.finish(), None
        if self._sorter is not None and len(self._runs) == 1 and None not in self._runs:
            finished = replace(finished, sort_order_id=self._sorter.id)
        location = join(self._place, f"{self._stem}-{len(self.begun) + 1:05d}.parquet")
        file = finished.described(location, "PARQUET", self._values)
        self._pacing.spend(file.size_bytes)
        self.begun.append(location)
        self._storage.upload(location, finished.data)
        self.stored.append(file)


def _joined(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of PIECE_BYTES or more, each of one chunk: those of small files are joined."""
    small, size = list[pa.Table](), 0
    for part in rows:
        small.append(part)
        size += part.nbytes
        if size >= PIECE_BYTES:
            yield pa.concat_tables(small).combine_chunks()
            small, size = [], 0
    if small:
        yield pa.concat_tables(small).combine_chunks()


def target_bytes(settings: Compaction, properties: Mapping[str, str]) -> int:
    """
    The size of new files: as `config.compaction` has it, at most 512 MiB. Raises TableUnusable for a bad property.
    """
    return min(target_of(settings, properties), MOST_TARGET_BYTES)


def _limit(target: int, group_bytes: int) -> int:
    """The size at which a file is full: a group that fits into one leaves no small rest in a second."""
    return target * 5 // 4 if group_bytes <= target else target


def _folders(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> list[str]:
    """The folders of a partition below the data path, named as the writers name them."""
    found = []
    for field, value in zip(spec.fields, values, strict=True):
        source = schema.find_type(field.source_id)
        found.append(folder(field, source, partition_value(value, field.transform.result_type(source))))
    return found
