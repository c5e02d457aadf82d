"""
The files that the reaper may delete: below the table's location or its data path, never in the txlog folder.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.errors import BookkeeperError, Missing, PathRefused, StorageUnavailable
from bookkeeper.stores.local import FolderUnavailable
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.locations import common_folder, inside, join, normal
from bookkeeper.stores.object_store import Transient
from bookkeeper.stores.store import Listed, Store, key_in
from bookkeeper.stores.together import in_parts
from reaper.files.manifest_reader import normalize

OpenStore = Callable[[str], Store]
#: deleted at once: what an object store takes in four requests (S3: 1,000 files each), which are on their way together
AT_ONCE = 4000
#: deletes in a row that fail, beside those by which one file is found: storage is down, or lets none go
MOST_FAILURES = 8
#: locations that are compared together
_COMPARED = 256
_OPERATIONS = ("read", "read_tagged", "create", "replace", "size", "sizes", "modified", "list", "delete_many", "upload")


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


def metadata_path(metadata: TableMetadata) -> str:
    """
    Where the table's metadata lies.
    """
    return metadata.properties.get("write.metadata.path") or join(metadata.location, "metadata")


class Storage:
    """The table's own files, through stores opened at its location and its data path."""

    def __init__(self, metadata: TableMetadata, folder: str, open_store: OpenStore, pace: Pace) -> None:
        #: how fast files may be deleted, and how to wait
        self.pace = pace
        #: locations of files that did not go, with the reasons, while others went: they are locked, or another's
        self.stuck: dict[str, str] = {}
        #: operations by kind: what the run costs on an object store
        self.requests: Counter[str] = Counter()
        roots = [metadata.location]
        if not _below(data_path(metadata), metadata.location):
            roots.append(data_path(metadata))
        places = (data_path(metadata), metadata_path(metadata))
        opened = [of_table(open_store(root), metadata.location, *places) for root in roots]
        self._stores: list[Any] = [_CountedStore(store, self.requests) for store in opened]
        # Normalized once: each of a hundred thousand locations is compared with them.
        self._folder_root = _root(folder)
        self._roots = [(_root(store.url), store) for store in self._stores]

    def foreign(self, locations: Iterable[str]) -> Sequence[str]:
        """The files among these that are not the table's own and must not be deleted."""
        asked = [*locations]
        own = self._placed(asked)
        if sum(map(len, own)) == len(asked):
            return []
        known = {location for keys in own for location in keys.values()}
        # Two spellings of one file have one key.
        return [location for location in asked if location not in known and self._place(location) is None]

    def sizes(self, locations: Iterable[str]) -> dict[str, int]:
        """The size in bytes of each of these files that exists and that storage answers for."""
        result: dict[str, int] = {}
        for store, keys in self._by_store(locations):
            found = store.sizes(list(keys))
            result |= {keys[key]: size for key, size in found.items() if isinstance(size, int)}
        return result

    def modified(self, location: str) -> datetime:
        """When this file was written, by the storage's clock; raises Missing, also where it is not the table's own."""
        found = self._place(location)
        if found is None:
            raise Missing(f"{location} is not the table's own")
        store, key = found
        return store.modified(key)

    def read(self, most: Mapping[str, int]) -> Iterator[tuple[str, bytes | None]]:
        """
        The content of each of these files, at most so many bytes; None where it is larger or cannot be read.

        Several are read at once, BYTES_AT_ONCE of them at most.
        """
        for part in in_parts(most.items()):
            for location, found in self.read_together(part).items():
                yield location, found if isinstance(found, bytes) else None

    def read_together(self, most: Mapping[str, int]) -> dict[str, bytes | BookkeeperError]:
        """
        The content of each of these files, at most so many bytes, or why there is none: Missing, Unfit (larger, or no
        file), StorageUnavailable, PathRefused (not the table's own). All are read at once.
        """
        found: dict[str, bytes | BookkeeperError] = {}
        for store, keys in self._by_store(most):
            self.requests["read_many"] += len(keys)
            read = store.read_many([*keys], {key: most[location] for key, location in keys.items()})
            found |= {keys[key]: data for key, data in read.items()}
        outside = "it lies neither below the table's location nor below its data path"
        return {location: found.get(location, PathRefused(outside)) for location in most}

    def upload(self, location: str, data: Any) -> None:
        """
        Writes a new file under a location of the table that is used once: durable on return.

        Raises StorageUnavailable, and PathRefused for a location that is not the table's own.
        """
        owned = self._place(location)
        if owned is None:
            raise PathRefused(f"{location[:300]} lies neither below the table's location nor below its data path")
        store, key = owned
        store.upload(key, data)

    def delete(self, locations: Iterable[str]) -> int:
        """
        Deletes those that are there, but for what is `stuck` then; returns how many are left alone because they lie
        behind a symbolic link.

        What fails is halved until the file is found that does not go: it stops no other. Raises StorageUnavailable
        where none goes, many in a row do not, or a folder is not reachable, and the rest can be deleted again.
        """
        asked, left, stuck = 0, 0, dict[str, StorageUnavailable]()
        for store, keys in self._by_store(locations, self.pace.at_once):
            behind_links, refused = _deleted(store, [*keys])
            left += behind_links
            stuck |= {keys[key]: error for key, error in refused.items()}
            asked += len(keys)
            self.pace.after(len(keys))
        if 1 < asked == len(stuck):
            raise next(iter(stuck.values()))
        self.stuck |= {location: str(error) for location, error in stuck.items()}
        return left

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

    def _place(self, location: str) -> tuple[Store, str] | None:
        """The store and the key of a file; None where it is not the table's own."""
        return next(((store, key) for store, keys in self._by_store([location]) for key in keys), None)

    def _by_store(self, locations: Iterable[str], at_once: int = AT_ONCE) -> Iterator[tuple[Store, dict[str, str]]]:
        """(store, key -> location) for `at_once` locations at a time."""
        remaining = iter(locations)
        while part := list(islice(remaining, at_once)):
            for (_, store), keys in zip(self._roots, self._placed(part), strict=True):
                if keys:
                    yield store, keys

    def _placed(self, locations: Sequence[str]) -> Sequence[dict[str, str]]:
        """key -> location of those below each root; what is not the table's own is in none."""
        placed: Sequence[dict[str, str]] = [{} for _ in self._roots]
        for start in range(0, len(locations), _COMPARED):
            part = locations[start : start + _COMPARED]
            if folder := common_folder(part):
                # Files of one folder are compared with the roots once, by any name.
                found = self._root_of(folder + "x")
                if found is not None:
                    cut = len(self._roots[found][0])
                    placed[found].update({location[cut:]: location for location in part})
                continue
            for location, plain in zip(part, map(_normal, part), strict=True):
                found = self._root_of(plain)
                if found is not None and plain is not None:
                    placed[found][plain[len(self._roots[found][0]) :]] = location
        return placed

    def _root_of(self, plain: str | None) -> int | None:
        """Below which root a file lies; None for what is not the table's own."""
        if plain is not None and not plain.startswith(self._folder_root):
            for number, (root, _) in enumerate(self._roots):
                if plain.startswith(root) and plain != root:
                    return number
        return None


