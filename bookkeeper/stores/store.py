"""
Store: the one seam to storage.

Keys are relative to the store's root and use `/`. Every method raises StorageUnavailable when the storage
does not answer; Missing is raised only for a definite "there is nothing", never on any other error.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from bookkeeper.errors import AlreadyExists, Missing, PathRefused, StorageUnavailable, TooLarge, Unfit
from bookkeeper.stores.locations import inside, normal

_KEY = re.compile(r"(?!\.\.?(?:/|\Z))[^/\0]+(?:/(?!\.\.?(?:/|\Z))[^/\0]+)*")
Buffer = Any  # bytes, bytearray, memoryview, pyarrow.Buffer
#: bytes that may be read of each object: the same for all, or by key; None trusts whoever wrote it
Most = int | Mapping[str, int] | None


class Listed(NamedTuple):
    """One object of a listing: key below the root, size in bytes, time of last change (UTC)."""

    key: str
    size: int
    modified: datetime


#: how much of an object's beginning a look at it reads
HEAD_BYTES = 4


class Head(NamedTuple):
    """Size of an object in bytes, and its first HEAD_BYTES; None where it may be looked up but not read."""

    size: int
    start: bytes | None


class Store(Protocol):
    """
    What we ask of a storage, and what it guarantees.

    A folder is no object: under its name there is nothing to read, and it need not exist before a write. A read with
    a bound (`most`, in bytes) is for what strangers can write: it takes no more memory than that, raises TooLarge for
    a larger object, and NotAFile for what is no regular file on a local disk, which it neither follows nor waits for.
    """

    url: str

    def read(self, key: str, most: int | None = None) -> bytes:
        """The whole object; raises Missing, TooLarge, NotAFile."""

    def read_many(
        self, keys: Sequence[str], most: Most = None
    ) -> Mapping[str, "bytes | Missing | Unfit | StorageUnavailable"]:
        """Every object, or what went wrong with it; one failure never hides the others."""

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        """The object and the tag of this very version; raises Missing, NotAFile, and TooLarge with the tag."""

    def create(self, key: str, data: bytes) -> None:
        """Durable and whole, or not there at all; raises AlreadyExists, and of many at once one wins."""

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> None:
        """
        Atomic and durable: a reader sees the old object or the new one.

        With `if_match` (a tag, or "" for "not there yet") only if unchanged since; raises Changed.
        """

    def move(self, key: str, to: str) -> None:
        """
        Gives the object another key without reading it, however large it is; a crash leaves it under one or both.

        Raises Missing, AlreadyExists when something is there, and TooLarge where the storage cannot do that at once.
        """

    def upload(self, key: str, data: Buffer) -> None:
        """A large object under a name nobody else uses; durable when it returns, maybe torn when it raises."""

    def size(self, key: str) -> int:
        """Bytes of the object; raises Missing."""

    def modified(self, key: str) -> datetime:
        """When this version was written, by the storage's clock (UTC); raises Missing."""

    def sizes(self, keys: Sequence[str]) -> Mapping[str, "int | Missing | StorageUnavailable"]:
        """Size of every object, or what went wrong with it."""

    def heads(self, keys: Sequence[str]) -> Mapping[str, "Head | Missing | StorageUnavailable"]:
        """Size and first bytes of every object, or what went wrong with it; one request each."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """
        Objects whose key starts with the folder `prefix`, in any order.

        It is no snapshot: what comes or goes meanwhile may be in it or not.
        """

    def delete_many(self, keys: Iterable[str]) -> int:
        """Deletes what is there, passes over what is not; returns how many keys it was given."""


class Creating(Protocol):
    """The part of a Store that `create_once` needs."""

    url: str

    def read(self, key: str, most: int | None = None) -> bytes:
        """As in Store."""

    def create(self, key: str, data: bytes) -> None:
        """As in Store."""


class Nowhere:
    """A place to create objects in where nothing is kept."""

    def __init__(self, url: str) -> None:
        self.url = url

    def read(self, key: str, most: int | None = None) -> bytes:
        raise Missing(f"{self.url}/{key} was never written")

    def create(self, key: str, data: bytes) -> None:
        """Does nothing."""


def bound_of(key: str, most: Most) -> int | None:
    """
    What `most` says of this key.
    """
    return most[key] if isinstance(most, Mapping) else most


def check_bound(what: str, size: int, most: int | None, tag: str = "") -> None:
    """
    Raises TooLarge when there are more than `most` bytes.
    """
    if most is not None and size > most:
        raise TooLarge(f"{what} has {size} bytes, at most {most} are read", tag)


def content_tag(data: bytes) -> str:
    """
    A version tag made from the content, for storages that keep none.
    """
    return hashlib.sha256(data).hexdigest()


def checked_key(key: str) -> str:
    """
    `key` itself; raises PathRefused when it would leave the store's root.
    """
    if not _KEY.fullmatch(key):
        raise PathRefused(f"{key[:300]!r} is not a key below the store's root")
    return key


def key_in(store: Store, location: str) -> str:
    """
    The key of the object at `location`; raises PathRefused when it is outside of the store.
    """
    if not inside(location, store.url):
        raise PathRefused(f"{location[:300]!r} is not below {store.url}")
    return normal(location).removeprefix(normal(store.url).rstrip("/") + "/")


def create_once(store: Creating, key: str, data: bytes, consumed: bool = False) -> None:
    """
    Creates an object under a name that only we use, where a put may be sent again.

    A put whose reply was lost finds its own bytes: that is success; so does one whose object was `consumed`
    meanwhile, where somebody does that. Raises AlreadyExists when other bytes are there, Missing when none are.
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


@contextmanager
def translated(what: str) -> Iterator[None]:
    """
    Turns the storage's exceptions into ours, once, where they enter: Missing, AlreadyExists, StorageUnavailable.
    """
    try:
        yield
    except FileNotFoundError as exc:
        raise Missing(f"{what} is not there") from exc
    except FileExistsError as exc:
        raise AlreadyExists(f"{what} is there already") from exc
    except (OSError, TimeoutError) as exc:
        raise StorageUnavailable(f"{what}: {exc.strerror or exc}") from exc
