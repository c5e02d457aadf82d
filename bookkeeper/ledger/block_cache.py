"""
What the bookkeeper remembers of manifests and of their blocks. Neither ever changes, so the cache is never stale.

A block is known by the digest of its bytes, whatever manifest it lies in. A block that loses nothing is copied from
manifest to manifest as it is stored, and read once (docs/block-reuse.md).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from sys import getsizeof
from typing import Any

from bookkeeper.format.avro import PackedBlock
from bookkeeper.format.skim import EntrySummary

#: manifests
MOST_RANGES = 100_000
#: of blocks: half a million live files of 50 columns, some ten million of three
_MOST_BYTES = 16 * 2**20
#: memory, measured: of a block without its partitions, and of a partition's place in a set
_BLOCK_BYTES, _PARTITION_BYTES = 600, 64
#: manifests that are remembered though the table may list them no more
_SLACK = 64
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Range:
    """Of live files: the smallest upper bound of the retention column, the smallest and largest sequence number."""

    least_upper: bytes | None
    least_sequence: int
    greatest_sequence: int

    def has_one_of(self, sequences: Sequence[int]) -> bool:
        """Whether one of these sequence numbers, in ascending order, lies in it."""
        index = bisect_left(sequences, self.least_sequence)
        return index < len(sequences) and sequences[index] <= self.greatest_sequence


#: the range of no file at all
EMPTY = Range(None, 2**62, -1)


def range_of(files: Iterable[tuple[bytes | None, int]]) -> Range:
    """
    The range of files with these upper bounds and sequence numbers.
    """
    uppers, sequences = set[bytes](), set[int]()
    for upper, sequence in files:
        sequences.add(sequence)
        if upper is not None:
            uppers.add(upper)
    return _range(uppers, sequences, sequences)


def _range(uppers: Iterable[bytes], least: Iterable[int], greatest: Iterable[int]) -> Range:
    return Range(
        min(uppers, key=lambda bound: int.from_bytes(bound, "little", signed=True), default=None),
        min(least, default=EMPTY.least_sequence),
        max(greatest, default=EMPTY.greatest_sequence),
    )


def union(ranges: Iterable[Range]) -> Range:
    """
    The range of all files that these ranges cover.
    """
    listed = list(ranges)
    uppers = [item.least_upper for item in listed if item.least_upper is not None]
    return _range(uppers, [item.least_sequence for item in listed], [item.greatest_sequence for item in listed])


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Of the records in a block: how many, their rows, their bytes, the files' range and their partitions."""

    files: int
    rows: int
    size: int
    range: Range
    partitions: frozenset[tuple[Any, ...]]

    @classmethod
    def of(cls, files: Sequence[tuple[EntrySummary, int, tuple[Any, ...]]], size: int) -> "BlockStats":
        """The statistics of files with these sequence numbers and partitions; their records take `size` bytes."""
        rows = sum([entry.record_count for entry, _, _ in files])
        covered = range_of((entry.upper, sequence) for entry, sequence, _ in files)
        return cls(len(files), rows, size, covered, frozenset([partition for _, _, partition in files]))

    @classmethod
    def total(cls, parts: Sequence["BlockStats"]) -> "BlockStats":
        """Of several blocks that become one."""
        files, rows, size = (sum([getattr(part, name) for part in parts]) for name in ("files", "rows", "size"))
        partitions = frozenset(partition for part in parts for partition in part.partitions)
        return cls(files, rows, size, union(part.range for part in parts), partitions)

    @property
    def weight(self) -> int:
        """Bytes of memory that they take."""
        sizes = (getsizeof(partition) + sum(map(getsizeof, partition)) for partition in self.partitions)
        return _BLOCK_BYTES + sum(_PARTITION_BYTES + size for size in sizes)


class BlockCache:
    """
    The ranges of manifests, by path, and the statistics of their blocks, by digest; upper bounds are those of `column`.

    It grows with what is live, and never beyond a bound.
    """

    def __init__(self, column: int | None = None) -> None:
        self.column = column
        self._manifests: dict[str, tuple[Range, Sequence[bytes]]] = {}
        self._blocks: dict[bytes, BlockStats] = {}
        self._weight = 0

    def manifest_range(self, path: str) -> Range | None:
        """The range of the manifest at `path`, or None when it was not read yet."""
        known = self._manifests.get(path)
        return known[0] if known else None

    def put_manifest(self, path: str, covered: Range, digests: Sequence[bytes] = ()) -> None:
        """Remembers a manifest and which blocks it has; the oldest is forgotten when there are too many."""
        if len(self._manifests) >= MOST_RANGES:
            self._manifests.pop(next(iter(self._manifests)))
        self._manifests[path] = covered, digests

    def block_stats(self, digest: bytes) -> BlockStats | None:
        """The statistics of the block with this digest, or None; a block that was asked for is forgotten last."""
        stats = self._blocks.pop(digest, None)
        if stats is not None:
            self._blocks[digest] = stats
        return stats

    def put_block(self, digest: bytes, stats: BlockStats) -> None:
        """
        Remembers a block whose records are all EXISTING, with their snapshot ids and sequence numbers written out.

        Such a block means the same in each manifest. A DELETED record means something in its own snapshot only.
        """
        weight = stats.weight
        if digest in self._blocks or weight > _MOST_BYTES // 10:
            return
        self._blocks[digest] = stats
        self._weight += weight
        while self._weight > _MOST_BYTES:
            self._weight -= self._blocks.pop(next(iter(self._blocks))).weight

    def forget_unlisted(self, paths: Iterable[str]) -> None:
        """Forgets, once enough of them have piled up, manifests other than these, and the blocks of no manifest."""
        listed = set(paths)
        if len(self._manifests) <= 2 * len(listed) + _SLACK:
            return
        self._manifests = {path: known for path, known in self._manifests.items() if path in listed}
        live = {digest for _, digests in self._manifests.values() for digest in digests}
        self._blocks = {digest: stats for digest, stats in self._blocks.items() if digest in live}
        self._weight = sum(stats.weight for stats in self._blocks.values())


def digester(avro_schema: bytes) -> Callable[[PackedBlock], bytes]:
    """
    Makes the digests of blocks with this schema: of the schema, the count of records and the compressed bytes.
    """
    schema_hash = blake2b(avro_schema, digest_size=_DIGEST_BYTES)

    def digest(block: PackedBlock) -> bytes:
        block_hash = schema_hash.copy()
        block_hash.update(b"%d " % block.count)
        block_hash.update(block.packed)
        return block_hash.digest()

    return digest
