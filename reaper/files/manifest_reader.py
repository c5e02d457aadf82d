"""
Reads manifest lists and manifests of a table; one that cannot be read now ends the run.
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import BookkeeperError, PathRefused, StorageUnavailable
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import ADDED, read_prefix
from bookkeeper.stores.locations import normal

_MOST_BYTES = 2**31


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


class ManifestReader:
    """
    Reads manifest lists and manifests through the table's FileIO. A list never changes: each is read once in a run.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        #: manifests and manifest lists read so far
        self.reads = 0
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self._manifests: dict[str, ManifestFile] = {}
        self._hashes: dict[str, array[int]] = {}

    def manifests(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot; raises StorageUnavailable."""
        location = snapshot.manifest_list
        if location not in self._lists:
            self.reads += 1
            with reading(location):
                read = read_manifest_list(self._io.new_input(location))
                # Lists share nearly all their manifests; kept once each, memory does not grow with their product.
                self._lists[location] = tuple(self._manifests.setdefault(item.manifest_path, item) for item in read)
        return self._lists[location]

    def by_path(self, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
        """Every manifest of these snapshots, by its normalized location."""
        return {normalize(item.manifest_path): item for one in snapshots for item in self.manifests(one)}

    def entries(self, manifest: ManifestFile) -> Iterator[Entry]:
        """All entries of a manifest, deleted ones too, with what they inherit; raises StorageUnavailable."""
        self.reads += 1
        with reading(manifest.manifest_path):
            with self._io.new_input(manifest.manifest_path).open() as file:
                data = file.read()
            try:
                return _skimmed(manifest_format.decode(data, _MOST_BYTES), manifest)
            except BookkeeperError:
                # A layout of another writer: pyiceberg reads every layout, more slowly.
                entries = manifest.fetch_manifest_entry(self._io, discard_deleted=False)
                return iter([_decoded(entry) for entry in entries])

    def added(self, snapshot: Snapshot) -> Iterator[int]:
        """
        The hash() of the normalized location of each file that this snapshot added.

        Kept for a run, in 8 bytes a file: each step of a run looks at everything that was added since.
        """
        for manifest in self.manifests(snapshot):
            if manifest.added_snapshot_id != snapshot.snapshot_id or not manifest.has_added_files():
                continue
            if manifest.manifest_path not in self._hashes:
                added = (item for item in self.entries(manifest) if item.status == ADDED)
                own = (item.path for item in added if item.snapshot_id == snapshot.snapshot_id)
                self._hashes[manifest.manifest_path] = array("q", (hash(path) for path in own))
            yield from self._hashes[manifest.manifest_path]


def _skimmed(found: Manifest, manifest: ManifestFile) -> Iterator[Entry]:
    prefixes: dict[bytes, tuple[int, int]] = {}
    for row in found.rows:
        if row.entry is not None:  # decoded in full: its prefix may have another layout
            status, snapshot = row.entry.status, row.entry.snapshot_id
            yield Entry(status, snapshot or manifest.added_snapshot_id or 0, normalize(row.path), row.size_bytes)
            continue
        if row.prefix not in prefixes:
            prefix = read_prefix(row.prefix)
            prefixes[row.prefix] = prefix.status, prefix.snapshot_id or manifest.added_snapshot_id or 0
        yield Entry(*prefixes[row.prefix], normalize(row.path), row.size_bytes)


def _decoded(entry: ManifestEntry) -> Entry:
    file = entry.data_file
    return Entry(int(entry.status), entry.snapshot_id or 0, normalize(file.file_path), file.file_size_in_bytes)
