"""
The records of a manifest: which blocks it has, what is in each, and what a record inherits.

Two walkers read records: the skimmer, which proves them and gives summaries (`rows`, and faster of some statuses
`with_status`), and the full decoder (`entries`). A manifest of another layout is read by pyiceberg, see `read_blocks`.
Spec: "Manifest Entry Fields", "Sequence Number Inheritance".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from bookkeeper.errors import ManifestCorrupt, Reject, TxlogTooLarge
from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.avro import Block, PackedBlock
from bookkeeper.format.decoder import decode_block, decode_one
from bookkeeper.format.entries import Entry
from bookkeeper.format.layout import Layout
from bookkeeper.format.manifest import MOST_ENTRIES
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import DELETED, Prefix, read_prefix
from bookkeeper.format.skim import EntrySummary, Skimmer, StatusRow
from bookkeeper.manifests import foreign
from bookkeeper.manifests.cache import Digest, digester
from bookkeeper.manifests.fetch import MOST_BYTES

T = TypeVar("T")


class Walked(Protocol):
    """A block of a manifest that can be read; `digest` stands for what it says."""

    @property
    def digest(self) -> bytes:
        """The digest of the block: blocks with the same digest have the same records."""

    def rows(self) -> Sequence[EntrySummary]:
        """The block's records, each of them proven; raises Reject."""

    def with_status(self, *statuses: int) -> Sequence[StatusRow]:
        """The block's records with one of these statuses, all of them proven; raises Reject."""


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block that was read: its bytes, decompressed, and its records."""

    block: Block
    rows: Sequence[EntrySummary]
    layout: Layout

    def entry(self, row: EntrySummary) -> Entry:
        """One record of the block, decoded in full; raises Reject."""
        return row.entry or decode_one(self.block.payload, row.start, self.layout)[0]

    def entries(self) -> list[Entry]:
        """All records of the block, decoded in full; raises Reject."""
        return decode_block(self.block, self.layout)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block as it lies in its manifest: nothing of it was decompressed or read."""

    stored: Block | PackedBlock
    skimmer: Skimmer
    digest_of: Digest

    @property
    def digest(self) -> bytes:
        """See Walked."""
        return self.digest_of(self.stored)

    @property
    def is_packed(self) -> bool:
        """Whether it is compressed by deflate, as we write blocks."""
        return self.stored.packed is not None

    def read(self) -> ReadBlock:
        """The block with its records; raises Reject."""
        packed = self.stored.packed
        block = Block(self.stored.count, avro.payload_of(self.stored), packed)
        return ReadBlock(block, manifest_format.prove((block,), self.skimmer).rows, self.skimmer.layout)

    def rows(self) -> Sequence[EntrySummary]:
        """See Walked."""
        return self.read().rows

    def with_status(self, *statuses: int) -> Sequence[StatusRow]:
        """See Walked."""
        return manifest_format.with_status(self.stored, self.skimmer, *statuses)


@dataclass(frozen=True, slots=True)
class ForeignManifest:
    """A manifest of another layout, as one block."""

    data: bytes
    manifest: ListedManifest

    @property
    def digest(self) -> bytes:
        """See Walked."""
        inherited = self.manifest.partition_spec_id, self.manifest.sequence_number, self.manifest.added_snapshot_id
        about = b"%d %d %d " % inherited
        return digester(about, b"foreign")(Block(0, self.data))

    def rows(self) -> Sequence[EntrySummary]:
        """See Walked."""
        return foreign.read_rows(self.data, self.manifest)

    def with_status(self, *statuses: int) -> Sequence[StatusRow]:
        """See Walked."""
        return [(row.head.snapshot_id, row.path, row.size_bytes) for row in self.rows() if row.head.status in statuses]


