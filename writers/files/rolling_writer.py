"""
The data files of one run that no txlog names yet: open, finished (in memory) or stored (durable).

Files are finished by size and by memory. Every file has a name of its own, with the incarnation and the sequence of the
txlog that will name it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.contract.txlog import StepFile
from bookkeeper.errors import Missing, NotPossible, StorageUnavailable
from bookkeeper.format.entries import DataFile
from bookkeeper.format.open_file import Finished, OpenFile, sliced
from bookkeeper.stores.locations import join, normal
from bookkeeper.stores.store import Store
from writers.files.last_of_each_key import INSERT
from writers.files.split_by_partition import Part
from writers.files.write_spec import WriteSpec
from writers.retries import retry
from writers.timing import AtOnce, Clock, Wait
from writers.values.cast import cast

MOST_HELD_BYTES = 512 * 2**20
#: files and bytes that are uploaded at once: the storage's client copies what it sends
MOST_UPLOADS, MOST_UPLOADED_BYTES = 16, 32 * 2**20
_SLICE_BYTES = 64 * 2**20
#: how the names of equality-delete files end
DELETES = "-deletes.parquet"


@dataclass(slots=True)
class _OpenPartition:
    values: tuple[Any, ...]
    path: str
    since: datetime
    file: OpenFile
    number: int


@dataclass(slots=True)
class _FinishedFile:
    # An upload changes this object and not its list: after an interrupt it may end when another txlog is being written.
    key: str
    file: DataFile
    data: Any  # None once it is stored
    number: int
    deletes: bool
    stored_at: datetime | None = None


class NamedFiles(NamedTuple):
    """What a txlog names: data files and equality-delete files, with their relative sequence numbers."""

    data: tuple[StepFile, ...]
    deletes: tuple[StepFile, ...]

    @property
    def data_files(self) -> list[DataFile]:
        """The data files alone."""
        return [item.file for item in self.data]


class StoredFiles(NamedTuple):
    """
    Files that another process has stored; how many operations made them, and the first free number of the order-column.
    """

    files: NamedFiles
    operations: int
    orders: int

    @property
    def last(self) -> int:
        """The last relative sequence number of its steps; 0 where it has no files."""
        return max((item.number for item in self.files.data + self.files.deletes), default=0)


class RollingWriter:
    """
    Of an append-only table: takes rows in the schema of a WriteSpec and gives DataFiles. Rows that were taken are never
    lost by an error here. Steps does the same for a keyed table.

    `stem` is `<writer>-<incarnation>`; `attempt` tells the files of two that write one txlog apart.
    """

    def __init__(self, stem: str, clock: Clock, wait: Wait, at_once: AtOnce, attempt: str = "") -> None:
        self._stem, self._attempt = stem, attempt
        self._clock, self._wait, self._at_once = clock, wait, at_once
        self._open: dict[tuple[Any, ...], _OpenPartition] = {}
        self._finished: list[_FinishedFile] = []
        self._count = 0
        #: when the oldest row that is not published was taken
        self.since: datetime | None = None

    def rows(self) -> int:
        """Rows that no txlog names yet."""
        being_written = sum(item.file.rows for item in self._open.values())
        return being_written + sum(item.file.record_count for item in self._finished)

    def bytes(self) -> int:
        """About how many bytes all these data files have."""
        being_written = sum(item.file.size() for item in self._open.values())
        return being_written + sum(item.file.size_bytes for item in self._finished)

    def open_since(self) -> datetime | None:
        """When the oldest open file was begun."""
        return min((item.since for item in self._open.values()), default=None)

    def full(self) -> bool:
        """Whether the next txlog can soon hold no more, however small its files are."""
        return False

    def check_kind(self, kind: int, table: str) -> None:
        """Raises NotPossible where the table does not take operations of this kind."""
        if kind != INSERT:
            hint = "`bookkeeper init --key` makes one keyed; open a new Writer then."
            raise NotPossible(f"{table} is append-only: it has no keys", hint=hint)

    def has_room(self, count: int, spec: WriteSpec, sequence: int) -> bool:
        """Whether the txlog has room for so many rows more."""
        return True

    def deletes_fit(self, kind: int, spec: WriteSpec) -> bool:
        """Whether the delete files of operations of this kind would reach every row."""
        return True

    def fit(self, rows: pa.Table, spec: WriteSpec, kind: int, deleted: pa.Array | None) -> Any:
        """The rows as `add` takes them; raises SchemaRefused."""
        return cast(rows, spec.schema, spec.arrow, spec.former)

    def add(self, fitted: Any, spec: WriteSpec, sequence: int) -> bool:
        """Take what `fit` gave; returns whether a file was finished by it."""
        return self.take(fitted, spec, sequence)

    def orders(self) -> int:
        """The first free number of the order-column; 0 of an append-only table."""
        return 0

    def add_stored(self, given: Sequence[StoredFiles], at: datetime, data_path: str) -> None:
        """Take files that other processes have stored since `at`."""
        root = len(join(data_path, ""))
        taken = [
            _FinishedFile(file.path[root:], file, None, number, deletes, at)
            for files in (item.files for item in given)
            for items, deletes in ((files.data, False), (files.deletes, True))
            for file, number in items
        ]
        self._finished += taken  # all or none: after an error they may be given again
        self.since = at if self.since is None else min(self.since, at)

    def paths(self) -> frozenset[str]:
        """The locations of the files that are finished or stored."""
        return frozenset(item.file.path for item in self._finished)

    def take(self, rows: pa.Table, spec: WriteSpec, sequence: int, number: int = 0) -> bool:
        """Take rows, whose files have this relative number; returns whether a file was finished by them."""
        before = len(self._finished)
        for part in (part for piece in sliced(rows, _SLICE_BYTES) for part in spec.splitter.split(piece)):
            left = part.rows
            while left.num_rows:
                left = self._add(left, part, spec, sequence, number)
        while self._open and sum(item.file.memory() for item in self._open.values()) > MOST_HELD_BYTES:
            self._finish(max(self._open.values(), key=lambda item: item.file.memory()), spec, sequence)
        return len(self._finished) > before

    def _add(self, rows: pa.Table, part: Part, spec: WriteSpec, sequence: int, number: int) -> pa.Table:
        now = self._clock()
        self.since = self.since or now
        item = self._open.get(part.values)
        if item is None:
            item = self._open[part.values] = _OpenPartition(part.values, part.path, now, spec.open_file(), number)
        piece = next(sliced(rows, item.file.bytes_to_add()))
        item.file.add(piece)
        if item.file.full():
            self._finish(item, spec, sequence)
        return rows.slice(piece.num_rows)

    def finish(self, spec: WriteSpec, sequence: int) -> None:
        """Finish every open file."""
        for item in list(self._open.values()):
            self._finish(item, spec, sequence)

    def _finish(self, item: _OpenPartition, spec: WriteSpec, sequence: int) -> None:
        key = self._key(item.path, sequence, f".{spec.suffix()}")
        self._describe(key, item.file.finish(), spec.card.file_format.upper(), item.values, spec, item.number)
        del self._open[item.values]

    def _describe(
        self,
        key: str,
        finished: Finished,
        file_format: str,
        values: tuple[Any, ...],
        spec: WriteSpec,
        number: int,
        deletes: bool = False,
    ) -> None:
        location = join(spec.card.data_path, key)
        normal(location)
        file = finished.described(location, file_format, values)
        self._finished.append(_FinishedFile(key, file, finished.data, number, deletes))

    def _key(self, path: str, sequence: int, ending: str) -> str:
        self._count += 1
        name = f"{self._stem}-{sequence:010d}-{self._attempt}{self._count:05d}{ending}"
        return f"{path}/{name}" if path else name

    def store(self, store: Store) -> None:
        """
        Upload finished files, several at once; raises StorageUnavailable, and then keeps the others for the next call.

        A crash leaves any part of them, whole or torn; no txlog names them, so the orphan sweep deletes them.
        """
        left = [item for item in self._finished if item.stored_at is None]
        while left:
            together = _at_most(left, MOST_UPLOADS, MOST_UPLOADED_BYTES)
            left = left[len(together) :]
            self._at_once([partial(self._upload, store, item) for item in together])

    def _upload(self, store: Store, item: _FinishedFile) -> None:
        now = self._clock()  # before the upload: the orphan sweep may see the file from then on
        retry(partial(store.upload, item.key, item.data), self._wait)
        item.stored_at, item.data = now, None

    def renew(self, store: Store, older_than: timedelta, spec: WriteSpec, sequence: int) -> None:
        """
        Write files that the orphan sweep could soon take for orphans again, under new names.

        Raises NotPossible where one of them was swept: its rows are lost to this run.
        """
        held = 0
        for index, item in enumerate(self._finished):
            if item.stored_at is not None and self._clock() - item.stored_at > older_than:
                data = self._read_again(store, item)
                path, _, old = item.key.rpartition("/")
                key = self._key(path, sequence, DELETES if item.deletes else f".{old.rpartition('.')[2]}")
                file = replace(item.file, path=join(spec.card.data_path, key))
                self._finished[index] = _FinishedFile(key, file, data, item.number, item.deletes)
                held += file.size_bytes
                if held > MOST_UPLOADED_BYTES:  # files of tasks may be many, and larger than the memory
                    self.store(store)
                    held = 0
        self.store(store)

    def _read_again(self, store: Store, item: _FinishedFile) -> Any:
        try:
            return retry(partial(store.read, item.key), self._wait)
        except Missing as exc:
            hint = (
                "Nothing was published. Open a new Writer and write its rows again. If it takes that long: raise the "
            )
            hint += "table's orphan-age."
            raise NotPossible(f"{item.file.path} is gone: it was older than half of orphan-age", hint=hint) from exc

    def age(self) -> timedelta:
        """The time since the oldest file was stored."""
        stored = [item.stored_at for item in self._finished if item.stored_at is not None]
        return self._clock() - min(stored) if stored else timedelta(0)

    def named(self) -> NamedFiles:
        """The files for a txlog; only after `finish` and `store`."""
        if self._open or any(item.stored_at is None for item in self._finished):
            raise StorageUnavailable("data files are not stored yet")
        data, deletes = (
            tuple(StepFile(item.file, item.number) for item in self._finished if item.deletes == wanted)
            for wanted in (False, True)
        )
        return NamedFiles(data, deletes)

    def clear(self) -> None:
        """Start over: a txlog names all these files now."""
        self._finished, self.since, self._count = [], None, 0


def _at_most(items: list[_FinishedFile], count: int, most_bytes: int) -> list[_FinishedFile]:
    """The first of them, at least one: `count`, or as many as begin within `most_bytes`."""
    begins = accumulate((item.file.size_bytes for item in items), initial=0)
    return [item for item, begin in zip(items[:count], begins, strict=False) if begin < most_bytes]
