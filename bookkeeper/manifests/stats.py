"""
What a commit must know of blocks and manifests that it does not read: how much is in them, and which range they cover.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Any

from bookkeeper.format.skim import EntrySummary
from bookkeeper.manifests.cache import BlockCache

#: of blocks: half a million live files of 50 columns, some ten million of three
MOST_BYTES = 16 * 2**20
#: memory, measured: of a block without its partitions, and of a partition's place in a set
_BLOCK_BYTES, _PARTITION_BYTES = 600, 64


@dataclass(frozen=True, slots=True)
class Range:
    """Of live files: the smallest upper bound of the retention column, the smallest and largest sequence number."""

    least_upper: bytes | None
    least_sequence: int
    greatest_sequence: int

    def has_one_of(self, sequences: Sequence[int]) -> bool:
        """Whether one of these sequence numbers, in ascending order, lies in the range."""
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
        """The statistics of several blocks that become one."""
        files, rows, size = (sum([getattr(part, name) for part in parts]) for name in ("files", "rows", "size"))
        partitions = frozenset(partition for part in parts for partition in part.partitions)
        return cls(files, rows, size, union(part.range for part in parts), partitions)

    @property
    def weight(self) -> int:
        """The memory that the statistics take, bytes."""
        sizes = (getsizeof(partition) + sum(map(getsizeof, partition)) for partition in self.partitions)
        return _BLOCK_BYTES + sum(_PARTITION_BYTES + size for size in sizes)


class StatsCache(BlockCache[str, Range, BlockStats]):
    """
    The range of each manifest and the statistics of each block; upper bounds are those of `column`.

    Only a block whose records are all EXISTING, with their snapshot ids and sequence numbers written out, has
    statistics: it means the same in each manifest. A DELETED record means something in its own snapshot only.
    """

    def __init__(self, column: int | None = None) -> None:
        super().__init__(lambda stats: stats.weight, MOST_BYTES)
        self.column = column
