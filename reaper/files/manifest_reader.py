"""
Reads manifest lists and manifests of a table for the reaper; one that cannot be read now ends the run.

What a run has read it remembers: each step of it looks at the same lists, and at everything that was added since.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import PathRefused, StorageUnavailable
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import ADDED, DELETED
from bookkeeper.format.skim import StatusRow
from bookkeeper.manifests.cache import BlockCache
from bookkeeper.manifests.fetch import Fetch, Together
from bookkeeper.manifests.reader import Manifests
from bookkeeper.manifests.walk import Walked
from bookkeeper.stores.locations import are_normal, normal

#: of what is known of blocks, and what it takes for one
_KNOWN_BYTES, _BLOCK_BYTES = 2**26, 500


class Entry(NamedTuple):
    """What the reaper asks of a manifest entry; `path` is normalized."""

    status: int
    snapshot_id: int
    path: str
    bytes: int


def normalize(location: str) -> str:
    """
    One spelling per file, so that locations can be compared; one that cannot be interpreted stays as it is.
    """
    try:
        return normal(location)
    except PathRefused:
        return location


@contextmanager
def reading(location: str) -> Iterator[None]:
    """
    Turns every error of a file system or a decoder into StorageUnavailable.
    """
    try:
        yield
    except Exception as exc:
        # Files that an unread manifest references would look unreferenced, so every failure ends the run.
        raise StorageUnavailable(
            f"{location} could not be read: {type(exc).__name__}: {exc}",
            hint="Nothing is deleted until every manifest in question can be read.",
        ) from exc


class ManifestReader(Manifests):
    """
    The manifest lists and manifests of a table, in one run: a list never changes, and each is read once.

    What `together` does not reach is read through the table's FileIO, and a layout that we do not know by pyiceberg.
    Raises StorageUnavailable for anything that cannot be read.
    """

    def __init__(self, io: FileIO, together: Together) -> None:
        super().__init__(Fetch(together, io, reading), foreign=True)
        #: bytes of the manifest lists read so far, by location
        self.list_bytes: dict[str, int] = {}
        self._lists: dict[str, tuple[ListedManifest, ...]] = {}
        #: by snapshot and its list: the manifests with files that it added
        self._own: dict[tuple[int, str], list[ListedManifest]] = {}
        #: hash() of each file that a manifest added, in 8 bytes; of a block the statuses that none of its entries has:
        #: retention passes most blocks of a manifest on as they are, behind that of its deletions
        self._known: BlockCache[str, array[int], frozenset[int]] = BlockCache(lambda _: _BLOCK_BYTES, _KNOWN_BYTES)

    @property
    def reads(self) -> int:
        """Manifests and manifest lists that were read alone."""
        return self.fetch.alone

    def lists(self, snapshots: Iterable[Snapshot]) -> list[tuple[ListedManifest, ...]]:
        """See Manifests."""
        asked = [*snapshots]
        missing = [snapshot for snapshot in asked if snapshot.manifest_list not in self._lists]
        for location, size, listed in self.sized_lists(missing):
            self.list_bytes[location], self._lists[location] = size, listed
        return [self._lists[snapshot.manifest_list] for snapshot in asked]

    def by_path(self, snapshots: Iterable[Snapshot]) -> dict[str, ListedManifest]:
        """Every manifest of these snapshots, by its normalized location."""
        listed = {item.manifest_path: item for item in chain.from_iterable(self.lists(snapshots))}
        return {normalize(path): item for path, item in listed.items()}

    def files(self, manifests: Iterable[ListedManifest]) -> Iterator[tuple[ListedManifest, Iterator[Entry]]]:
        """Each manifest, and its entries, deleted ones too."""
        for manifest, rows in self.rows(manifests):
            yield (
                manifest,
                (Entry(head.status, head.snapshot_id or 0, normalize(row.path), row.size_bytes) for row, head in rows),
            )

    def with_status(
        self, manifests: Iterable[ListedManifest], *statuses: int
    ) -> Iterator[tuple[ListedManifest, Sequence[StatusRow]]]:
        """
        Each manifest, and what of its entries has one of these statuses: their snapshots as written (None: the
        manifest's), normalized locations and bytes.

        Of deletions as many as the list states: where it states too few, files are left for the orphan sweep.
        """
        for manifest, found in self.each(manifests, partial(self._with_status, statuses)):
            yield manifest, normalized(found)

    def hashes_added(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[int, Sequence[int]]]:
        """
        (snapshot, hash() of the normalized location of each file that it added), for each manifest with such files.
        """
        keys = {(item.snapshot_id, item.manifest_list): item for item in snapshots}
        missing = [key for key in keys if key not in self._own]
        for key, listed in zip(missing, self.lists(keys[key] for key in missing), strict=True):
            self._own[key] = [item for item in listed if item.added_snapshot_id == key[0] and item.added_files_count]
        own = [item for key in keys for item in self._own[key]]
        found = {item.manifest_path: self._known.manifest(item.manifest_path) for item in own}
        for item, rows in self.with_status((item for item in own if found[item.manifest_path] is None), ADDED):
            paths = (path for snapshot, path, _ in rows if snapshot in (None, item.added_snapshot_id))
            hashes = found[item.manifest_path] = array("q", map(hash, paths))
            self._known.put_manifest(item.manifest_path, hashes)
        for item in own:
            yield item.added_snapshot_id, found[item.manifest_path] or ()

    def _with_status(
        self, statuses: tuple[int, ...], manifest: ListedManifest, blocks: Iterable[Walked]
    ) -> list[StatusRow]:
        """Of deletions, those up to the end of the block with which there are as many as the list states."""
        most, found = manifest.deleted_files_count if statuses == (DELETED,) else None, list[StatusRow]()
        for block in blocks:
            if most is not None and len(found) >= most:
                break
            digest = block.digest
            lacks = self._known.block(digest) or frozenset()
            if not lacks.issuperset(statuses):
                rows = block.with_status(*statuses)
                found += rows
                if not rows:
                    self._known.put_block(digest, lacks.union(statuses))
        return found


def normalized(rows: Sequence[StatusRow]) -> Sequence[StatusRow]:
    """
    The rows, with normalized locations.
    """
    if are_normal([path for _, path, _ in rows]):
        return rows
    return [(snapshot, normalize(path), size) for snapshot, path, size in rows]
