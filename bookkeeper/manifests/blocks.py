"""
Block reuse: a manifest is written anew without reading the blocks that stay as they are (docs/maintain/block-reuse.md).

1. `open_manifest` splits a manifest into its Avro blocks. A block whose statistics are cached is neither decompressed
   nor read, unless the caller wants its records.
2. `copy_entries` makes output blocks of them, each of records of one status. A block that loses nothing and inherits
   nothing is passed on as it is stored. Of other records only the prefix is written anew.
3. `assemble` joins small output blocks, and caches the statistics of those it made.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance".
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bookkeeper.format import avro
from bookkeeper.format.avro import Block, PackedBlock
from bookkeeper.format.layout import Layout
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import (
    ADDED,
    DELETED,
    EXISTING,
    Prefix,
    Records,
    group_by_size,
    read_prefix,
    saturate,
    write_prefix,
)
from bookkeeper.format.skim import EntrySummary
from bookkeeper.manifests.header import Header
from bookkeeper.manifests.stats import BlockStats, Range, StatsCache, range_of, union
from bookkeeper.manifests.walk import Heads, ReadBlock, StoredBlock, Total, live_rows, proven, split, with_inherited

#: the header that a manifest is written anew with; None for a manifest that cannot be written anew
Headers = Callable[[ListedManifest], Header | None]


@dataclass(frozen=True, slots=True)
class UnreadBlock:
    """A block that was not read: it is copied as it is stored."""

    stored: StoredBlock
    digest: bytes
    stats: BlockStats


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """A block with its records; one that has `stats` can be copied as it is."""

    found: ReadBlock
    stats: BlockStats | None = None

    @property
    def entries(self) -> Sequence[EntrySummary]:
        """Its records."""
        return self.found.rows


@dataclass(frozen=True, slots=True)
class OpenManifest:
    """A manifest's blocks, the layout of their records, and the cache of their statistics."""

    manifest: ListedManifest
    layout: Layout | None
    cache: StatsCache
    blocks: Sequence[UnreadBlock | DecodedBlock]

    @property
    def unread_blocks(self) -> list[UnreadBlock]:
        """The blocks that were not read."""
        return [block for block in self.blocks if isinstance(block, UnreadBlock)]

    @property
    def decoded_blocks(self) -> list[DecodedBlock]:
        """The blocks that were read."""
        return [block for block in self.blocks if isinstance(block, DecodedBlock)]

    def read(self, block: UnreadBlock) -> Sequence[EntrySummary]:
        """The records of a block that was not read; raises ManifestCorrupt."""
        return proven(self.manifest.manifest_path, block.stored.rows)


def open_manifest(
    data: bytes, manifest: ListedManifest, header: Header | None, cache: StatsCache, wanted: Callable[[Range], bool]
) -> OpenManifest:
    """
    The manifest whose bytes are `data`; raises ManifestCorrupt.

    Only those of its blocks are read whose range is `wanted`, and those that must be written anew under this header:
    all of them when there is none.
    """

    def opened() -> OpenManifest:
        stored = split(data, cache.column)
        layout = stored[0].skimmer.layout if stored else None
        joins = header is not None and layout is not None and header.joins(layout)
        total = Total()
        blocks = [_opened(block, joins and block.is_packed, cache, wanted, total) for block in stored]
        return OpenManifest(manifest, layout, cache, blocks)

    return proven(manifest.manifest_path, opened)


def _opened(
    block: StoredBlock, joins: bool, cache: StatsCache, wanted: Callable[[Range], bool], total: Total
) -> UnreadBlock | DecodedBlock:
    """A block that `joins` may be copied as it is stored; of those that do not, all records are in memory at once."""
    if not joins:
        found = block.read()
        total.with_block(found.rows)
        return DecodedBlock(found)
    digest = block.digest
    stats = cache.block(digest)
    if stats is not None and not wanted(stats.range):
        return UnreadBlock(block, digest, stats)
    found = block.read()
    stats = stats_of(found.rows, len(found.block.payload))
    if stats is None:
        return DecodedBlock(found)
    cache.put_block(digest, stats)
    return DecodedBlock(found, stats) if wanted(stats.range) else UnreadBlock(block, digest, stats)


