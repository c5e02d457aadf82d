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
    """A manifest's blocks, and how its records lie."""

    manifest: ManifestFile
    layout: Layout
    parts: Sequence[Known | Read]


def opened(
    store: Store, manifest: ManifestFile, header: Header, ranges: Ranges, wanted: Callable[[Range], bool]
) -> Opened:
    """
    A data manifest; read are those of its blocks whose range is `wanted`, and those that must be written anew under
    this header. Raises Reject when it does not decode.
    """
    data = store.read(key_in(store, manifest.manifest_path))
    head = avro.read_header(data)
    skims = manifest_format.skimmer_of(head.meta, ranges.column)
    if not header.joins(skims.layout) or head.meta.get(avro.CODEC) != b"deflate":
        found = manifest_format.decode(data, MANIFEST_BYTES, header=head, column=ranges.column)
        return Opened(manifest, skims.layout, [*map(Read, found.blocks, found.skimmed)])
    digest = digests(head.meta["avro.schema"], ranges.column)
    stored = avro.stored_blocks(data, head.end)
    return Opened(manifest, skims.layout, [_part(item, digest(item), skims, ranges, wanted) for item in stored])


def _part(
    stored: Stored, digest: bytes, skims: Skimmer, ranges: Ranges, wanted: Callable[[Range], bool]
) -> Known | Read:
    known = ranges.stretch(digest)
    if known is not None and not wanted(known.range):
        return Known(stored, known)
    block = Block(stored.count, stored.payload, stored.packed)
    rows = manifest_format.proven((block,), skims).rows
    found = known or _stretch(block, rows)
    if found is not None:
        ranges.note(digest, found)
        if not wanted(found.range):
            return Known(stored, found)
    return Read(block, rows)


def _stretch(block: Block, rows: Sequence[Row]) -> Stretch | None:
    """What is known of a block once it was read; None for one that must be written anew."""
    sequences: dict[bytes, int] = {}
    for raw in {row.prefix for row in rows}:
        if not raw:
            return None
        prefix = read_prefix(raw)
        if prefix.status != EXISTING or None in (prefix.snapshot_id, prefix.sequence, prefix.file_sequence):
            return None
        sequences[raw] = prefix.sequence or 0
    count = sum(row.record_count for row in rows)
    found = spanned((row.upper, sequences[row.prefix]) for row in rows)
    return Stretch(len(rows), count, len(block.payload), found, frozenset(row.partition for row in rows))


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
