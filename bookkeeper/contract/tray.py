"""
Trays: the places of a table's folder where others publish small objects for the bookkeeper, such as rewrites/.

The bookkeeper settles each object once: what it asks for is done, and it is deleted; or it is moved to rejected/ with
the reason. Both are safe after a crash in between: the object is found again, and what was done is recognised.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from bookkeeper.contract.txlog_folder import REASON, REJECTED, Folder
from bookkeeper.errors import BookkeeperError, Missing, TooLarge, Unfit
from bookkeeper.stores.store import create_once
from bookkeeper.stores.together import BYTES_AT_ONCE, in_parts


class FoundObject(NamedTuple):
    """An object as a listing shows it: time of its creation (the store's clock, UTC), name below its place, bytes."""

    modified: datetime
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Tray:
    """One such place of the folder: its objects have names that end with `suffix`, and at most `most_bytes`."""

    place: str
    suffix: str
    most_bytes: int
    #: whether this is the name of such an object: rejected/ holds other things as well
    is_name: Callable[[str], bool]

    def publish(self, folder: Folder, name: str, data: bytes) -> None:
        """
        Makes an object visible, once. A put whose reply was lost and that is sent again finds its own bytes, or none:
        both are success.

        Raises AlreadyExists when other bytes are there, and StorageUnavailable.
        """
        create_once(folder.store, f"{self.place}{name}", data, consumed=True)

    def pending(self, folder: Folder) -> list[FoundObject]:
        """What one listing shows, oldest first; misnamed ones too. Raises StorageUnavailable."""
        # A local write that is unfinished ends otherwise.
        listed = (item for item in folder.store.list(self.place) if item.key.endswith(self.suffix))
        return sorted(FoundObject(item.modified, item.key.removeprefix(self.place), item.size) for item in listed)

    def rejected(self, folder: Folder) -> list[FoundObject]:
        """
        What was rejected, oldest first, by the later time of its bytes and its reason. Raises StorageUnavailable.

        Of an object that could not be kept only the reason is there.
        """
        found: dict[str, FoundObject] = {}
        for item in folder.store.list(REJECTED):
            name = item.key.removeprefix(REJECTED)
            size = 0 if name.endswith(REASON) else item.size
            name = name.removesuffix(REASON)
            if self.is_name(name):
                seen = found.get(name, FoundObject(item.modified, name, 0))
                found[name] = FoundObject(max(item.modified, seen.modified), name, max(size, seen.size))
        return sorted(found.values())

    def read(
        self, folder: Folder, listed: Sequence[FoundObject], most: int, bytes_at_once: int = BYTES_AT_ONCE
    ) -> Iterator[tuple[FoundObject, bytes | BookkeeperError]]:
        """
        Each object, or the error of reading it: TooLarge, unread, for one of more than `most` bytes, Missing for one
        that was settled since the listing, Unfit, StorageUnavailable. Read together are as many as the store answers
        at once, of at most `bytes_at_once` unless one alone has more.
        """
        by_name = {item.name: item for item in listed}
        bounds = ((item.name, min(item.size, most)) for item in listed)
        for part in in_parts(bounds, bytes_at_once, folder.store.at_once):
            sizes = {f"{self.place}{name}": size for name, size in part.items() if by_name[name].size <= most}
            read = folder.store.read_many([*sizes], sizes)
            for name in part:
                too_large = TooLarge(f"{by_name[name].size} bytes, at most {most} are expected")
                yield by_name[name], read.get(f"{self.place}{name}", too_large)

    def settle(self, folder: Folder, names: Iterable[str]) -> int:
        """Deletes objects that are answered; returns how many were given."""
        return folder.store.delete_many([f"{self.place}{name}" for name in names])

    def reject(self, folder: Folder, name: str, why: BookkeeperError, now: datetime) -> None:
        """
        Moves an object to rejected/ with its reason, one that was settled meanwhile excepted. Raises Retry, NotMoved.
        """
        try:
            folder.reject(name, why, now, self.most_bytes, self.place)
        except Missing:
            return


def bytes_of(answer: bytes | BookkeeperError, unfit: type[BookkeeperError]) -> bytes:
    """
    The bytes that were read. Raises `unfit` where the object itself is why there are none, else the error of reading.
    """
    if isinstance(answer, Unfit):
        raise unfit(str(answer)) from answer
    if isinstance(answer, BookkeeperError):
        raise answer
    return answer
