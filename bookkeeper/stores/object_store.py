"""
Store on an object storage: what S3, Azure and Google have in common.

It owns keys, parallelism, deadlines and retries; a Remote owns the requests of one storage. Nothing is ever renamed. A
crash leaves an object whole or not at all, and of a large upload blocks that no listing shows.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from fsspec.asyn import get_loop, sync  # type: ignore[import-untyped]

from bookkeeper.errors import AlreadyExists, Changed, Missing, StorageUnavailable, Unfit
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
)

T = TypeVar("T")
Page = tuple[list[Listed], str | None]
PAUSES = (0.1, 0.3, 1.0, 2.0)
BLOCK = 8 * 2**20
AT_ONCE = 64
#: calls of one commit that each wait in a thread of their own; a call for many keys has up to AT_ONCE under way
WRITES_AT_ONCE = 8
BLOCKS_AT_ONCE = 4
#: longest name of an object on S3, Azure and Google alike, in bytes
LONGEST = 1024
#: what `head` asks for
RANGE = f"bytes=0-{HEAD_BYTES - 1}"
#: bytes that a storage copies in seconds; more than any txlog may have
MOST_COPIED = 2**30
_DELETES_AT_ONCE = 16
_PATIENCE_SECONDS = 60
_SLOWEST = 2**20


class Transient(StorageUnavailable):
    """The storage was busy or did not answer: the same request may succeed a moment later."""


class Refused(StorageUnavailable):
    """The storage does not accept the keys, or not for this request: it was not carried out."""


class Unchanged(StorageUnavailable):
    """The object still has the tag that was named."""


class NoRange(StorageUnavailable):
    """The object does not have the bytes that were asked for."""


def whole_size(content_range: str | None) -> int | None:
    """
    The object's size in a Content-Range (`bytes 0-3/1234`); None when it has none.
    """
    total = (content_range or "").rpartition("/")[2]
    return int(total) if total.isdecimal() else None


def whole_part(where: str, content_range: str | None, begin: int, end: int, data: bytes) -> Part:
    """
    The answer to a ranged read; raises Unfit where a server sent other bytes, and Transient where some are missing.
    """
    size = whole_size(content_range)
    if size is None or not (content_range or "").startswith(f"bytes {begin}-"):
        raise Unfit(f"{where}: the storage does not keep to the range that was asked for")
    if len(data) != min(end, size) - begin:
        raise Transient(f"{where}: {len(data)} bytes came, of {begin} to {end}")
    return Part(size, data)


async def delete_each(delete: Callable[[str], Awaitable[None]], paths: Sequence[str]) -> None:
    """
    Deletes one object by each request, where the storage has no request for many.
    """
    free = asyncio.Semaphore(_DELETES_AT_ONCE)

    async def one(path: str) -> None:
        async with free:
            await delete(path)

    await asyncio.gather(*map(one, paths))


class Remote(Protocol):
    """
    One bucket or container, with one request for each call; it raises our errors, and Transient where a retry may help.
    """

    #: keys that one delete request takes
    deletes_at_once: int
    #: bytes up to which an upload is one `put`; what is larger goes up in blocks
    largest_put: int

    async def get(self, path: str, most: int | None = None, known: str = "") -> ObjectVersion:
        """
        The object.

        Raises Missing, Unchanged while it has the tag `known`, and TooLarge before it takes the memory of more than
        `most` bytes.
        """

    async def size(self, path: str) -> int:
        """Bytes; raises Missing."""

    async def head(self, path: str) -> Head:
        """Bytes, and the first HEAD_BYTES of them, by one ranged read; raises Missing, and NoRange for no bytes."""

    async def part(self, path: str, begin: int, end: int) -> Part:
        """Bytes, and those from `begin` to `end`, by one ranged read; raises Missing, and NoRange for none of them."""

    async def modified(self, path: str) -> datetime:
        """When it was written; raises Missing."""

    async def put(self, path: str, data: Buffer, if_match: str | None) -> str:
        """Whole or not at all; `if_match` as in Store.replace, then raises Changed. Returns the new tag."""

    async def copy(self, path: str, to: str) -> None:
        """The storage's own copy, at most MOST_COPIED bytes; whole or not at all; replaces an object at `to`."""

    async def begin(self, path: str) -> str:
        """Begins a large upload; returns its id."""

    async def block(self, path: str, upload: str, number: int, data: bytes) -> Any:
        """Sends one block of the upload, numbered from 1; returns what `finish` needs of it."""

    async def finish(self, path: str, upload: str, blocks: Sequence[Any]) -> None:
        """Makes the blocks of the upload an object."""

    async def abandon(self, path: str, upload: str) -> None:
        """Ends the upload and discards its blocks."""

    async def page(self, prefix: str, token: str | None) -> Page:
        """One page of a listing (keys as the storage has them), and the token of the next one."""

    async def delete(self, paths: Sequence[str]) -> None:
        """Deletes at most `deletes_at_once` objects; ignores missing ones."""

    async def delete_if(self, path: str, tag: str) -> None:
        """Deletes the object if it has this tag; raises Changed otherwise, and Missing."""


