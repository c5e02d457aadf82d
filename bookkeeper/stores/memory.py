"""
Store on fsspec's `memory:`, for tests; object stores have their own (object_store.py).
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import fsspec  # type: ignore[import-untyped]

from bookkeeper.errors import AlreadyExists, Changed, ConfigInvalid, Missing, StorageUnavailable, Unfit
from bookkeeper.stores.store import (
    HEAD_BYTES,
    Buffer,
    Head,
    Listed,
    Most,
    ObjectVersion,
    Part,
    Range,
    bound_of,
    check_bound,
    checked_key,
    content_tag,
    each,
    translated,
)

_MEMORY = threading.RLock()


class MemoryStore:
    """Implements Store below `url`; conditional writes are atomic within this process (memory)."""

    at_once = 1

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url.rstrip("/")
        protocol = url.split(":", 1)[0]
        if protocol != "memory":
            raise ConfigInvalid(f"{url}: storage {protocol!r} is not supported here")
        self.fs = fsspec.filesystem(protocol, use_listings_cache=False, **options)
        self.root = self.fs._strip_protocol(self.url)

    def read(self, key: str, most: int | None = None) -> bytes:
        return self.read_tagged(key, most)[0]

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
            with _MEMORY:
                data, tag = self.read_tagged(key, bound_of(key, most))
                return None if tag == known[key] else ObjectVersion(data, tag, self.fs.modified(self._path(key)))

        return each(read, [*known])

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        with translated(f"{self.url}/{key}"):
            data = bytes(self.fs.cat_file(self._path(key)))
        tag = content_tag(data)
        check_bound(f"{self.url}/{key}", len(data), most, tag)
        return data, tag

    def create(self, key: str, data: bytes) -> None:
        with _MEMORY:
            if self._tag(key):
                raise AlreadyExists(f"{self.url}/{key} is there already")
            self._put(key, data)

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        with _MEMORY:
            if if_match is not None and self._tag(key) != if_match:
                raise Changed(f"{self.url}/{key} was replaced by another process")
            self._put(key, data)
        return content_tag(data)

    def move(self, key: str, to: str) -> None:
        with _MEMORY:
            self.create(to, self.read(key))
            self.delete_many([key])

    def upload(self, key: str, data: Buffer) -> None:
        with _MEMORY:  # fsspec's listing fails when another thread adds an object meanwhile
            self._put(key, bytes(data))

    def size(self, key: str) -> int:
        return len(self.read(key))

    def modified(self, key: str) -> datetime:
        self.read(key)
        found: datetime = self.fs.modified(self._path(key))
        return found

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int | Missing | StorageUnavailable]:
        return each(self.size, keys)

    def heads(self, keys: Sequence[str]) -> Mapping[str, Head | Missing | StorageUnavailable]:
        return each(self._head, keys)

    def _head(self, key: str) -> Head:
        data = self.read(key)
        return Head(len(data), data[:HEAD_BYTES])

    def list(self, prefix: str) -> Iterator[Listed]:
        start = self._path(prefix.rstrip("/")) if prefix else self.root
        with translated(start), _MEMORY:
            found = [(path, info["size"], self.fs.modified(path)) for path, info in self._find(start)]
        for path, size, modified in found:
            yield Listed(path[len(self.root) + 1 :], int(size), modified)

    def delete_many(self, keys: Iterable[str]) -> int:
        count = 0
        for key in keys:
            with translated(f"{self.url}/{key}"), suppress(FileNotFoundError), _MEMORY:
                self.fs.rm_file(self._path(key))
            count += 1
        return count

    def delete_if(self, key: str, tag: str) -> None:
        with _MEMORY:
            if self._tag(key) not in ("", tag):
                raise Changed(f"{self.url}/{key} was replaced by another process")
            self.delete_many([key])

    def _put(self, key: str, data: bytes) -> None:
        what = f"{self.url}/{key}"
        try:
            with translated(what):
                self.fs.pipe_file(self._path(key), data)
        except AlreadyExists as exc:
            # fsspec's answer when a part of the path is an object itself.
            raise StorageUnavailable(f"{what} cannot be written") from exc

    def _path(self, key: str) -> str:
        return f"{self.root}/{checked_key(key)}"

    def _find(self, start: str) -> Iterator[tuple[str, Any]]:
        for path, info in self.fs.find(start, detail=True).items():
            if path != start:  # else it is an object, not a folder
                yield path, info

    def _tag(self, key: str) -> str:
        try:
            return self.read_tagged(key)[1]
        except Missing:
            return ""