def stats_of(entries: Sequence[EntrySummary], size: int) -> BlockStats | None:
    """
    The statistics of a block of these records, `size` bytes in all; None for one that must be written anew.

    That is a block with a record that is not EXISTING, or that inherits its snapshot id or a sequence number.
    """
    sequences: dict[bytes, int] = {}
    for raw in {entry.prefix for entry in entries}:
        if not raw:
            return None
        prefix = read_prefix(raw)
        if prefix.status != EXISTING or None in (prefix.snapshot_id, prefix.sequence, prefix.file_sequence):
            return None
        sequences[raw] = prefix.sequence or 0
    return BlockStats.of([(entry, sequences[entry.prefix], entry.partition) for entry in entries], size)


def select_live(source: OpenManifest, wanted: Callable[[EntrySummary, int], bool]) -> list[dict[int, EntrySummary]]:
    """
    The live files of each block that are `wanted`, by index; of blocks that were read. Their range is cached.
    """
    selected, ranges = list[dict[int, EntrySummary]](), list[Range]()
    for block in source.blocks:
        if isinstance(block, UnreadBlock):
            selected.append({})
            ranges.append(block.stats.range)
            continue
        files = list(live_rows(block.entries, source.manifest))
        selected.append({index: row for index, row, sequence in files if wanted(row, sequence)})
        ranges.append(range_of((row.upper, sequence) for _, row, sequence in files))
    digests = [block.digest for block in source.unread_blocks]
    source.cache.put_manifest(source.manifest.manifest_path, union(ranges), digests)
    return selected


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """A block of a manifest to be, all its records EXISTING or all DELETED."""

    status: int
    block: Block | PackedBlock
    stats: BlockStats


class CopiedEntry(NamedTuple):
    """One record on its way into another manifest."""

    status: int
    raw: bytes
    summary: EntrySummary
    sequence: int
    partition: tuple[Any, ...]


def copy_entries(
    source: OpenManifest, header: Header, deleted: Sequence[Collection[int]] = (), snapshot_id: int = 0
) -> Iterator[OutputBlock]:
    """
    The live records of a manifest as EXISTING, with snapshot id and both sequence numbers written out.

    Those at the indexes in `deleted`, a collection for each block, become DELETED by `snapshot_id`: the job that
    expires that snapshot deletes their files.
    """
    # The partition tuples of one spec have another layout before and after a column of it was widened. And a record
    # whose prefix takes more bytes than it needs has none that can be replaced.
    joins = source.layout is not None and header.joins(source.layout)
    rewrite = _StatusRewrite(source.manifest, snapshot_id)
    for number, block in enumerate(source.blocks):
        indexes = deleted[number] if deleted else ()
        if isinstance(block, UnreadBlock):
            yield OutputBlock(EXISTING, block.stored.stored, block.stats)
        elif block.stats is not None and not indexes:
            yield OutputBlock(EXISTING, block.found.block, block.stats)
        elif joins and all(entry.prefix for entry in block.entries):
            yield from _split_by_status(_copy_bytes(block, rewrite, indexes))
        else:
            yield from _split_by_status(_encode_anew(block, source, header, indexes, snapshot_id))


def _copy_bytes(block: DecodedBlock, rewrite: "_StatusRewrite", deleted: Collection[int]) -> Iterator[CopiedEntry]:
    payload = block.found.block.payload
    for index, entry in enumerate(block.entries):
        rewritten = rewrite.of(entry.prefix, index in deleted)
        if rewritten is not None:
            prefix, raw = rewritten
            record = raw + payload[entry.start + len(entry.prefix) : entry.end]
            yield CopiedEntry(prefix.status, record, entry, prefix.sequence or 0, entry.partition)


def _encode_anew(
    block: DecodedBlock, source: OpenManifest, header: Header, deleted: Collection[int], snapshot_id: int
) -> Iterator[CopiedEntry]:
    decoded = block.found.entries()
    for index, (summary, entry) in enumerate(zip(block.entries, decoded, strict=True)):
        before = with_inherited(entry, source.manifest)
        if before.status != DELETED:
            after = replace(before, status=EXISTING)
            if index in deleted:
                after = replace(before, status=DELETED, snapshot_id=snapshot_id)
            raw, partition = header.encode_record(after)
            yield CopiedEntry(after.status, raw, summary, after.sequence_number or 0, partition)


