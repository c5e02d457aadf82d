"""
The data files that a snapshot added, or that were in the table then, in the order in which a place counts them.

A snapshot, its manifests and its files never change, so neither does the order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.consumers.reading import reading
from bookkeeper.errors import NotPossible
from bookkeeper.format.entries import DATA
from bookkeeper.format.manifest_list import KnownLines, ListedManifest
from bookkeeper.manifests.fetch import Fetch
from bookkeeper.manifests.reader import Manifests, Row, with_live_files


class TableFile(NamedTuple):
    """A data file of the table, with its columns by the names that Iceberg's libraries use."""

    file_path: str
    file_format: str
    #: physical values, in the order of the spec's fields
    partition: tuple[Any, ...]
    spec_id: int
    record_count: int
    file_size_in_bytes: int
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int


class AllFiles(NamedTuple):
    """The data files that were in the table at a snapshot, by their sequence numbers, and what its list names."""

    files: Sequence[TableFile]
    manifests: Sequence[ListedManifest]

    @property
    def may_be_hidden(self) -> bool:
        """Whether delete files may hide rows of the files."""
        return all(with_live_files(self.manifests, content) for content in ManifestContent)


@dataclass
class SnapshotFiles:
    """
    Reads the files of snapshots; it remembers the lines of manifest lists, of which each list repeats most.

    For several threads at once. Raises Missing, StorageUnavailable, and NotPossible for what cannot be decoded.
    """

    lines: KnownLines = field(default_factory=dict)

    def of(self, io: FileIO, snapshot: Snapshot, whole: bool = False) -> Sequence[TableFile]:
        """
        The files that the snapshot added, by the paths of its manifests, and within each as they stand; `whole`: all
        that were in the table then, by their sequence numbers: what came before a snapshot is before its own files.

        Raises NotPossible also where delete files may hide rows of them.
        """
        if whole:
            found = self.all(io, snapshot)
            check_not_hidden(snapshot, found)
            return found.files
        added = sorted(self._manifests(io).added(snapshot), key=lambda item: item[0].manifest_path)
        return [file for manifest, rows in added for file in _files(manifest, rows)]

    def all(self, io: FileIO, snapshot: Snapshot) -> AllFiles:
        """All data files that were in the table then, whatever delete files there are."""
        manifests = self._manifests(io)
        (listed,) = manifests.lists([snapshot])
        data = sorted(listed, key=lambda item: item.min_sequence_number)
        files = [file for manifest, rows in manifests.live(data) for file in _files(manifest, rows)]
        return AllFiles(sorted(files, key=lambda file: file.sequence_number), listed)

    def sizes_added(self, io: FileIO, snapshot: Snapshot) -> list[tuple[int, int]]:
        """Rows and bytes of the files that the snapshot added, in the order of its list, in which Spark reads them."""
        added = self._manifests(io).added(snapshot)
        return [(row.found.record_count, row.found.size_bytes) for _, rows in added for row in rows]

    def _manifests(self, io: FileIO) -> Manifests:
        return Manifests(Fetch.by(io, reading), foreign=True, lines=self.lines)


def check_not_hidden(snapshot: Snapshot, found: AllFiles) -> None:
    """
    Raises NotPossible when delete files may hide rows of the files.
    """
    if found.may_be_hidden:
        raise NotPossible(
            f"snapshot {snapshot.snapshot_id}, the oldest that is kept, has delete files: the rows that they delete "
            "would be read too",
            hint="Begin at the end, or at a time: `--from end`, `--from 10m`. A batch reader shows the rows of now.",
        )


def _files(manifest: ListedManifest, rows: Iterable[Row]) -> Iterable[TableFile]:
    for row, head in rows:
        if row.entry is None or row.entry.content == DATA:
            yield TableFile(
                row.path,
                row.file_format.upper(),
                row.partition,
                manifest.partition_spec_id,
                row.record_count,
                row.size_bytes,
                head.snapshot_id or 0,
                head.sequence or 0,
                head.file_sequence or 0,
            )
