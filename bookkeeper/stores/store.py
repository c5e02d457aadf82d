"""
Store: the only way to storage. Its docstrings are a contract; one test suite holds every backend to it.

Keys are relative to the store's root and use `/`. Every method raises StorageUnavailable when the storage does not
answer. Missing means that the storage answered "there is nothing"; no other error becomes Missing.
"""

import errno
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from bookkeeper.errors import (
    AlreadyExists,
    Changed,
    Missing,
    NotPossible,
    PathRefused,
    StorageUnavailable,
    TooLarge,
    Unfit,
)
from bookkeeper.stores.locations import inside, normal

_KEY = re.compile(r"(?!\.\.?(?:/|\Z))[^/\0]+(?:/(?!\.\.?(?:/|\Z))[^/\0]+)*")
K = TypeVar("K")
#: the name beside its own that a file on a local disk has while it is deleted by its tag
ASIDE = re.compile(r"(?:(?P<folder>.*)/)?\.(?P<name>[^/]+)\.deleting")
Buffer = Any  # bytes, bytearray, memoryview, pyarrow.Buffer
#: the most bytes to read of an object: one bound for all, or one by key; None for objects whose writer is trusted
Most = int | Mapping[str, int] | None


class Listed(NamedTuple):
    """One object of a listing: key below the root, size in bytes, time of the last change (UTC)."""

    key: str
    size: int
    modified: datetime


#: bytes that `heads` reads of each object
HEAD_BYTES = 4


class Head(NamedTuple):
    """An object's size in bytes and its first HEAD_BYTES; None when the credentials allow a lookup but no read."""

    size: int
    start: bytes | None


class Range(NamedTuple):
    """Bytes of an object, from `begin` to before `end`."""

    key: str
    begin: int
    end: int


class Part(NamedTuple):
    """An object's size in bytes, and those bytes of a range that it has."""

    size: int
    data: bytes


class ObjectVersion(NamedTuple):
    """
    One version of an object: its bytes, its tag, and when it was written, by the storage's clock (UTC); None when the
    answer does not say when.
    """

    data: bytes
    tag: str
    modified: datetime | None