def split(data: bytes, column: int | None = None, about: bytes = b"") -> list[StoredBlock]:
    """
    The blocks of a manifest. The rows of each have the null count and the upper bound of `column`; its digest stands
    for what it says of `about`. Raises Reject.
    """
    header = avro.read_header(data)
    skimmer, codec = manifest_format.skimmer_of(header.meta, column), header.meta.get(avro.CODEC, b"null")
    blocks: Sequence[Block | PackedBlock]
    if codec == b"deflate":
        blocks = avro.packed_blocks(data, header.end)
    else:
        blocks = avro.read_blocks(data, header.end, codec, MOST_BYTES)
    digest_of = digester(about + header.meta["avro.schema"], codec)
    return [StoredBlock(block, skimmer, digest_of) for block in blocks]


class Total:
    """The records and bytes of the blocks of one manifest that were read: together they have a bound."""

    def __init__(self) -> None:
        self._records = self._bytes = 0

    def with_block(self, rows: Sequence[EntrySummary]) -> Sequence[EntrySummary]:
        """The rows of one more block; raises TxlogTooLarge."""
        self._records += len(rows)
        self._bytes += rows[-1].end if rows else 0
        if self._records > MOST_ENTRIES or self._bytes > MOST_BYTES:
            raise TxlogTooLarge(f"at most {MOST_ENTRIES} entries in {MOST_BYTES} bytes are read of a manifest")
        return rows


def read_in_turn(data: bytes) -> Iterator[ReadBlock]:
    """
    The blocks of a manifest, each read when it is asked for; raises Reject.
    """
    total = Total()
    for stored in split(data):
        block = stored.read()
        total.with_block(block.rows)
        yield block


def proven(location: str, read: Callable[[], T]) -> T:
    """
    What `read` returns; raises ManifestCorrupt, with the location, where it raises Reject.
    """
    try:
        return read()
    except Reject as exc:
        raise ManifestCorrupt(f"{location[:300]} does not decode: {exc}") from exc


def read_blocks(data: bytes, manifest: ListedManifest, read: Callable[[Iterable[Walked]], T]) -> T:
    """
    What `read` returns for the blocks of a manifest; for one of another layout, as pyiceberg reads it, once more.

    Raises ManifestCorrupt.
    """
    try:
        return read(split(data))
    except Reject:
        return read([ForeignManifest(data, manifest)])


class Heads:
    """What stands before the data file in records of a manifest, with what they inherit filled in."""

    def __init__(self, manifest: ListedManifest) -> None:
        self._snapshot, self._sequence = manifest.added_snapshot_id, manifest.sequence_number
        #: whether one of those that were asked for inherits a sequence number
        self.inherited = False
        #: a manifest has few different ones
        self._known: dict[bytes, Prefix] = {}

    def of(self, row: EntrySummary) -> Prefix:
        """The status, snapshot id and sequence numbers of a record."""
        if row.entry is not None:  # its prefix may have another layout
            return self._filled(row.head)
        found = self._known.get(row.prefix)
        if found is None:
            found = self._known[row.prefix] = self.of_prefix(row.prefix)
        return found

    def of_prefix(self, raw: bytes) -> Prefix:
        """The status, snapshot id and sequence numbers in the bytes of a prefix."""
        return self._filled(read_prefix(raw))

    def _filled(self, prefix: Prefix) -> Prefix:
        self.inherited = self.inherited or prefix.sequence is None or prefix.file_sequence is None
        return prefix.with_inherited(self._snapshot, self._sequence)


def live_rows(rows: Iterable[EntrySummary], manifest: ListedManifest) -> Iterator[tuple[int, EntrySummary, int]]:
    """
    Index, record and sequence number of each live file.
    """
    heads = Heads(manifest)
    for index, row in enumerate(rows):
        head = heads.of(row)
        if head.status != DELETED:
            yield index, row, head.sequence or 0


def with_inherited(entry: Entry, manifest: ListedManifest) -> Entry:
    """
    `entry` with what it inherits from its manifest.
    """
    head = Prefix(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    whole = head.with_inherited(manifest.added_snapshot_id, manifest.sequence_number)
    return replace(
        entry,
        snapshot_id=whole.snapshot_id,
        sequence_number=whole.sequence,
        file_sequence_number=whole.file_sequence,
    )
