"""
Finds whole files that a rule drops, reading only manifests that can hold one.

Manifests never change, so what is remembered of one never lies.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.core.store import Store
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import DELETED, read_prefix
from bookkeeper.format.skim import Row
from bookkeeper.ledger.contents import inherited, read_manifest

_REMEMBERED = 100_000

#: of a data file and its sequence number
Drops = Callable[[Row, int], bool]
Reaches = Callable[[ManifestFile], bool]


@dataclass(frozen=True, slots=True)
class Range:
    """Of a manifest's live files: the smallest upper bound of the retention column, the smallest sequence number."""

    least_upper: bytes | None
    least_sequence: int


@dataclass(frozen=True, slots=True)
class Doomed:
    """A manifest that loses files: what it holds, the places of the records that go, and the range of the others."""

    manifest: ManifestFile
    found: Manifest
    places: frozenset[int]
    column: int | None
    left: Range

    @property
    def dropped(self) -> list[Row]:
        """The records that go."""
        rows = self.found.rows
        return [rows[place] for place in sorted(self.places)]


class Ranges:
    """Remembers the range of each manifest, by its path and the column that was asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], Range] = {}
        #: the one asked for last
        self.column: int | None = None

    def get(self, path: str, column: int | None) -> Range | None:
        """The range of the manifest at `path`, or None when it was not read yet."""
        return self._known.get((path, column))

    def put(self, path: str, column: int | None, found: Range) -> None:
        """Remembers a range; the oldest is forgotten when there are too many."""
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[path, column] = found


def find(
    store: Store,
    manifests: Sequence[ManifestFile],
    column: int | None,
    may_drop: Callable[[Range], bool],
    drops: Drops,
    ranges: Ranges,
    reaches: Reaches = lambda _: True,
) -> list[Doomed]:
    """
    Every manifest that loses files under `drops`; `column` is the field id the ranges are kept for.

    One whose range is not known yet is read only if the rule `reaches` it, by what the manifest list says.
    """
    doomed = []
    ranges.column = column
    for manifest in manifests:
        known = ranges.get(manifest.manifest_path, column)
        hopeless = not reaches(manifest) if known is None else not may_drop(known)
        if manifest.content != ManifestContent.DATA or hopeless:
            continue
        found = read_manifest(store, manifest, column)
        files = list(live(found.rows, manifest))
        ranges.put(manifest.manifest_path, column, spanned(files))
        places = frozenset(place for place, row, sequence in files if drops(row, sequence))
        if places:
            left = spanned([item for item in files if item[0] not in places])
            doomed.append(Doomed(manifest, found, places, column, left))
    return doomed


def live(rows: Sequence[Row], manifest: ManifestFile) -> Iterator[tuple[int, Row, int]]:
    """
    Place, record and sequence number of each live file.
    """
    known: dict[bytes, int | None] = {}
    for place, row in enumerate(rows):
        if row.entry is not None:  # its prefix may lie otherwise
            sequence = _sequence(inherited(row.entry, manifest))
        elif row.prefix in known:
            sequence = known[row.prefix]
        else:
            prefix = read_prefix(row.prefix).inherited(manifest.added_snapshot_id or 0, manifest.sequence_number)
            sequence = known[row.prefix] = None if prefix.status == DELETED else prefix.sequence
        if sequence is not None:
            yield place, row, sequence


def _sequence(entry: Entry) -> int | None:
    return None if entry.status == DELETED else entry.sequence_number or 0


def spanned(files: Sequence[tuple[int, Row, int]]) -> Range:
    """
    The range of live files.
    """
    uppers = {row.upper for _, row, _ in files if row.upper is not None}
    return Range(min(uppers, key=_number, default=None), min((sequence for _, _, sequence in files), default=2**62))


def _number(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)