class Store(Protocol):
    """
    A storage, as the bookkeeper, writers and reaper use it.

    * A folder is not an object: a read of its name raises Missing, and it need not exist before a write.
    * A read with a bound (`most`, in bytes) is safe for objects that others can write. It takes no more memory than
      the bound and raises TooLarge for a larger object.
    * On a local disk no symbolic link below the root is followed. A look at what is one, or lies behind one, raises
      NotAFile, as does a read of anything but a regular file; no pipe is waited for. A write raises StorageUnavailable
      then, a delete finds nothing there, and so does a listing.
    """

    url: str
    #: requests that are worth sending at once; 1 where a call is a system call, which threads would only slow down
    at_once: int

    def read(self, key: str, most: int | None = None) -> bytes:
        """The whole object. Raises Missing, TooLarge, NotAFile."""

    def read_many(
        self, keys: Sequence[str], most: Most = None
    ) -> Mapping[str, "bytes | Missing | Unfit | StorageUnavailable"]:
        """Each object, or the error of reading it; the error of one key does not affect the others."""

    def read_ranges(self, ranges: Sequence[Range]) -> "Mapping[Range, Part | Missing | Unfit | StorageUnavailable]":
        """
        The bytes of each range, or the error of reading them; one request each, all at once.

        Safe for objects that others can write, as a bounded read is: no more is read than was asked for.
        """

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        """The object and the tag of the version that was read. Raises Missing, NotAFile, and TooLarge with the tag."""

    def read_versions(
        self, known: Mapping[str, str], most: Most = None
    ) -> Mapping[str, "ObjectVersion | Missing | Unfit | StorageUnavailable | None"]:
        """
        Each object whose tag is not the one that `known` has for it ("": any version is read), or the error of reading
        it; all are requested at once.

        None for an object that has this tag now: then it holds the bytes that were read with the tag. The error of one
        key does not affect the others.
        """

    def create(self, key: str, data: bytes) -> None:
        """
        Creates the object: durable and whole, or not at all.

        Raises AlreadyExists when the key is taken; of several creates at once exactly one succeeds.
        """

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        """
        Writes the object, atomic and durable: a reader sees the old object or the new one. Returns the new tag.

        With `if_match`, only if the object still has this tag ("": does not exist yet); otherwise raises Changed.
        """

    def move(self, key: str, to: str) -> None:
        """
        Gives the object another key without reading it. After a crash it has one key or both.

        Raises Missing, AlreadyExists when `to` is taken, TooLarge when the storage cannot copy it in one request.
        """

    def upload(self, key: str, data: Buffer) -> None:
        """Writes a large object under a key that is used once: durable on return, maybe incomplete on an error."""

    def size(self, key: str) -> int:
        """The object's size in bytes. Raises Missing, NotAFile."""

    def modified(self, key: str) -> datetime:
        """When this version was written, by the storage's clock (UTC). Raises Missing, NotAFile."""

    def sizes(self, keys: Sequence[str]) -> Mapping[str, "int | Missing | Unfit | StorageUnavailable"]:
        """The size of each object, or the error of looking it up."""

    def heads(self, keys: Sequence[str]) -> Mapping[str, "Head | Missing | Unfit | StorageUnavailable"]:
        """The size and first bytes of each object, or the error of reading them; one request each."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """
        The objects below the folder `prefix`, in any order.

        A listing is not a snapshot: an object that is created or deleted meanwhile may or may not be in it.
        """

    def delete_many(self, keys: Iterable[str]) -> int:
        """
        Deletes these objects and ignores missing ones; returns the number of keys given, without those that lie behind
        a symbolic link.
        """

    def delete_if(self, key: str, tag: str) -> None:
        """
        Deletes the object only if it has this tag; otherwise raises Changed. A missing one is ignored.

        A storage that ignores conditions deletes any version: `check_deletes_by_tag` finds it. On a local disk a crash
        may leave the object under a hidden name beside its own (`ASIDE`); the next call for its key undoes that.
        """


class Rooted(Protocol):
    """The part of a Store that locations are compared with."""

    url: str


class Reading(Rooted, Protocol):
    """The part of a Store that reads one object."""

    def read(self, key: str, most: int | None = None) -> bytes:
        """As in Store."""


def bound_of(key: str, most: Most) -> int | None:
    """
    The bound of this key.
    """
    return most if most is None or isinstance(most, int) else most[key]


def each(act: Callable[[K], object], keys: Iterable[K]) -> dict[K, Any]:
    """
    What `act` returns for each key, or the error it raises; the error of one key does not affect the others.
    """
    found: dict[K, Any] = {}
    for key in keys:
        try:
            found[key] = act(key)
        except (Missing, Unfit, StorageUnavailable) as exc:
            found[key] = exc
    return found


def check_bound(what: str, size: int, most: int | None, tag: str = "") -> None:
    """
    Raises TooLarge when there are more than `most` bytes.
    """
    if most is not None and size > most:
        raise TooLarge(f"{what} has {size} bytes, at most {most} are read", tag)


def content_tag(data: bytes) -> str:
    """
    A version tag made of the content, for storages that have no tags.
    """
    return hashlib.sha256(data).hexdigest()


def is_key(key: str) -> bool:
    """
    Whether methods of a store take this key: an object store may list others, such as `a//b`.
    """
    return _KEY.fullmatch(key) is not None


def checked_key(key: str) -> str:
    """
    The same key; raises PathRefused when it would leave the store's root.
    """
    if not is_key(key):
        raise PathRefused(f"{key[:300]!r} is not a key below the store's root")
    return key


def key_in(store: Rooted, location: str) -> str:
    """
    The key of the object at `location`; raises PathRefused when it is outside of the store.
    """
    if not inside(location, store.url):
        raise PathRefused(f"{location[:300]!r} is not below {store.url}")
    return normal(location).removeprefix(normal(store.url).rstrip("/") + "/")


def create_once(store: Store, key: str, data: bytes, consumed: bool = False) -> None:
    """
    Creates an object under a key that no other process uses; safe to repeat when a reply was lost.

    A put that was applied although its reply was lost finds its own bytes: that is success. With `consumed`, another
    process may have deleted the object meanwhile: that is success too; without it, that raises Missing. Raises
    AlreadyExists when the key holds other bytes.
    """
    try:
        store.create(key, data)
    except AlreadyExists:
        try:
            there = store.read(key, len(data))
        except Missing:
            if consumed:
                return
            raise
        except Unfit:
            there = None
        if there != data:
            raise


def check_deletes_by_tag(store: Store, key: str) -> None:
    """
    Raises NotPossible where the storage deletes an object that has another tag than the one it was given.

    `key` is an object that no other process uses; a crash leaves it.
    """
    old = store.replace(key, b"1")
    new = store.replace(key, b"2")
    try:
        store.delete_if(key, old)
    except Changed:
        store.delete_if(key, new)
        return
    raise NotPossible(
        f"{store.url} ignores the condition of a delete: a new version of an object would be deleted as the old one",
        hint="Use a storage that knows conditional deletes (S3, Azure, Google and a local disk do), or upgrade it.",
    )


_FULL = (
    "The disk (or quota, or inodes: df -i) is full. Make room: nothing is torn, and everything goes on by itself. "
    "`reaper orphans` shows what killed writers left; a shorter `keep` and a run of the reaper free more."
)


def is_full(exc: BaseException | None) -> bool:
    """
    Whether this error of the operating system, or one that it was translated to, says that there is no room.
    """
    cause = exc.__cause__ if isinstance(exc, StorageUnavailable) else exc
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """
    Translates the operating system's exceptions to Missing, AlreadyExists and StorageUnavailable.
    """
    try:
        yield
    except FileNotFoundError as exc:
        raise Missing(f"{what} is not there") from exc
    except FileExistsError as exc:
        raise AlreadyExists(f"{what} is there already") from exc
    except (OSError, TimeoutError) as exc:
        raise StorageUnavailable(f"{what}: {exc.strerror or exc}", hint=_FULL if is_full(exc) else "") from exc
