"""
Opens manifests block by block: what is known already is neither decompressed nor read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestFile

from bookkeeper.core.store import Store, key_in
from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.avro import Block, Stored
from bookkeeper.format.entries import Entry
from bookkeeper.format.layout import Layout
from bookkeeper.format.records import DELETED, EXISTING, read_prefix
from bookkeeper.format.skim import Row, Skimmer
from bookkeeper.ledger.contents import MANIFEST_BYTES, inherited
from bookkeeper.ledger.manifests import Header
from bookkeeper.ledger.stretches import Range, Ranges, Stretch, digests, spanned

#: what a manifest is written anew under; None for those that cannot be
Headers = Callable[[ManifestFile], Header | None]


@dataclass(frozen=True, slots=True)
class Known:
    """A block that is carried as it is stored."""

    stored: Stored
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class Read:
    """A block with its records."""

    block: Block
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Opened:
    """A manifest's blocks, and what skims their records."""

    manifest: ManifestFile
    skims: Skimmer
    parts: Sequence[Known | Read]

    @property
    def layout(self) -> Layout:
        """How its records lie."""
        return self.skims.layout

    @property
    def known(self) -> list[Known]:
        """The blocks that were not read."""
        return [part for part in self.parts if isinstance(part, Known)]

    @property
    def read(self) -> list[Read]:
        """The blocks that were read."""
        return [part for part in self.parts if isinstance(part, Read)]

    def rows(self, part: Known) -> Sequence[Row]:
        """The records of a block that was not read; raises Reject."""
        return _skimmed(part.stored, self.skims).rows


def opened(
    store: Store, manifest: ManifestFile, header: Header | None, ranges: Ranges, wanted: Callable[[Range], bool]
) -> Opened:
    """
    A data manifest; read are those of its blocks whose range is `wanted`, and those that must be written anew under
    this header (all, under none). Raises Reject when it does not decode.
    """
    data = store.read(key_in(store, manifest.manifest_path))
    head = avro.read_header(data)
    skims = manifest_format.skimmer_of(head.meta, ranges.column)
    if header is None or not header.joins(skims.layout) or head.meta.get(avro.CODEC) != b"deflate":
        found = manifest_format.decode(data, MANIFEST_BYTES, header=head, column=ranges.column)
        return Opened(manifest, skims, [*map(Read, found.blocks, found.skimmed)])
    digest = digests(head.meta["avro.schema"], ranges.column)
    stored = avro.stored_blocks(data, head.end)
    return Opened(manifest, skims, [_part(item, digest(item), skims, ranges, wanted) for item in stored])


def _part(
    stored: Stored, digest: bytes, skims: Skimmer, ranges: Ranges, wanted: Callable[[Range], bool]
) -> Known | Read:
    known = ranges.stretch(digest)
    if known is not None and not wanted(known.range):
        return Known(stored, known)
    part = _skimmed(stored, skims)
    found = known or _stretch(part)
    if found is not None:
        ranges.note(digest, found)
        if not wanted(found.range):
            return Known(stored, found)
    return part


def _skimmed(stored: Stored, skims: Skimmer) -> Read:
    block = Block(stored.count, stored.payload, stored.packed)
    return Read(block, manifest_format.proven((block,), skims).rows)


def _stretch(part: Read) -> Stretch | None:
    """What is known of a block once it was read; None for one that must be written anew."""
    rows, sequences = part.rows, dict[bytes, int]()
    for raw in {row.prefix for row in rows}:
        if not raw:
            return None
        prefix = read_prefix(raw)
        if prefix.status != EXISTING or None in (prefix.snapshot_id, prefix.sequence, prefix.file_sequence):
            return None
        sequences[raw] = prefix.sequence or 0
    count = sum(row.record_count for row in rows)
    found = spanned((row.upper, sequences[row.prefix]) for row in rows)
    return Stretch(len(rows), count, len(part.block.payload), found, frozenset(row.partition for row in rows))


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
