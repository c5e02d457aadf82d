"""
The ways to the disk: stores as the product has them, and pyiceberg's files. They keep what stores promise: a put is
whole, a conditional put happens or not, a read after a write sees it. Everything else may go wrong.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from bookkeeper.errors import AlreadyExists, Changed, Missing, StorageUnavailable, Unfit
from bookkeeper.stores.store import (
    HEAD_BYTES,
    Head,
    Listed,
    Most,
    ObjectVersion,
    Part,
    Range,
    bound_of,
    check_bound,
    checked_key,
    each,
)
from tests.simulation.disk import Disk, NotThere, Object
from tests.simulation.schedule import LISTS, READS, UPLOADS, WRITES, Call, Scheduler


class MemoryStore:
    """Implements Store below `url`, each operation as one call of the scheduler."""

    at_once = 1

    def __init__(self, url: str, disk: Disk, scheduler: Scheduler) -> None:
        self.url, self.disk, self.scheduler = url.rstrip("/"), disk, scheduler

    def _at(self, key: str) -> str:
        return f"{self.url}/{checked_key(key)}"

    def _there(self, location: str) -> Object:
        try:
            return self.disk.get(location)
        except NotThere as exc:
            raise Missing(str(exc)) from None

    def _call(
        self,
        verb: str,
        key: str,
        able: frozenset[str],
        act: Callable[[], Any],
        torn: Callable[[], Any] | None = None,
    ) -> Any:
        location = f"{self.url}/{key}"
        call = Call(verb, location, able, torn)
        return self.scheduler.call(call, act, lambda why: StorageUnavailable(f"{location}: {why}"))

    def read(self, key: str, most: int | None = None) -> bytes:
        return self._read(key, most).data

    def _read(self, key: str, most: int | None = None) -> Object:
        at = self._at(key)

        def act() -> Object:
            found = self._there(at)
            check_bound(at, len(found.data), most, found.tag)
            return found

        found: Object = self._call("read", key, READS, act)
        return found

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        found = self._read(key, most)
        return found.data, found.tag

    def read_many(
        self, keys: Sequence[str], most: Most = None
    ) -> Mapping[str, bytes | Missing | Unfit | StorageUnavailable]:
        return each(lambda key: self.read(key, bound_of(key, most)), keys)

    def read_ranges(self, ranges: Sequence[Range]) -> Mapping[Range, Part | Missing | Unfit | StorageUnavailable]:
        def read(wanted: Range) -> Part:
            data = self.read(wanted.key)
            return Part(len(data), data[wanted.begin : wanted.end])

        return each(read, ranges)

    def read_versions(
        self, known: Mapping[str, str], most: Most = None
    ) -> Mapping[str, ObjectVersion | Missing | Unfit | StorageUnavailable | None]:
        def read(key: str) -> ObjectVersion | None:
            at = self._at(key)

            def act() -> ObjectVersion | None:
                found = self._there(at)
                if found.tag == known[key]:
                    return None
                check_bound(at, len(found.data), bound_of(key, most), found.tag)
                return ObjectVersion(*found)

            seen: ObjectVersion | None = self._call("read", key, READS, act)
            return seen

        return each(read, [*known])

    def create(self, key: str, data: bytes) -> None:
        at = self._at(key)

        def act() -> None:
            if self.disk.has(at):
                raise AlreadyExists(f"{at} is there already")
            self.disk.put(at, data)

        self._call("create", key, WRITES, act)

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        at = self._at(key)

        def act() -> str:
            if if_match is not None and (self._there(at).tag if self.disk.has(at) else "") != if_match:
                raise Changed(f"{at} was replaced by another process")
            return self.disk.put(at, data)

        tag: str = self._call("replace", key, WRITES, act)
        return tag

    def move(self, key: str, to: str) -> None:
        source, target = self._at(key), self._at(to)

        def copy() -> None:
            found = self._there(source)
            if self.disk.has(target):
                raise AlreadyExists(f"{target} is there already")
            self.disk.put(target, found.data)

        # As object stores do it: a copy, then a delete, and a crash may come in between.
        self._call("create", to, WRITES, copy)
        self._call("delete", key, WRITES, lambda: self.disk.delete(source))

    def upload(self, key: str, data: Any) -> None:
        at, whole = self._at(key), bytes(data)
        half = whole[: len(whole) // 2]
        self._call("upload", key, UPLOADS, lambda: self.disk.put(at, whole), lambda: self.disk.put(at, half))

    def size(self, key: str) -> int:
        return len(self._read(key).data)

    def modified(self, key: str) -> datetime:
        return self._read(key).modified

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int | Missing | StorageUnavailable]:
        return each(self.size, keys)

    def heads(self, keys: Sequence[str]) -> Mapping[str, Head | Missing | StorageUnavailable]:
        return each(self._head, keys)

    def _head(self, key: str) -> Head:
        data = self._read(key).data
        return Head(len(data), data[:HEAD_BYTES])

    def list(self, prefix: str) -> Iterator[Listed]:
        root = self._at(prefix.rstrip("/")) if prefix else self.url
        before = dict(self.disk.under(root)) if self.scheduler.is_stale() else None
        after = self._call("list", prefix, LISTS, lambda: self.disk.under(root))
        found: Iterable[tuple[str, Object]] = after
        if before is not None:
            # Pages: the first half of the names was listed before others went on, the rest after it.
            names = sorted({*before, *dict(after)})
            half = set(names[: len(names) // 2])
            found = chain(
                ((at, item) for at, item in before.items() if at in half),
                ((at, item) for at, item in after if at not in half),
            )
        start = len(self.url) + 1
        return iter([Listed(at[start:], len(item.data), item.modified) for at, item in found])

    def delete_if(self, key: str, tag: str) -> None:
        at = self._at(key)

        def act() -> None:
            if self.disk.has(at) and self._there(at).tag != tag:
                raise Changed(f"{at} was replaced")
            self.disk.delete(at)

        self._call("delete", key, WRITES, act)

    def delete_many(self, keys: Iterable[str]) -> int:
        listed = list(keys)
        for key in listed:
            at = self._at(key)
            self._call("delete", key, WRITES, lambda at=at: self.disk.delete(at))  # type: ignore[misc]
        return len(listed)


class MemoryFiles(FileIO):
    """pyiceberg's way to the disk."""

    def __init__(self, disk: Disk, call: Callable[[str, str, Callable[[], Any]], Any]) -> None:
        super().__init__({})
        self.disk, self.call = disk, call

    def new_input(self, location: str) -> "MemoryFile":
        return MemoryFile(location, self)

    def new_output(self, location: str) -> "MemoryFile":
        return MemoryFile(location, self)

    def delete(self, location: Any) -> None:
        self.disk.delete(location)


class MemoryFile(InputFile, OutputFile):
    """A file of pyiceberg's."""

    def __init__(self, location: str, files: MemoryFiles) -> None:
        super().__init__(location)
        self.files = files

    def _data(self) -> bytes:
        def act() -> bytes:
            try:
                return self.files.disk.get(self.location).data
            except NotThere as exc:
                raise FileNotFoundError(self.location) from exc

        data: bytes = self.files.call("read", self.location, act)
        return data

    def __len__(self) -> int:
        return len(self._data())

    def exists(self) -> bool:
        return self.files.disk.has(self.location)

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._data())

    def create(self, overwrite: bool = False) -> Any:
        return _Upload(self.location, self.files.disk)

    def to_input_file(self) -> "MemoryFile":
        return self


class _Upload(io.BytesIO):
    def __init__(self, location: str, disk: Disk) -> None:
        super().__init__()
        self._location, self._disk = location, disk

    def close(self) -> None:
        if not self.closed:
            self._disk.put(self._location, self.getvalue())
        super().close()
