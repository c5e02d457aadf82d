"""
What is remembered of manifests and of their blocks. Neither ever changes, so what is remembered never lies.

A block is known by its bytes, whatever manifest it lies in: one that loses nothing is carried from manifest to
manifest as it is, and read once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from sys import getsizeof
from typing import Any

from bookkeeper.format.avro import Stored
from bookkeeper.format.skim import EntrySummary

#: manifests
MOST_RANGES = 100_000
#: of blocks: half a million live files of 50 columns, some ten million of three
_MOST_BYTES = 16 * 2**20
#: of memory, measured: a block without its partitions, and a partition's place in a set
_BLOCK_BYTES, _PLACE_BYTES = 600, 64
#: manifests that are remembered though they may be gone
_SLACK = 64
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
class BlockStats:
    """Of the records in a block: how many, their rows, their bytes, the files' range and their partitions."""

    files: int
    rows: int
    size: int
    range: Range
    partitions: frozenset[tuple[Any, ...]]

    @classmethod
    def of(cls, files: Sequence[tuple[EntrySummary, int, tuple[Any, ...]]], size: int) -> "BlockStats":
        """Of files with these sequence numbers and partitions, in so many bytes."""
        rows = sum([row.record_count for row, _, _ in files])
        span = spanned((row.upper, sequence) for row, sequence, _ in files)
        return cls(len(files), rows, size, span, frozenset([partition for _, _, partition in files]))

    @classmethod
    def joined(cls, parts: Sequence["BlockStats"]) -> "BlockStats":
        """Of all these together."""
        files, rows, size = (sum([getattr(part, name) for part in parts]) for name in ("files", "rows", "size"))
        partitions = frozenset(one for part in parts for one in part.partitions)
        return cls(files, rows, size, united(part.range for part in parts), partitions)


class BlockCache:
    """
    Remembers the ranges of manifests, by path, and what there is in their blocks, by digest; all of one `column`.

    So it grows with what is live, and never beyond a bound.
    """

    def __init__(self, column: int | None = None) -> None:
        self.column = column
        self._ranges: dict[str, tuple[Range, Sequence[bytes]]] = {}
        self._stretches: dict[bytes, BlockStats] = {}
        self._weight = 0

    def range(self, path: str) -> Range | None:
        """The range of the manifest at `path`, or None when it was not read yet."""
        known = self._ranges.get(path)
        return known[0] if known else None

    def put(self, path: str, found: Range, digests: Sequence[bytes] = ()) -> None:
        """Remembers a manifest and which blocks it has; the oldest is forgotten when there are too many."""
        if len(self._ranges) >= MOST_RANGES:
            self._ranges.pop(next(iter(self._ranges)))
        self._ranges[path] = found, digests

    def stretch(self, digest: bytes) -> BlockStats | None:
        """What is known of the block with this digest."""
        found = self._stretches.pop(digest, None)
        if found is not None:
            self._stretches[digest] = found  # what is asked for last is forgotten last
        return found

    def note(self, digest: bytes, found: BlockStats) -> None:
        """
        Remembers a block whose records are all EXISTING, with their snapshot ids and sequence numbers written out: it
        means the same in each manifest. (DELETED ones mean something in their own snapshot only.)
        """
        if digest in self._stretches or _weight(found) > _MOST_BYTES // 10:
            return
        self._stretches[digest] = found
        self._weight += _weight(found)
        while self._weight > _MOST_BYTES:
            self._weight -= _weight(self._stretches.pop(next(iter(self._stretches))))

    def keep(self, paths: Iterable[str]) -> None:
        """Forgets what is in no manifest of these, now and then."""
        listed = set(paths)
        if len(self._ranges) <= 2 * len(listed) + _SLACK:
            return
        self._ranges = {path: known for path, known in self._ranges.items() if path in listed}
        live = {digest for _, digests in self._ranges.values() for digest in digests}
        self._stretches = {digest: found for digest, found in self._stretches.items() if digest in live}
        self._weight = sum(map(_weight, self._stretches.values()))


def _weight(found: BlockStats) -> int:
    return _BLOCK_BYTES + sum(_PLACE_BYTES + getsizeof(one) + sum(map(getsizeof, one)) for one in found.partitions)


def digests(avro_schema: bytes) -> Callable[[Stored], bytes]:
    """
    The digest of blocks with this schema.
    """
    begun = blake2b(avro_schema, digest_size=_DIGEST_BYTES)

    def digest(block: Stored) -> bytes:
        whole = begun.copy()
        whole.update(b"%d " % block.count)
        whole.update(block.packed)
        return whole.digest()

    return digest
