"""
Which files nothing references once certain snapshots are gone.

A data file goes with the snapshot that deleted it (Iceberg spec, "Manifests"): its DELETED entry is found in
the manifests of the expired snapshots, so the cost is that of what expires. Where the table has more than one
line of history that proves nothing, and everything the others reach is read.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.format.records import DELETED
from reaper.files.manifest_reader import Entry, Reader, normalize
from reaper.plan import History

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
        kept = {kind: {key: sizes[key] for key in sizes if key not in named} for kind, sizes in self.kinds()}
        return Files(**kept)

    def plus(self, other: "Files") -> "Files":
        """The files of both."""
        return Files(**{kind: {**sizes, **getattr(other, kind)} for kind, sizes in self.kinds()})

    def sizes(self) -> dict[str, int]:
        """Every file of every kind."""
        return {key: size for _, sizes in self.kinds() for key, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class Reaped:
    """
    What a run did: snapshots expired, files, orphans and bytes deleted (statistics count as metadata); and of each
    consumer its name, state and the share of max-hold it uses.
    """

    snapshots: int = 0
    data_files: int = 0
    manifests: int = 0
    metadata_files: int = 0
    bytes: int = 0
    orphans: int = 0
    consumers: tuple[tuple[str, str, float], ...] = ()

    def __add__(self, other: "Reaped") -> "Reaped":
        return Reaped(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def __bool__(self) -> bool:
        return any(getattr(self, item.name) for item in fields(self) if item.name != "consumers")

    def without_consumers(self) -> "Reaped":
        """The counts only."""
        return replace(self, consumers=())


def reaped(snapshots: int, files: Files) -> Reaped:
    """
    What it comes to when these are gone.
    """
    manifests = len(files.manifests) + len(files.manifest_lists)
    metadata = len(files.metadata) + len(files.statistics)
    return Reaped(snapshots, len(files.data), manifests, metadata, sum(files.sizes().values()))


def deletable(metadata: TableMetadata, reader: Reader, expire: Collection[int]) -> Files:
    """
    What goes with these snapshots, sizes as the table knows them (manifest lists: 0, it does not).

    Raises StorageUnavailable when something that must be looked at cannot be read.
    """
    history = History(metadata)
    going = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in expire]
    staying = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expire]
    # On one line of history a manifest that was dropped never comes back: the oldest that stays tells all.
    telling = history.staying(expire)[:1] if history.linear else staying
    used, ours = reader.by_path(telling), reader.by_path(going)
    gone = {path: manifest for path, manifest in ours.items() if path not in used}
    if history.linear:
        dead = _dead_on_one_line(history, reader, going, ours)
    else:
        dead = _dead_beside_others(reader, going, staying, ours, gone)
    return Files(
        data=dead,
        statistics=_statistics(metadata, expire),
        manifests={path: manifest.manifest_length for path, manifest in gone.items()},
        manifest_lists={normalize(item.manifest_list): 0 for item in going},
    ).without(used.keys() | _untouchable(metadata, staying))


def _untouchable(metadata: TableMetadata, staying: list[Snapshot]) -> set[str]:
    # A manifest may name anything as its data file; what the table stands on is never deleted for that.
    ids = {item.snapshot_id for item in staying}
    return {normalize(item.manifest_list) for item in staying} | _statistics(metadata, ids).keys()


def _statistics(metadata: TableMetadata, snapshots: Collection[int]) -> dict[str, int]:
    named = (*metadata.statistics, *metadata.partition_statistics)
    return {normalize(item.statistics_path): item.file_size_in_bytes for item in named if item.snapshot_id in snapshots}


def _deletions(reader: Reader, going: list[Snapshot], ours: Mapping[str, ManifestFile]) -> Iterator[Entry]:
    """The entry of every deletion by a snapshot that goes."""
    ids = {snapshot.snapshot_id for snapshot in going}
    for manifest in ours.values():
        if manifest.added_snapshot_id in ids and manifest.deleted_files_count != 0:
            for entry in reader.entries(manifest):
                if entry.status == DELETED and entry.snapshot_id in ids:
                    yield entry


def _dead_on_one_line(
    history: History, reader: Reader, going: list[Snapshot], ours: Mapping[str, ManifestFile]
) -> dict[str, int]:
    died: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for entry in _deletions(reader, going, ours):
        died[entry.path] = max(died.get(entry.path, 0), history.position[entry.snapshot_id])
        sizes[entry.path] = entry.bytes
    # Somebody may have added a file again after its deletion (an undo by add_files): it lives. Two files of one
    # hash would live both, which only leaves an orphan.
    by_hash = {hash(path): path for path in died}
    for index in range(min(died.values(), default=len(history.main)), len(history.main)):
        for number in reader.added(history.main[index]):
            path = by_hash.get(number)
            if path is not None and index >= died[path]:
                sizes.pop(path, None)
    return sizes


def _dead_beside_others(
    reader: Reader,
    going: list[Snapshot],
    staying: list[Snapshot],
    ours: Mapping[str, ManifestFile],
    gone: Mapping[str, ManifestFile],
) -> dict[str, int]:
    sizes = {entry.path: entry.bytes for entry in _deletions(reader, going, ours)}
    for manifest in gone.values():
        for entry in reader.entries(manifest):
            sizes[entry.path] = entry.bytes
    if not sizes:
        return {}
    ids = {item.snapshot_id for item in staying}
    for manifest in reader.by_path(staying).values():
        for entry in reader.entries(manifest):
            # Deleted by a snapshot that stays: the file goes when that one goes.
            if entry.status != DELETED or entry.snapshot_id in ids:
                sizes.pop(entry.path, None)
    return sizes
