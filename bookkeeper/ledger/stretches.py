"""
What is remembered of manifests and of their blocks. Neither ever changes, so what is remembered never lies.

A block is known by its bytes, whatever manifest it lies in: one that loses nothing is carried from manifest to
manifest as it is, and read once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from sys import getsizeof
from typing import Any

from bookkeeper.format.avro import Stored

#: manifests
MOST_RANGES = 100_000
#: of blocks: a million files of 50 columns, some 30 million of three
_MOST_BYTES = 32 * 2**20
#: of memory, measured: a block without its partitions, and a partition's place in a set
_BLOCK_BYTES, _PLACE_BYTES = 500, 64
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Range:
    """Of live files: the smallest upper bound of the retention column, the smallest sequence number."""

    least_upper: bytes | None
    least_sequence: int


#: of no file at all
NOTHING = Range(None, 2**62)


def spanned(files: Iterable[tuple[bytes | None, int]]) -> Range:
    """
    The range of files with these upper bounds and sequence numbers.
    """
    uppers, sequences = set[bytes](), {NOTHING.least_sequence}
    for upper, sequence in files:
        sequences.add(sequence)
        if upper is not None:
            uppers.add(upper)
    return Range(min(uppers, key=_number, default=None), min(sequences))


def united(ranges: Iterable[Range]) -> Range:
    """
    The range of what has these ranges.
    """
    return spanned((item.least_upper, item.least_sequence) for item in ranges)


def _number(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)


@dataclass(frozen=True, slots=True)
class Stretch:
    """
    Of a block: its records, their rows, its decompressed bytes, the files' range and their partitions.

    Every record is EXISTING, with its snapshot id and both sequence numbers written out, so that it means the same
    in each manifest.
    """

    files: int
    rows: int
    size: int
    range: Range
    partitions: frozenset[tuple[Any, ...]]


class Ranges:
    """Remembers the range of each manifest, by its path and the column that was asked for, and stretches of blocks."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], Range] = {}
        self._stretches: dict[bytes, Stretch] = {}
        self._weight = 0
        #: the one asked for last
        self.column: int | None = None

    def get(self, path: str, column: int | None) -> Range | None:
        """The range of the manifest at `path`, or None when it was not read yet."""
        return self._known.get((path, column))

    def put(self, path: str, column: int | None, found: Range) -> None:
        """Remembers a range; the oldest is forgotten when there are too many."""
        if len(self._known) >= MOST_RANGES:
            self._known.pop(next(iter(self._known)))
        self._known[path, column] = found

    def stretch(self, digest: bytes) -> Stretch | None:
        """What is known of the block with this digest."""
        return self._stretches.get(digest)

    def note(self, digest: bytes, found: Stretch) -> None:
        """Remembers a block; the oldest are forgotten when there are too many."""
        if digest in self._stretches:
            return
        self._stretches[digest] = found
        self._weight += _weight(found)
        while self._weight > _MOST_BYTES:
            self._weight -= _weight(self._stretches.pop(next(iter(self._stretches))))


def _weight(found: Stretch) -> int:
    return _BLOCK_BYTES + sum(_PLACE_BYTES + getsizeof(one) + sum(map(getsizeof, one)) for one in found.partitions)


def digests(avro_schema: bytes, column: int | None) -> Callable[[Stored], bytes]:
    """
    The digest of blocks with this schema, of whose files the upper bound of this column is of interest.
    """
    begun = blake2b(b"%d %s" % (-1 if column is None else column, avro_schema), digest_size=_DIGEST_BYTES)

    def digest(block: Stored) -> bytes:
        whole = begun.copy()
        whole.update(b"%d " % block.count)
        whole.update(block.packed)
        return whole.digest()

    return digest
