"""
The files that the reaper may delete: below the table's location or its data path, never in the txlog folder.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.errors import PathRefused
from bookkeeper.stores.locations import inside, join, normal
from bookkeeper.stores.store import Listed, Store, key_in
from reaper.files.manifest_reader import normalize

OpenStore = Callable[[str], Store]
#: deleted at once: what an object store takes in four requests (S3: 1,000 files each), which are on their way together
AT_ONCE = 4000
#: read at once: so many files, of so many bytes together
READ_AT_ONCE, BYTES_AT_ONCE = 64, 2**26
_OPERATIONS = ("read", "read_tagged", "create", "replace", "size", "sizes", "list", "delete_many")


@dataclass
class Pace:
    """At most so many deletes a second; `on_deleted` gets the number of files deleted so far."""

    per_second: int | None = None
    wait: Callable[[float], object] = lambda seconds: None
    on_deleted: Callable[[int], object] = lambda deleted: None
    deleted: int = 0

    @property
    def at_once(self) -> int:
        """Files that are deleted together: never more than one second's worth."""
        return AT_ONCE if self.per_second is None else min(AT_ONCE, self.per_second)

    def after(self, count: int) -> None:
        """Reports so many deleted files and waits as long as they may take."""
        self.deleted += count
        self.on_deleted(self.deleted)
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
        self._pace = pace
        #: operations by kind: what the run costs on an object store
        self.requests: Counter[str] = Counter()
        roots = [metadata.location]
        if not _below(data_path(metadata), metadata.location):
            roots.append(data_path(metadata))
        self._stores: list[Any] = [_CountedStore(open_store(root), self.requests) for root in roots]
        # Normalized once: each of a hundred thousand locations is compared with them.
        self._folder_root = _root(folder)
        self._roots = [(_root(store.url), store) for store in self._stores]

    def owns(self, location: str) -> bool:
        """Whether this file may be deleted at all."""
        return self._store_and_key(location) is not None

    def sizes(self, locations: Iterable[str]) -> dict[str, int]:
        """Bytes of those that are there and can be asked."""
        result: dict[str, int] = {}
        for store, keys in self._by_store(locations):
            found = store.sizes(list(keys))
            result |= {keys[key]: size for key, size in found.items() if isinstance(size, int)}
        return result

    def read(self, most: Mapping[str, int]) -> Iterator[tuple[str, bytes | None]]:
        """
        The content of each of these files, at most so many bytes; None where it is larger or cannot be read.

        Several are read at once, BYTES_AT_ONCE of them at most.
        """
        for part in in_parts(most.items()):
            found: dict[str, bytes] = {}
            for store, keys in self._by_store(part):
                self.requests["read_many"] += len(keys)
                read = store.read_many([*keys], {key: most[location] for key, location in keys.items()})
                found |= {keys[key]: data for key, data in read.items() if isinstance(data, bytes)}
            yield from ((location, found.get(location)) for location in part)

    def delete(self, locations: Iterable[str]) -> None:
        """Deletes those that are there; raises StorageUnavailable, and the rest can be deleted again."""
        for store, keys in self._by_store(locations, self._pace.at_once):
            store.delete_many(keys)
            self._pace.after(len(keys))

    def list(self, location: str) -> Iterator[tuple[str, Listed]]:
        """(location, listed object) of all files below a folder but the txlog folder's; none when it is not ours."""
        for store in self._stores:
            is_root = normalize(store.url) == normalize(location)
            if is_root or _below(location, store.url):
                for item in store.list("" if is_root else key_in(store, location) + "/"):
                    found = normalize(join(store.url, item.key))
                    if not found.startswith(self._folder_root):
                        yield found, item
                return

    def _store_and_key(self, location: str) -> tuple[Store, str] | None:
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

    def _by_store(self, locations: Iterable[str], at_once: int = AT_ONCE) -> Iterator[tuple[Store, dict[str, str]]]:
        """(store, key -> location) for `at_once` locations at a time."""
        remaining = iter(locations)
        while part := list(islice(remaining, at_once)):
            owned = [(location, self._store_and_key(location)) for location in part]
            for store in self._stores:
                if keys := {found[1]: location for location, found in owned if found and found[0] is store}:
                    yield store, keys


class _CountedStore:
    """A store that counts each operation in `requests`; one that takes many keys counts once."""

    def __init__(self, inner: Store, requests: Counter[str]) -> None:
        self._inner, self._requests = inner, requests

    def __getattr__(self, name: str) -> Any:
        if name in _OPERATIONS:
            self._requests[name] += 1
        return getattr(self._inner, name)


def in_parts(sizes: Iterable[tuple[str, int]]) -> Iterator[dict[str, int]]:
    """
    What is read together, each with its size: READ_AT_ONCE names, and BYTES_AT_ONCE unless one alone has more.
    """
    part, size = dict[str, int](), 0
    for name, bytes_there in sizes:
        if part and (len(part) == READ_AT_ONCE or size + bytes_there > BYTES_AT_ONCE):
            yield part
            part, size = {}, 0
        part[name] = bytes_there
        size += bytes_there
    if part:
        yield part


def _root(url: str) -> str:
    return normal(url).rstrip("/") + "/"


def _below(location: str, root: str) -> bool:
    try:
        return inside(location, root)
    except PathRefused:
        return False