@dataclass(frozen=True, slots=True)
class ManifestDelete:
    """A manifest that loses files: the header it is written anew with, and for each block its deleted records."""

    source: OpenManifest
    header: Header
    #: by index in its block
    deleted: Sequence[dict[int, EntrySummary]]

    @property
    def manifest(self) -> ListedManifest:
        """As the table's head lists it."""
        return self.source.manifest

    @property
    def dropped(self) -> list[EntrySummary]:
        """The records of all deleted files."""
        return [entry for block in self.deleted for entry in block.values()]


class _StatusRewrite:
    """The prefixes that copied records get; a manifest has few different ones."""

    def __init__(self, manifest: ListedManifest, snapshot_id: int) -> None:
        self._manifest = manifest
        self._snapshot_id = snapshot_id
        self._known: dict[tuple[bytes, bool], tuple[Prefix, bytes] | None] = {}

    def of(self, raw: bytes, delete: bool) -> tuple[Prefix, bytes] | None:
        """The prefix that a record is copied with, and its bytes; None when it was deleted before."""
        if (raw, delete) not in self._known:
            self._known[raw, delete] = self._rewrite(raw, delete)
        return self._known[raw, delete]

    def _rewrite(self, raw: bytes, delete: bool) -> tuple[Prefix, bytes] | None:
        before = Heads(self._manifest).of_prefix(raw)
        if before.status == DELETED:
            return None
        after = replace(before, status=EXISTING)
        if delete:
            after = replace(before, status=DELETED, snapshot_id=self._snapshot_id)
        return after, write_prefix(after)


def _split_by_status(records: Iterable[CopiedEntry]) -> Iterator[OutputBlock]:
    """EXISTING and DELETED records get blocks of their own, so that the EXISTING ones can be reused from then on."""
    by_status: dict[int, list[CopiedEntry]] = {EXISTING: [], DELETED: []}
    for record in records:
        by_status[record.status].append(record)
    for status, copied in by_status.items():
        for group in group_by_size(copied, lambda record: len(record.raw)):
            block = Block(len(group), b"".join([record.raw for record in group]))
            files = [(record.summary, record.sequence, record.partition) for record in group]
            yield OutputBlock(status, block, BlockStats.of(files, len(block.payload)))


@dataclass(frozen=True, slots=True)
class ManifestBody:
    """The records of a manifest to be, and what the cache will hold of it."""

    records: Records
    range: Range
    digests: Sequence[bytes]


def assemble(blocks: Iterable[OutputBlock], header: Header, cache: StatsCache) -> ManifestBody:
    """
    The records of a manifest, in blocks of at least BLOCK_BYTES where there are enough.

    EXISTING blocks are cached here, or retention and merges would have to read what was just written.
    """
    existing, deleted = list[OutputBlock](), list[OutputBlock]()
    for block in blocks:
        (existing if block.status == EXISTING else deleted).append(block)
    existing, deleted = _join_small(existing), _join_small(deleted)
    packed = [avro.pack(block.block) for block in (*deleted, *existing)]
    digests = [header.digest_of(block) for block in packed[len(deleted) :]]
    for digest, block in zip(digests, existing, strict=True):
        cache.put_block(digest, block.stats)
    covered = union(block.stats.range for block in existing)
    counts = {ADDED: (0, 0), DELETED: _count(deleted), EXISTING: _count(existing)}
    partitions = frozenset(partition for block in (*deleted, *existing) for partition in block.stats.partitions)
    records = Records(packed, counts, partitions, covered.least_sequence if existing else None)
    return ManifestBody(records, covered, digests)


def _join_small(blocks: Sequence[OutputBlock]) -> list[OutputBlock]:
    joined = []
    for group in group_by_size(blocks, lambda block: block.stats.size):
        if len(group) == 1:
            joined += group
            continue
        stats = BlockStats.total([block.stats for block in group])
        payload = b"".join([avro.payload_of(block.block) for block in group])
        joined.append(OutputBlock(group[0].status, Block(stats.files, payload), stats))
    return joined


def _count(blocks: Sequence[OutputBlock]) -> tuple[int, int]:
    """Files and rows."""
    return sum(block.stats.files for block in blocks), saturate(sum(block.stats.rows for block in blocks))
