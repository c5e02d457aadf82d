"""
The disk of one simulated lake: its objects by location, as any storage keeps them. Nothing here is of the product.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple


class NotThere(LookupError):
    """There is no object at this location."""


class Object(NamedTuple):
    """One version of an object: its bytes, its tag, and its date by the storage's clock."""

    data: bytes
    tag: str
    modified: datetime


class Disk:
    """All objects by location, folder by folder; `deleting` is asked before one goes."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.clock, self.folders = clock, dict[str, dict[str, Object]]()
        #: how far the storage's clock is ahead
        self.ahead = timedelta(0)
        self.versions = 0
        self.deleting: Callable[[str], None] = lambda location: None
        self.created: Callable[[str, bytes], None] = lambda location, data: None
        self.writes = 0

    def get(self, location: str) -> Object:
        folder, _, name = location.rpartition("/")
        try:
            return self.folders[folder][name]
        except KeyError:
            raise NotThere(f"{location} is not there") from None

    def has(self, location: str) -> bool:
        folder, _, name = location.rpartition("/")
        return name in self.folders.get(folder, ())

    def put(self, location: str, data: bytes) -> str:
        folder, _, name = location.rpartition("/")
        self.versions += 1
        self.writes += 1
        made = Object(data, f"v{self.versions}", self.clock() + self.ahead)
        self.folders.setdefault(folder, {})[name] = made
        self.created(location, data)
        return made.tag

    def delete(self, location: str) -> None:
        folder, _, name = location.rpartition("/")
        if name in self.folders.get(folder, ()):
            self.deleting(location)
            del self.folders[folder][name]

    def under(self, root: str) -> list[tuple[str, Object]]:
        """The objects below a folder, in order."""
        inside = root + "/"
        return [
            (f"{folder}/{name}", found)
            for folder, names in self.folders.items()
            if folder == root or folder.startswith(inside)
            for name, found in sorted(names.items())
        ]
