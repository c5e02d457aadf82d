"""
Reads manifest lists of the table, and manifests whole, with every record proven.
"""

import io
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import cast

from pyiceberg.io import InputFile, InputStream
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import BookkeeperError, PathRefused, Reject
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.manifest_list import decode_manifests
from bookkeeper.format.records import ADDED, DELETED, EXISTING, count_by_status
from bookkeeper.ledger.commit_request import Unsent
from bookkeeper.stores.store import Reading, Store, key_in

MANIFEST_BYTES = 2**31


def read_list(store: Store, table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """
    The manifests of a snapshot, through the store: one request, and errors of ours.

    pyiceberg reads S3 with the C++ client of pyarrow, which once ended the process when a connection broke. A list that
    lies outside of the store is read as pyiceberg reads it, and one that our decoder does not take (format v1, another
    codec) is decoded by pyiceberg. Raises what reading and decoding raise.
    """
    try:
        key = key_in(store, snapshot.manifest_list)
    except PathRefused:
        return list(snapshot.manifests(table.io))
    data = store.read(key, MANIFEST_BYTES)
    try:
        return decode_manifests(data, MANIFEST_BYTES)
    except Reject:
        return list(read_manifest_list(_ReadFile(data, snapshot.manifest_list)))


class _ReadFile(InputFile):
    """An object that was read."""

    def __init__(self, data: bytes, location: str) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        """See InputFile."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """See InputFile."""
        return cast(InputStream, io.BytesIO(self._data))


class ReadTogether:
    """Manifests that were read at once, from a store; raises what reading one of them raised."""

    def __init__(self, store: Store | Unsent, group: Sequence[ManifestFile]) -> None:
        self.url = store.url
        self._found = store.read_many([key_in(store, manifest.manifest_path) for manifest in group])

    def read(self, key: str, most: int | None = None) -> bytes:
        """As in Store."""
        found = self._found[key]
        if isinstance(found, BookkeeperError):
            raise found
        return found


def read_manifest(store: Reading, manifest: ManifestFile) -> Manifest:
    """
    A data manifest; raises Reject for one that does not decode.
    """
    return manifest_format.decode(store.read(key_in(store, manifest.manifest_path)), MANIFEST_BYTES)


def find_unreadable(store: Store, manifests: Iterable[ManifestFile]) -> list[str]:
    """
    The paths of manifests that will never be read: outside the table's metadata, or in a form we do not know.
    """
    found = []
    for manifest in manifests:
        try:
            read_manifest(store, manifest)
        except Reject:
            found.append(manifest.manifest_path)
        except BookkeeperError:
            continue  # the next try may read it
    return found


def live_entries(store: Store, manifest: ManifestFile) -> list[Entry]:
    """
    The live entries of a data manifest, ids and sequence numbers filled in as the spec's inheritance says.
    """
    found = read_manifest(store, manifest).entries
    return [with_inherited(entry, manifest) for entry in found if entry.status != DELETED]


def with_inherited(entry: Entry, manifest: ManifestFile) -> Entry:
    """
    `entry` with what it inherits from its manifest (spec, "Sequence Number Inheritance").
    """
    snapshot_id = entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id
    sequence = entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number
    file_sequence = entry.file_sequence_number if entry.file_sequence_number is not None else manifest.sequence_number
    return replace(entry, snapshot_id=snapshot_id, sequence_number=sequence, file_sequence_number=file_sequence)


def with_counts(store: Store, manifest: ManifestFile) -> ManifestFile:
    """
    `manifest` with its counts; they are optional in lists that a v1 writer made, so then its entries are counted.
    """
    if None not in (manifest.added_files_count, manifest.existing_files_count):
        return manifest
    entries = read_manifest(store, manifest).entries
    counts = count_by_status((entry.status, entry.data_file.record_count) for entry in entries)
    filled = copy(manifest)
    for status, place in ((ADDED, 7), (EXISTING, 8), (DELETED, 9)):
        filled[place], filled[place + 3] = counts[status]
    return filled
