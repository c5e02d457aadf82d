"""
Reads manifests of the table whole, with every record proven.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from pyiceberg.manifest import ManifestFile

from bookkeeper.errors import BookkeeperError, Reject
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import ADDED, DELETED, EXISTING, count_by_status
from bookkeeper.stores.store import Store, key_in

MANIFEST_BYTES = 2**31


def read_manifest(store: Store, manifest: ManifestFile, column: int | None = None) -> Manifest:
    """
    A data manifest; its rows have the null count and the upper bound of `column`.
    """
    data = store.read(key_in(store, manifest.manifest_path))
    return manifest_format.decode(data, MANIFEST_BYTES, column=column)


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
