"""
Opens manifests block by block: what is known already is neither decompressed nor read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestFile

from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.avro import Block, Stored
from bookkeeper.format.entries import Entry
from bookkeeper.format.layout import Layout
from bookkeeper.format.records import DELETED, EXISTING, read_prefix
from bookkeeper.format.skim import EntrySummary, Skimmer
from bookkeeper.ledger.block_cache import BlockCache, BlockStats, Range, digests
from bookkeeper.ledger.contents import MANIFEST_BYTES, inherited
from bookkeeper.ledger.manifests import Header
from bookkeeper.stores.store import Store, key_in

#: what a manifest is written anew under; None for those that cannot be
Headers = Callable[[ManifestFile], Header | None]


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block that is carried as it is stored."""

    stored: Stored
    digest: bytes
    stretch: BlockStats


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """A block with its records; with a stretch it can be carried as it is."""

    block: Block
    rows: Sequence[EntrySummary]
    stretch: BlockStats | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A manifest's blocks, what skims their records, and where they are remembered."""

    manifest: ManifestFile
    skims: Skimmer
    memory: BlockCache
    parts: Sequence[StoredBlock | DecodedBlock]

    @property
    def layout(self) -> Layout:
        """How its records lie."""
        return self.skims.layout

    @property
    def known(self) -> list[StoredBlock]:
        """The blocks that were not read."""
        return [part for part in self.parts if isinstance(part, StoredBlock)]

    @property
    def read(self) -> list[DecodedBlock]:
        """The blocks that were read."""
        return [part for part in self.parts if isinstance(part, DecodedBlock)]

    def rows(self, part: StoredBlock) -> Sequence[EntrySummary]:
        """The records of a block that was not read; raises Reject."""
        return _skimmed(part.stored, self.skims).rows


def opened(
    store: Store, manifest: ManifestFile, header: Header | None, memory: BlockCache, wanted: Callable[[Range], bool]
) -> Opened:
    """
    A data manifest; read are those of its blocks whose range is `wanted`, and those that must be written anew under
    this header (all, under none). Raises Reject when it does not decode.
    """
    data = store.read(key_in(store, manifest.manifest_path))
    head = avro.read_header(data)
    skims = manifest_format.skimmer_of(head.meta, memory.column)
    if header is None or not header.joins(skims.layout) or head.meta.get(avro.CODEC) != b"deflate":
        found = manifest_format.decode(data, MANIFEST_BYTES, header=head, column=memory.column)
        return Opened(manifest, skims, memory, [*map(DecodedBlock, found.blocks, found.skimmed)])
    digest = digests(head.meta["avro.schema"])
    stored = avro.stored_blocks(data, head.end)
    return Opened(manifest, skims, memory, [_part(item, digest(item), skims, memory, wanted) for item in stored])


def _part(
    stored: Stored, digest: bytes, skims: Skimmer, memory: BlockCache, wanted: Callable[[Range], bool]
) -> StoredBlock | DecodedBlock:
    known = memory.stretch(digest)
    if known is not None and not wanted(known.range):
        return StoredBlock(stored, digest, known)
    part = _skimmed(stored, skims)
    if part.stretch is not None:
        memory.note(digest, part.stretch)
        if not wanted(part.stretch.range):
            return StoredBlock(stored, digest, part.stretch)
    return part


def _skimmed(stored: Stored, skims: Skimmer) -> DecodedBlock:
    block = Block(stored.count, avro.payload_of(stored), stored.packed)
    rows = manifest_format.proven((block,), skims).rows
    return DecodedBlock(block, rows, stretch_of(rows, len(block.payload)))


def stretch_of(rows: Sequence[EntrySummary], size: int) -> BlockStats | None:
    """
    What is known of a block with these records; None for one that must be written anew.
    """
    sequences: dict[bytes, int] = {}
    for raw in {row.prefix for row in rows}:
        if not raw:
            return None
        prefix = read_prefix(raw)
        if prefix.status != EXISTING or None in (prefix.snapshot_id, prefix.sequence, prefix.file_sequence):
            return None
        sequences[raw] = prefix.sequence or 0
    return BlockStats.of([(row, sequences[row.prefix], row.partition) for row in rows], size)


def live(rows: Sequence[EntrySummary], manifest: ManifestFile) -> Iterator[tuple[int, EntrySummary, int]]:
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
