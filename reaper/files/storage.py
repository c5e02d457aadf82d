"""
Where the reaper may delete: below the table's location or its data path, never in the txlog folder.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.errors import PathRefused
from bookkeeper.stores.locations import inside, join, normal
from bookkeeper.stores.store import Listed, Store, key_in
from reaper.files.manifest_reader import normalize
from reaper.request_counts import counting

OpenStore = Callable[[str], Store]
AT_ONCE = 1000


@dataclass
class Pace:
    """How fast files are deleted: at most so many a second, and who is told how far it is."""

    per_second: int | None = None
    wait: Callable[[float], object] = lambda seconds: None
    told: Callable[[int], object] = lambda deleted: None
    deleted: int = 0

    @property
    def at_once(self) -> int:
        """Files in one request: never more than one second's worth."""
        return AT_ONCE if self.per_second is None else min(AT_ONCE, self.per_second)

    def after(self, count: int) -> None:
        """So many were deleted: say so, and wait as long as they may take."""
        self.deleted += count
        self.told(self.deleted)
        if self.per_second is not None:
            self.wait(count / self.per_second)


def data_path(metadata: TableMetadata) -> str:
    """
    Where the table's writers put data files.
    """
    return metadata.properties.get("write.data.path") or join(metadata.location, "data")


class Storage:
    """The table's own files, through stores opened at its location and its data path."""

    def __init__(self, metadata: TableMetadata, folder: str, open_store: OpenStore, pace: Pace) -> None:
        self._folder, self._pace = folder, pace
        self.asked: Counter[str] = Counter()
        roots = [metadata.location]
        if not _below(data_path(metadata), metadata.location):
            roots.append(data_path(metadata))
        self._stores = [counting(open_store, self.asked)(root) for root in roots]
        # Normal once: each of a hundred thousand locations is held against them.
        self._folder_root = _root(folder)
        self._roots = [(_root(store.url), store) for store in self._stores]

    def owns(self, location: str) -> bool:
        """Whether this file may be deleted at all."""
        return self._place(location) is not None

    def sizes(self, locations: Iterable[str]) -> dict[str, int]:
        """Bytes of those that are there and can be asked."""
        result: dict[str, int] = {}
        for store, keys in self._placed(locations):
            found = store.sizes(list(keys))
            result |= {keys[key]: size for key, size in found.items() if isinstance(size, int)}
        return result

    def read(self, locations: Iterable[str]) -> dict[str, bytes]:
        """The content of those that are there and can be read."""
        result: dict[str, bytes] = {}
        for store, keys in self._placed(locations):
            found = store.read_many(list(keys))
            result |= {keys[key]: data for key, data in found.items() if isinstance(data, bytes)}
        return result

    def delete(self, locations: Iterable[str]) -> None:
        """Deletes those that are there; raises StorageUnavailable, and the rest can be deleted again."""
        for store, keys in self._placed(locations, self._pace.at_once):
            if keys:
                store.delete_many(keys)
                self._pace.after(len(keys))

    def list(self, location: str) -> Iterator[tuple[str, Listed]]:
        """(location, what the listing says) of all files below a folder but the txlog folder's; none when not ours."""
        for store in self._stores:
            if normalize(store.url) == normalize(location) or _below(location, store.url):
                key = "" if normalize(store.url) == normalize(location) else key_in(store, location) + "/"
                found = ((normalize(join(store.url, item.key)), item) for item in store.list(key))
                yield from ((place, item) for place, item in found if not _below(place, self._folder))
                return

    def _place(self, location: str) -> tuple[Store, str] | None:
        try:
            plain = normal(location)
        except PathRefused:
            return None
        if plain.startswith(self._folder_root):
            return None
        for root, store in self._roots:
            if plain.startswith(root) and plain != root:
                return store, plain.removeprefix(root)
        return None

    def _placed(self, locations: Iterable[str], at_once: int = AT_ONCE) -> Iterator[tuple[Store, dict[str, str]]]:
        remaining = iter(locations)
        while part := list(islice(remaining, at_once)):
            for store in self._stores:
                places = ((location, self._place(location)) for location in part)
                yield store, {place[1]: location for location, place in places if place and place[0] is store}


def _root(url: str) -> str:
    return normal(url).rstrip("/") + "/"


def _below(location: str, root: str) -> bool:
    try:
        return inside(location, root)
    except PathRefused:
        return False
