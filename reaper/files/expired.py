"""
Which files nothing references once certain snapshots have expired.

1. A snapshot that deletes a data file writes a DELETED entry for it into one of its manifests (Iceberg spec,
   "Manifests"). Once that snapshot expires, no snapshot before it is left, so the file can go.
2. So only the manifests of the expiring snapshots are read: the cost is that of what expires, not of the table.
3. A later snapshot may have added the file again (an undo), or the table lists it twice: `verify_journal` keeps what a
   snapshot that stays can read.
4. Where the table has more than one line of history (a branch, a tag, a rolled back snapshot) the first step proves
   nothing: everything that the other snapshots reach is read, and stays.

Example: snapshot 3 adds a.parquet, 7 deletes it. The file goes when 7 expires; 3 to 6, which still have it, expire in
the same step or before.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import DELETED
from bookkeeper.history.main_history import MAIN, MainHistory
from reaper.files.manifest_reader import ManifestReader, normalize

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Files:
    """Deletable files by kind, in the order of their deletion: location -> bytes."""

    data: Sizes = field(default_factory=dict)
    statistics: Sizes = field(default_factory=dict)
    manifests: Sizes = field(default_factory=dict)
    manifest_lists: Sizes = field(default_factory=dict)
    metadata: Sizes = field(default_factory=dict)

    def kinds(self) -> Iterator[tuple[str, Sizes]]:
        """(kind, files) for every kind."""
        return ((item.name, getattr(self, item.name)) for item in fields(self))

    def without(self, named: Collection[str]) -> "Files":
        """The files that are not in `named`."""
        return Files(**{kind: _without(sizes, named) for kind, sizes in self.kinds()})

    def plus(self, other: "Files") -> "Files":
        """The files of both."""
        return Files(**{kind: {**sizes, **getattr(other, kind)} for kind, sizes in self.kinds()})

    def sizes(self) -> dict[str, int]:
        """Every file of every kind."""
        found: dict[str, int] = {}
        for _, sizes in self.kinds():
            found |= sizes
        return found


def _without(sizes: Sizes, named: Collection[str]) -> Sizes:
    if sizes.keys().isdisjoint(named):
        return sizes
    return {key: size for key, size in sizes.items() if key not in named}


def deletable(metadata: TableMetadata, reader: ManifestReader, expire: Collection[int]) -> Files:
    """
    What goes with these snapshots, with sizes as the table knows them.

    Raises StorageUnavailable when a manifest or manifest list that matters cannot be read.
    """
    history = MainHistory(metadata)
    linear = metadata.refs.keys() == {MAIN} and len(history.snapshots) == len(metadata.snapshots)
    expiring = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in expire]
    staying = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expire]
    # On one line of history a manifest that was dropped never comes back: the oldest that stays has all that are used.
    oldest = [snapshot for snapshot in history.snapshots if snapshot.snapshot_id not in expire][:1]
    used = reader.by_path(oldest if linear else staying)
    listed = reader.by_path(expiring)
    unused = {path: manifest for path, manifest in listed.items() if path not in used}
    deletions = _deletions(reader, expiring, listed)
    data = deletions if linear else _data_beside_others(reader, deletions, staying, unused)
    # A manifest may name anything as its data file; what the table stands on is never deleted for that.
    staying_ids = {item.snapshot_id for item in staying}
    needed = {normalize(item.manifest_list) for item in staying} | _statistics(metadata, staying_ids).keys()
    return Files(
        data=data,
        statistics=_statistics(metadata, expire),
        manifests={path: manifest.manifest_length for path, manifest in unused.items()},
        manifest_lists={normalize(item.manifest_list): reader.list_bytes[item.manifest_list] for item in expiring},
    ).without(used.keys() | needed)


def _statistics(metadata: TableMetadata, snapshots: Collection[int]) -> dict[str, int]:
    files = (*metadata.statistics, *metadata.partition_statistics)
    return {normalize(item.statistics_path): item.file_size_in_bytes for item in files if item.snapshot_id in snapshots}


def _deletions(
    reader: ManifestReader, expiring: list[Snapshot], listed: Mapping[str, ListedManifest]
) -> dict[str, int]:
    """What the snapshots that expire deleted: location -> bytes."""
    ids, found = {snapshot.snapshot_id for snapshot in expiring}, dict[str, int]()
    deleting = (item for item in listed.values() if item.added_snapshot_id in ids and item.deleted_files_count)
    for item, rows in reader.with_status(deleting, DELETED):
        found |= {path: size for snapshot, path, size in rows if (snapshot or item.added_snapshot_id) in ids}
    return found


def _data_beside_others(
    reader: ManifestReader,
    deletions: Mapping[str, int],
    staying: list[Snapshot],
    unused: Mapping[str, ListedManifest],
) -> dict[str, int]:
    """The files of expiring snapshots that no other snapshot reaches, on whichever line of history."""
    sizes = dict(deletions)
    for _, entries in reader.files(unused.values()):
        sizes |= {entry.path: entry.bytes for entry in entries}
    if not sizes:
        return {}
    ids = {item.snapshot_id for item in staying}
    for _, entries in reader.files(reader.by_path(staying).values()):
        for entry in entries:
            # Deleted by a snapshot that stays: the file goes when that snapshot goes.
            if entry.status != DELETED or entry.snapshot_id in ids:
                sizes.pop(entry.path, None)
    return sizes
