"""
The data files of one run that no txlog names yet: open, finished (in memory), stored (durable).

Rolls by size and memory; names every file once, with the incarnation and the sequence it is meant for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.errors import StorageUnavailable
from bookkeeper.format.entries import DataFile
from bookkeeper.stores.locations import join, normal
from bookkeeper.stores.store import Store
from writers.files.open_file import Finished, OpenFile
from writers.files.write_spec import WriteSpec
from writers.retry import Wait, retry

MOST_HELD_BYTES = 512 * 2**20
_SLICE_BYTES = 64 * 2**20
_UNSORTED = 0  # id of the sort order that says nothing


@dataclass(slots=True)
class _Open:
    values: tuple[Any, ...]
    path: str
    since: datetime
    file: OpenFile


@dataclass(frozen=True, slots=True)
class _Kept:
    key: str
    file: DataFile
    data: Any  # None once it is stored
    stored_at: datetime | None = None


class Files:
    """
    Takes rows in the shape's schema, gives DataFiles; nothing it does loses rows it has taken.
    """

    def __init__(self, stem: str, clock: Callable[[], datetime], wait: Wait) -> None:
        self._stem, self._clock, self._wait = stem, clock, wait
        self._open: dict[tuple[Any, ...], _Open] = {}
        self._kept: list[_Kept] = []
        self._count = 0
        self._since: datetime | None = None

    @property
    def since(self) -> datetime | None:
        """When the oldest row that is not published was taken."""
        return self._since

    def rows(self) -> int:
        """Rows that no txlog names yet."""
        return sum(item.file.rows for item in self._open.values()) + sum(item.file.record_count for item in self._kept)

    def bytes(self) -> int:
        """About how many bytes of data files they fill."""
        return sum(item.file.size() for item in self._open.values()) + sum(item.file.size_bytes for item in self._kept)

    def open_since(self) -> datetime | None:
        """When the oldest open file was begun."""
        return min((item.since for item in self._open.values()), default=None)

    def take(self, rows: pa.Table, shape: WriteSpec, sequence: int) -> bool:
        """Take rows; says whether a file was finished because of it."""
        before = len(self._kept)
        for part in (part for piece in _sliced(rows, _SLICE_BYTES) for part in shape.splitter.split(piece)):
            left = part.rows
            while left.num_rows:
                left = self._add(left, part.values, part.path, shape, sequence)
        while self._open and sum(item.file.held() for item in self._open.values()) > MOST_HELD_BYTES:
            self._finish(max(self._open.values(), key=lambda item: item.file.held()), shape, sequence)
        return len(self._kept) > before

    def _add(self, rows: pa.Table, values: tuple[Any, ...], path: str, shape: WriteSpec, sequence: int) -> pa.Table:
        now = self._clock()
        self._since = self._since or now
        item = self._open.get(values)
        if item is None:
            item = self._open[values] = _Open(values, path, now, shape.open_file())
        piece = next(_sliced(rows, item.file.room()))
        item.file.add(piece)
        if item.file.full():
            self._finish(item, shape, sequence)
        return rows.slice(piece.num_rows)

    def finish(self, shape: WriteSpec, sequence: int) -> None:
        """Finish every open file."""
        for item in list(self._open.values()):
            self._finish(item, shape, sequence)

    def _finish(self, item: _Open, shape: WriteSpec, sequence: int) -> None:
        finished = item.file.finish()
        key = self._key(item.path, sequence, shape.suffix())
        self._kept.append(_Kept(key, _data_file(finished, item.values, shape, key), finished.data))
        del self._open[item.values]

    def _key(self, path: str, sequence: int, suffix: str) -> str:
        self._count += 1
        name = f"{self._stem}-{sequence:010d}-{self._count:05d}.{suffix}"
        return f"{path}/{name}" if path else name

    def store(self, store: Store) -> None:
        """Upload what is finished; raises StorageUnavailable, and then keeps it for the next call."""
        for index, item in enumerate(self._kept):
            if item.stored_at is None:
                # Before the upload: the age a sweep may see starts there.
                now = self._clock()
                retry(partial(store.upload, item.key, item.data), self._wait)
                self._kept[index] = replace(item, data=None, stored_at=now)

    def renew(self, store: Store, older_than: timedelta, shape: WriteSpec, sequence: int) -> None:
        """Write files again, under new names, that are so old that an orphan sweep could soon take them."""
        for index, item in enumerate(self._kept):
            if item.stored_at is not None and self._clock() - item.stored_at > older_than:
                data = retry(partial(store.read, item.key), self._wait)
                path, _, old = item.key.rpartition("/")
                key = self._key(path, sequence, old.rpartition(".")[2])
                file = replace(item.file, path=join(shape.card.data_path, key))
                self._kept[index] = _Kept(key, file, data)
        self.store(store)

    def named(self) -> tuple[DataFile, ...]:
        """The files for a txlog; only after `finish` and `store`."""
        if self._open or any(item.stored_at is None for item in self._kept):
            raise StorageUnavailable("data files are not stored yet")
        return tuple(item.file for item in self._kept)

    def forget(self) -> None:
        """They are named by a txlog now."""
        self._kept, self._since, self._count = [], None, 0


def _data_file(finished: Finished, values: tuple[Any, ...], shape: WriteSpec, key: str) -> DataFile:
    location = join(shape.card.data_path, key)
    normal(location)
    return DataFile(
        path=location,
        file_format=shape.card.file_format.upper(),
        partition=values,
        record_count=finished.rows,
        size_bytes=len(memoryview(finished.data)),
        sort_order_id=_UNSORTED,
        **{name: getattr(finished.metrics, name) for name in finished.metrics.__slots__},
    )


def _sliced(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    while rows.num_rows:
        size = rows.nbytes
        count = rows.num_rows if size <= most_bytes else max(rows.num_rows * most_bytes // size, 1)
        yield rows.slice(0, count)
        rows = rows.slice(count)