class ObjectStore:
    """Implements Store below `url`, which is `root` in the remote's bucket or container."""

    at_once = WRITES_AT_ONCE

    def __init__(
        self,
        url: str,
        root: str,
        remote: Remote,
        pauses: Sequence[float] = PAUSES,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        #: the options it was opened with, for a queue beside it; holds secrets
        self.options = options or {}
        self.url = url.rstrip("/")
        self.root = root.strip("/") + "/" if root.strip("/") else ""
        self.remote, self.pauses, self.sleep = remote, pauses, sleep

    def read(self, key: str, most: int | None = None) -> bytes:
        return self.read_tagged(key, most)[0]

    def read_many(
        self, keys: Sequence[str], most: Most = None
    ) -> Mapping[str, bytes | Missing | Unfit | StorageUnavailable]:
        async def read(key: str, path: str) -> bytes:
            return (await self._get(path, bound_of(key, most))).data

        return self._each(read, keys)

    def read_ranges(self, ranges: Sequence[Range]) -> Mapping[Range, Part | Missing | Unfit | StorageUnavailable]:
        for wanted in ranges:
            checked_key(wanted.key)
        asked = [self._outcome(partial(self._part, wanted), wanted.key) for wanted in ranges]
        return dict(zip(ranges, self._wait(self._all(asked, AT_ONCE)), strict=True))

    async def _part(self, wanted: Range, key: str, path: str) -> Part:
        begin, end = wanted.begin, wanted.end
        try:
            return await self._retry(self.remote.part, path, begin, end, slow=(end - begin) / _SLOWEST)
        except NoRange:  # the object is shorter
            return Part(await self._size(key, path), b"")

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        found = self._wait(self._get(self._readable_path(key), most))
        return found.data, found.tag

    def read_versions(
        self, known: Mapping[str, str], most: Most = None
    ) -> Mapping[str, ObjectVersion | Missing | Unfit | StorageUnavailable | None]:
        async def read(key: str, path: str) -> ObjectVersion | None:
            try:
                return await self._retry(self.remote.get, path, bound_of(key, most), known[key])
            except Unchanged:
                return None

        return self._each(read, [*known])

    async def _get(self, path: str, most: int | None) -> ObjectVersion:
        return await self._retry(self.remote.get, path, most)

    def create(self, key: str, data: bytes) -> None:
        try:
            self._put(key, data, "")
        except Changed as exc:
            raise AlreadyExists(f"{self.url}/{key} is there already") from exc

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        return self._put(key, data, if_match)

    def move(self, key: str, to: str) -> None:
        check_bound(f"{self.url}/{key}", size := self.size(key), MOST_COPIED)
        with suppress(Missing):
            self.size(to)
            raise AlreadyExists(f"{self.url}/{to} is there already")
        self._wait(self._retry(self.remote.copy, self._readable_path(key), self._path(to), slow=size / _SLOWEST))
        self.delete_many([key])

    def upload(self, key: str, data: Buffer) -> None:
        path, view = self._path(key), memoryview(data).cast("B")
        if view.nbytes <= self.remote.largest_put:
            self._put(key, view, None)
        else:
            self._wait(self._upload(path, view))

    def size(self, key: str) -> int:
        return self._wait(self._size(key, self._readable_path(key)))

    def modified(self, key: str) -> datetime:
        return self._wait(self._retry(self.remote.modified, self._readable_path(key)))

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int | Missing | StorageUnavailable]:
        return self._each(self._size, keys)

    def heads(self, keys: Sequence[str]) -> Mapping[str, Head | Missing | StorageUnavailable]:
        return self._each(self._head, keys)

    def list(self, prefix: str) -> Iterator[Listed]:
        start = self._path(prefix.rstrip("/")) + "/" if prefix else self.root
        token: str | None = None
        while True:
            page: Page = self._wait(self._retry(self.remote.page, start, token))
            found, token = page
            for item in found:
                yield Listed(item.key[len(self.root) :], item.size, item.modified)
            if token is None:
                return

    def delete_many(self, keys: Iterable[str]) -> int:
        given = list(keys)
        paths = iter(dict.fromkeys([self._path(key) for key in given]))
        parts = []
        while part := list(islice(paths, self.remote.deletes_at_once)):
            parts.append(part)
        self._wait(self._all([self._retry(self.remote.delete, part) for part in parts], BLOCKS_AT_ONCE))
        return len(given)

    def delete_if(self, key: str, tag: str) -> None:
        with suppress(Missing):
            try:
                self._wait(self._retry(self.remote.delete_if, self._readable_path(key), tag))
            except Changed:
                self.size(key)  # some storages say so of a missing object too
                raise

    def ask(self, act: Callable[..., Coroutine[Any, Any, T]], key: str, *given: Any) -> T:
        """A request that only this kind of remote has (a lease), with the same retries and deadline."""
        return self._wait(self._retry(act, self._path(key), *given))

    def _path(self, key: str) -> str:
        return self.root + checked_key(key)

    def _readable_path(self, key: str) -> str:
        """The path of a key; raises Missing when no object can have that name."""
        path = self._path(key)
        if len(path.encode("utf-8", "surrogateescape")) > LONGEST:
            raise Missing(f"{self.url}/{key[:100]}... is too long for an object's name")
        return path

    def _put(self, key: str, data: Buffer, if_match: str | None) -> str:
        try:
            return self._wait(self._retry(self.remote.put, self._path(key), data, if_match, slow=len(data) / _SLOWEST))
        except Missing as exc:
            raise StorageUnavailable(f"{self.url}/{key} cannot be written") from exc

    async def _size(self, key: str, path: str) -> int:
        return await self._retry(self.remote.size, path)

    async def _head(self, key: str, path: str) -> Head:
        try:
            return await self._retry(self.remote.head, path)
        except NoRange:  # an empty object has no first byte
            return Head(await self._size(key, path), b"")

    async def _upload(self, path: str, view: memoryview) -> None:
        upload = await self._retry(self.remote.begin, path)
        try:
            parts = range(0, view.nbytes, BLOCK)
            blocks = [self._block(path, upload, number, view[at : at + BLOCK]) for number, at in enumerate(parts, 1)]
            done = await self._all(blocks, BLOCKS_AT_ONCE)
            await self._retry(self.remote.finish, path, upload, done)
        except BaseException:
            await self._abandon(path, upload)
            raise

    async def _block(self, path: str, upload: str, number: int, part: memoryview) -> Any:
        # Only the blocks under way are copied.
        return await self._retry(self.remote.block, path, upload, number, bytes(part))

    async def _abandon(self, path: str, upload: str) -> None:
        try:
            await self.remote.abandon(path, upload)
        except StorageUnavailable:
            return  # the storage deletes it by age

    def _each(self, act: Callable[[str, str], Coroutine[Any, Any, T]], keys: Sequence[str]) -> dict[str, Any]:
        for key in keys:
            checked_key(key)
        answers = self._wait(self._all([self._outcome(act, key) for key in keys], AT_ONCE))
        return dict(zip(keys, answers, strict=True))

    async def _outcome(self, act: Callable[[str, str], Coroutine[Any, Any, T]], key: str) -> Any:
        try:
            return await act(key, self._readable_path(key))
        except (Missing, Unfit, StorageUnavailable) as exc:
            return exc

    async def _all(self, acts: Sequence[Coroutine[Any, Any, T]], most: int) -> Sequence[T]:
        """Every result, with `most` requests under way at a time; the first error ends all."""
        free = asyncio.Semaphore(most)

        async def one(act: Coroutine[Any, Any, T]) -> T:
            async with free:
                return await act

        tasks = [asyncio.ensure_future(one(act)) for act in acts]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for act in acts:
                act.close()

    async def _retry(self, act: Callable[..., Coroutine[Any, Any, T]], *given: Any, slow: float = 0) -> T:
        """Sends a request, a few times while the storage is busy, each time with a deadline."""
        for pause in (*self.pauses, None):
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS + slow):
                    return await act(*given)
            except Transient:
                if pause is None:
                    raise
            except TimeoutError as exc:
                raise StorageUnavailable(f"{self.url} did not answer for {_PATIENCE_SECONDS} s") from exc
            # Requests that were refused at the same moment should not return at the same moment.
            await self.sleep(pause * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def _wait(self, act: Coroutine[Any, Any, T]) -> T:
        result: T = sync(get_loop(), lambda: act)
        return result
