"""
Reads manifest lists and manifests of a table; what cannot be read now stops the reaper for now.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.core.errors import PathRefused, StorageUnavailable
from bookkeeper.core.locations import normal


def spelled(location: str) -> str:
    """
    One spelling per file, so that locations can be compared; what cannot be interpreted stays as it is.
    """
    try:
        return normal(location)
    except PathRefused:
        return location


@contextmanager
def reading(location: str) -> Iterator[None]:
    """
    Turns whatever a file system or a decoder raises into StorageUnavailable.
    """
    try:
        yield
    except Exception as exc:
        # Half a picture of what is still referenced is worse than none, so every failure is the same.
        raise StorageUnavailable(
            f"{location} could not be read: {type(exc).__name__}: {exc}",
            hint="Nothing is deleted until every manifest in question can be read.",
        ) from exc


class Reader:
    """
    Manifest lists and manifests through the table's FileIO; neither ever changes, so lists are kept for a run.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self._known: dict[str, ManifestFile] = {}

    def manifests(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests a snapshot uses; raises StorageUnavailable."""
        location = snapshot.manifest_list
        if location not in self._lists:
            with reading(location):
                read = read_manifest_list(self._io.new_input(location))
                # Lists share nearly all their manifests; kept once each, memory does not grow with their product.
                self._lists[location] = tuple(self._known.setdefault(item.manifest_path, item) for item in read)
        return self._lists[location]

    def by_path(self, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
        """Every manifest that one of these uses, by its location."""
        return {spelled(item.manifest_path): item for one in snapshots for item in self.manifests(one)}

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """All entries of a manifest, deleted ones too, with what they inherit; raises StorageUnavailable."""
        with reading(manifest.manifest_path):
            return manifest.fetch_manifest_entry(self._io, discard_deleted=False)

    def added(self, snapshot: Snapshot) -> Iterator[str]:
        """Files that this snapshot added."""
        for manifest in self.manifests(snapshot):
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.has_added_files():
                yield from self._added(manifest, snapshot)

    def _added(self, manifest: ManifestFile, snapshot: Snapshot) -> Iterator[str]:
        for entry in self.entries(manifest):
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                yield spelled(entry.data_file.file_path)
