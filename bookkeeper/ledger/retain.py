"""
Finds whole files that a rule drops, decoding only manifests that can hold one.

Manifests never change, so what is remembered of one never lies.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.core.store import Store, key_in
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import ADDED, DELETED, EXISTING, counted

_MANIFEST_BYTES = 2**31
_REMEMBERED = 100_000

Drops = Callable[[DataFile, int], bool]


@dataclass(frozen=True, slots=True)
class Range:
    """Of a manifest's live files: the smallest upper bound of the retention column, the smallest sequence number."""

    least_upper: bytes | None
    least_sequence: int


@dataclass(frozen=True, slots=True)
class Doomed:
    """A manifest that loses files: entries that stay, entries that go (both with inherited ids filled in)."""

    manifest: ManifestFile
    kept: tuple[Entry, ...]
    dropped: tuple[Entry, ...]


class Ranges:
    """Remembers the range of each manifest, by its path and the column that was asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], Range] = {}

    def get(self, manifest: ManifestFile, column: int | None) -> Range | None:
        """The manifest's range, or None when it was not decoded yet."""
        return self._known.get((manifest.manifest_path, column))

    def put(self, manifest: ManifestFile, column: int | None, found: Range) -> None:
        """Remembers a range; the oldest is forgotten when there are too many."""
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[manifest.manifest_path, column] = found


def read_manifest(store: Store, manifest: ManifestFile) -> Manifest:
    """
    A data manifest, every record proven.
    """
    return manifest_format.decode(store.read(key_in(store, manifest.manifest_path)), _MANIFEST_BYTES)


def live_entries(store: Store, manifest: ManifestFile) -> list[Entry]:
    """
    The live entries of a data manifest, ids and sequence numbers filled in as the spec's inheritance says.
    """
    found = read_manifest(store, manifest).entries
    return [inherited(entry, manifest) for entry in found if entry.status != DELETED]


def counted_out(store: Store, manifest: ManifestFile) -> ManifestFile:
    """
    `manifest` with its counts; they are optional in lists that a v1 writer made, so then its entries are counted.
    """
    if None not in (manifest.added_files_count, manifest.existing_files_count):
        return manifest
    entries = read_manifest(store, manifest).entries
    counts = counted((entry.status, entry.data_file.record_count) for entry in entries)
    filled = copy(manifest)
    for status, place in ((ADDED, 7), (EXISTING, 8), (DELETED, 9)):
        filled[place], filled[place + 3] = counts[status]
    return filled


def inherited(entry: Entry, manifest: ManifestFile) -> Entry:
    """
    `entry` with what it inherits from its manifest (spec, "Sequence Number Inheritance").
    """
    snapshot_id = entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id
    sequence = entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number
    file_sequence = entry.file_sequence_number if entry.file_sequence_number is not None else manifest.sequence_number
    return replace(entry, snapshot_id=snapshot_id, sequence_number=sequence, file_sequence_number=file_sequence)


def find(
    store: Store,
    manifests: Sequence[ManifestFile],
    column: int | None,
    may_drop: Callable[[Range], bool],
    drops: Drops,
    ranges: Ranges,
) -> list[Doomed]:
    """
    Every manifest that loses files under `drops`; `column` is the field id the ranges are kept for.
    """
    doomed = []
    for manifest in manifests:
        known = ranges.get(manifest, column)
        if manifest.content != ManifestContent.DATA or (known is not None and not may_drop(known)):
            continue
        entries = live_entries(store, manifest)
        ranges.put(manifest, column, _range(entries, column))
        dropped = tuple(entry for entry in entries if drops(entry.data_file, entry.sequence_number or 0))
        if dropped:
            kept = tuple(entry for entry in entries if not drops(entry.data_file, entry.sequence_number or 0))
            doomed.append(Doomed(manifest, kept, dropped))
    return doomed


def _range(entries: Sequence[Entry], column: int | None) -> Range:
    bounds = [entry.data_file.upper_bounds for entry in entries]
    uppers = [found[column] for found in bounds if column is not None and column in found]
    least = min(uppers, key=lambda value: int.from_bytes(value, "little", signed=True), default=None)
    return Range(least, min((entry.sequence_number or 0 for entry in entries), default=2**62))


def tombstones(doomed: Doomed, snapshot_id: int) -> list[Entry]:
    """
    The entries of the manifest that takes the doomed one's place.
    """
    kept = [replace(entry, status=EXISTING) for entry in doomed.kept]
    return kept + [replace(entry, status=DELETED, snapshot_id=snapshot_id) for entry in doomed.dropped]
