"""
Writes position delete files: one for each data file, durable before anything names it.

A crash leaves any part of them, whole or torn. Nothing names them: the orphan sweep deletes them by age.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import LongType, StringType

from bookkeeper.folds.read import FILE_PATH, POSITION, POSITIONS_SCHEMA
from bookkeeper.format.bounds import Leaf
from bookkeeper.format.entries import ADDED, POSITION_DELETES, DataFile, Entry
from bookkeeper.format.parquet_writer import ParquetFile
from bookkeeper.ledger.view import View
from bookkeeper.stores.locations import join, normal_file
from bookkeeper.stores.store import Store, key_in
from bookkeeper.stores.together import together

#: positions that are made into rows at once
PART_ROWS = 250_000
_ARROW = schema_to_pyarrow(POSITIONS_SCHEMA)
#: of both columns all metrics, and bounds that are not cut: by equal ones of the path readers know the data file
_LEAVES = (
    Leaf(FILE_PATH, ("file_path",), StringType(), False, True, True, None),
    Leaf(POSITION, ("pos",), LongType(), False, True, True, None),
)


class NewFiles:
    """The position delete files of one fold, with its id in their names."""

    def __init__(self, view: View, fold_id: str) -> None:
        self._view, self._id = view, fold_id
        self._written: list[tuple[str, bytes]] = []

    def add(self, file: DataFile, positions: pa.Array) -> Entry:
        """The entry of a new file with these rows of a data file, in ascending order."""
        place = join(self._view.data_path, f"{self._id}-{len(self._written) + 1:05d}-deletes.parquet")
        # The location as the data file's entry spells it: readers compare text.
        path = pa.scalar(file.path, _ARROW.field("file_path").type)
        # The path is in each row: 10 million positions would take 1.5 GB at once.
        open_file = ParquetFile(_ARROW, _LEAVES, "zstd", len(positions) * (len(file.path.encode()) + 16))
        for begin in range(0, len(positions), PART_ROWS):
            part = positions.slice(begin, PART_ROWS).cast(pa.int64())
            open_file.add(pa.Table.from_arrays([pa.repeat(path, len(part)), part], schema=_ARROW))
        done = open_file.finish()
        self._written.append((place, done.data))
        bound = {FILE_PATH: file.path.encode()}  # a footer keeps none of a long path
        stored = done.described(place, "PARQUET", file.partition)
        lower, upper = {**stored.lower_bounds, **bound}, {**stored.upper_bounds, **bound}
        # No sort order: "by file and position" is none of the table's (Iceberg spec, "Position Delete Files").
        stored = replace(stored, lower_bounds=lower, upper_bounds=upper, sort_order_id=None)
        return Entry(ADDED, None, None, None, POSITION_DELETES, None, file.path, stored)

    def store(self, store: Store) -> None:
        """Makes all of them durable; raises StorageUnavailable."""
        uploads: Sequence[partial[None]] = [
            partial(store.upload, key_in(store, normal_file(place)), data) for place, data in self._written
        ]
        together(uploads, store.at_once)