def _deleted(store: Store, keys: list[str]) -> tuple[int, dict[str, StorageUnavailable]]:
    """How many of these keys lie behind a symbolic link, and those that do not go; raises StorageUnavailable."""
    left, failures, parts, refused = 0, 0, [keys], dict[str, StorageUnavailable]()
    while parts:
        part = parts.pop()
        try:
            left += len(part) - store.delete_many(part)
            failures = 0
        except StorageUnavailable as error:
            failures += 1
            of_all = isinstance(error, Transient | FolderUnavailable)
            if of_all or failures > MOST_FAILURES + len(keys).bit_length():
                raise
            half = len(part) // 2
            parts += [part[half:], part[:half]] if half else []
            refused |= {} if half else {part[0]: error}
    return left, refused


class _CountedStore:
    """A store that counts each operation in `requests`; one that takes many keys counts once."""

    def __init__(self, inner: Store, requests: Counter[str]) -> None:
        self._inner, self._requests = inner, requests

    def __getattr__(self, name: str) -> Any:
        if name in _OPERATIONS:
            self._requests[name] += 1
        return getattr(self._inner, name)


def _root(url: str) -> str:
    return normal(url).rstrip("/") + "/"


def _normal(location: str) -> str | None:
    try:
        return normal(location)
    except PathRefused:
        return None


def _below(location: str, root: str) -> bool:
    try:
        return inside(location, root)
    except PathRefused:
        return False
