"""
What is in the table at a snapshot: its data files, and whether delete files may hide rows of them.
"""

from collections.abc import Iterator, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import NotPossible
from bookkeeper.streams.rows import reading


def live_files(io: FileIO, snapshot: Snapshot) -> Iterator[DataFile]:
    """
    All data files of the table at that snapshot, the oldest manifest's first.

    Raises Missing, StorageUnavailable, and NotPossible when delete files may hide rows of them.
    """
    manifests = _manifests(io, snapshot)
    _check_no_deletes(snapshot, manifests)
    return (entry.data_file for entry in _entries(io, manifests))


def ordered_files(io: FileIO, snapshot: Snapshot) -> list[DataFile]:
    """
    The same, by their sequence numbers, as a place counts them: files that came before a snapshot are before its own.
    """
    manifests = _manifests(io, snapshot)
    _check_no_deletes(snapshot, manifests)
    return [entry.data_file for entry in _ordered(_entries(io, manifests))]


def ordered_entries(io: FileIO, snapshot: Snapshot) -> tuple[list[ManifestEntry], Sequence[ManifestFile]]:
    """
    The entries of these files, in that order, and the manifests of the snapshot; also where there are delete files.
    """
    manifests = _manifests(io, snapshot)
    return _ordered(_entries(io, manifests)), manifests


def check_no_deletes(io: FileIO, snapshot: Snapshot) -> None:
    """
    Raises NotPossible when delete files may hide rows of the files; Missing, StorageUnavailable.
    """
    _check_no_deletes(snapshot, _manifests(io, snapshot))


def has_deletes(manifests: Sequence[ManifestFile]) -> bool:
    """
    Whether there may be delete files, and files whose rows they hide.
    """
    data = [item for item in manifests if item.content == ManifestContent.DATA]
    deletes = [item for item in manifests if item.content == ManifestContent.DELETES]
    return any(map(_lists_files, data)) and any(map(_lists_files, deletes))


def _check_no_deletes(snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
    if has_deletes(manifests):
        raise NotPossible(
            f"snapshot {snapshot.snapshot_id}, the oldest that is kept, has delete files: the rows that they delete "
            "would be read too",
            hint="Begin at the end, or at a time: `--from end`, `--from 10m`. A batch reader shows the rows of now.",
        )


def _manifests(io: FileIO, snapshot: Snapshot) -> Sequence[ManifestFile]:
    with reading(snapshot.manifest_list):
        return snapshot.manifests(io)


def _entries(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    data = [item for item in manifests if item.content == ManifestContent.DATA]
    for manifest in sorted(data, key=lambda item: item.min_sequence_number):
        with reading(manifest.manifest_path):
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        yield from sorted(entries, key=_number)


def _ordered(entries: Iterator[ManifestEntry]) -> list[ManifestEntry]:
    return sorted(entries, key=_number)


def _number(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0


def _lists_files(manifest: ManifestFile) -> bool:
    """Whether it may list live files; one without counts may."""
    counts = manifest.added_files_count, manifest.existing_files_count
    return None in counts or any(counts)
