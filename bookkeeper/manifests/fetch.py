"""
Gets the bytes of manifest lists and manifests: several at once from storage, and alone what cannot be read so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from pyiceberg.io import FileIO, InputStream

from bookkeeper.errors import BookkeeperError, NotAFile, PathRefused, StorageUnavailable, TooLarge
from bookkeeper.stores.beneath import LinkRefused
from bookkeeper.stores.store import Most, key_in, translated
from bookkeeper.stores.together import BYTES_AT_ONCE, in_parts

#: reads files at once: the bytes of each, at most as many as are given, or why there are none
Together = Callable[[Mapping[str, int]], Mapping[str, bytes | BookkeeperError]]
#: translates what reading or decoding the file at a location raises
Reading = Callable[[str], AbstractContextManager[None]]

#: of a manifest or a manifest list, before and after decompression
MOST_BYTES = 2**31
#: of a file that is read through a FileIO, at a time
_CHUNK_BYTES = 2**24


class Keyed(Protocol):
    """The part of a Store, or of what a commit will send to one, that is read here."""

    url: str
    at_once: int

    def read_many(self, keys: Sequence[str], most: Most = None) -> Mapping[str, bytes | BookkeeperError]:
        """As in Store."""


def untranslated(location: str) -> AbstractContextManager[None]:
    """
    Errors as they are.
    """
    return nullcontext()


@dataclass
class Fetch:
    """
    Reads files, `bytes_at_once` together; those that `together` refuses because they lie elsewhere, through `io`.

    Raises Missing, StorageUnavailable, TooLarge, and PathRefused where there is no `io`; or what `reading` makes of it.
    """

    together: Together
    io: FileIO | None
    reading: Reading = untranslated
    bytes_at_once: int = BYTES_AT_ONCE
    #: files that were read alone
    alone: int = 0

    @classmethod
    def of(cls, store: Keyed, io: FileIO | None) -> "Fetch":
        """Those in a store; on a local disk one at a time, where more would only take memory."""
        return cls(
            lambda most: _read_from(store, most), io, bytes_at_once=BYTES_AT_ONCE // 4 if store.at_once > 1 else 1
        )

    @classmethod
    def by(cls, io: FileIO, reading: Reading = untranslated) -> "Fetch":
        """Reads each file alone, through a table's FileIO."""
        return cls(lambda most: {}, io, reading)

    def read(self, most: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """
        Each file, in this order. Together they take no more than the bytes that are stated; one that has more is read
        alone, and costs itself only.
        """
        bounds = {location: min(max(0, stated), MOST_BYTES) for location, stated in most.items()}
        for part in in_parts(bounds.items(), self.bytes_at_once):
            found = self.together(part)
            for location in part:
                data = found.get(location)
                if not isinstance(data, bytes):
                    with self.reading(location):
                        data = self._alone(location, data)
                yield location, data

    def _alone(self, location: str, why: BookkeeperError | None) -> bytes:
        self.alone += 1
        if isinstance(why, TooLarge):
            again = self.together({location: MOST_BYTES})[location]
            if isinstance(again, bytes):
                return again
            why = again
        if self.io is None or not (why is None or isinstance(why, PathRefused)):
            raise why or PathRefused(f"{location[:300]} cannot be read")
        return _read_by(self.io, location)


def _read_from(store: Keyed, most: Mapping[str, int]) -> dict[str, bytes | BookkeeperError]:
    found, locations = dict[str, bytes | BookkeeperError](), dict[str, str]()
    for location in most:
        try:
            locations[key_in(store, location)] = location
        except PathRefused as error:
            found[location] = error
    read = store.read_many([*locations], {key: most[location] for key, location in locations.items()})
    return {**found, **{locations[key]: data for key, data in read.items()}}


def _read_by(io: FileIO, location: str) -> bytes:
    """The file, as pyiceberg reaches it; raises Missing, TooLarge, NotAFile, StorageUnavailable."""
    try:
        with translated(location[:300]), io.new_input(location).open() as file:
            return _bounded(file, location)
    except BookkeeperError as exc:
        if isinstance(exc.__cause__, LinkRefused):
            raise NotAFile(f"{exc.__cause__.strerror}, so {location[:300]} is not read") from exc
        raise
    except Exception as exc:
        # The file systems of pyiceberg share no root of errors.
        raise StorageUnavailable(f"{location[:300]}: {type(exc).__name__}: {exc}") from exc


def _bounded(file: InputStream, location: str) -> bytes:
    parts, size = list[bytes](), 0
    while part := file.read(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise TooLarge(f"{location[:300]} has more than {MOST_BYTES} bytes")
    return b"".join(parts)
