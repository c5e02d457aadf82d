"""
Manifest records as bytes: joined, and copied into another manifest, without being decoded and encoded again.

A record of the standard layout is a prefix (status, snapshot id, sequence numbers; spec fields 0, 1, 3, 4) and the
data file. Copying an entry into another manifest changes its prefix only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bookkeeper.format.avro import Block, Cursor, PackedBlock, encode_long
from bookkeeper.format.entries import Entry

T = TypeVar("T")

EXISTING, ADDED, DELETED = 0, 1, 2
#: the largest long of Avro, and of Iceberg's readers in Java
LARGEST = 2**63 - 1
#: smaller blocks are joined before they are compressed
BLOCK_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Prefix:
    """The fields before the data file; None is inherited from the manifest."""

    status: int
    snapshot_id: int | None = None
    sequence: int | None = None
    file_sequence: int | None = None

    def with_inherited(self, snapshot_id: int, sequence: int) -> "Prefix":
        """With the values that records inherit from their manifest (spec, "Sequence Number Inheritance")."""
        return Prefix(
            self.status,
            snapshot_id if self.snapshot_id is None else self.snapshot_id,
            sequence if self.sequence is None else self.sequence,
            sequence if self.file_sequence is None else self.file_sequence,
        )


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one spec, ready to be a manifest; `counts` are (files, rows) by status."""

    blocks: Sequence[Block | PackedBlock]
    counts: dict[int, tuple[int, int]]
    partitions: frozenset[tuple[Any, ...]]
    least_sequence: int | None = None


def read_prefix(raw: bytes) -> Prefix:
    """
    The prefix of a record.
    """
    cursor = Cursor(raw)
    status = cursor.long()
    return Prefix(status, *(cursor.long() if cursor.long() == 1 else None for _ in range(3)))


def write_prefix(prefix: Prefix) -> bytes:
    """
    The bytes of a prefix.
    """
    ids = (prefix.snapshot_id, prefix.sequence, prefix.file_sequence)
    return encode_long(prefix.status) + b"".join(b"\0" if item is None else b"\x02" + encode_long(item) for item in ids)


def group_by_size(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """
    Groups of items of at least BLOCK_BYTES together; an item of that size stays alone.
    """
    total, group = 0, list[T]()
    for item in items:
        if size(item) >= BLOCK_BYTES:
            yield [item]
            continue
        group.append(item)
        total += size(item)
        if total >= BLOCK_BYTES:
            yield group
            total, group = 0, []
    if group:
        yield group


def join_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """
    The same records in blocks of at least BLOCK_BYTES; a block of that size is passed on as it is, still compressed.
    """
    for group in group_by_size(blocks, lambda block: len(block.payload)):
        alone = len(group) == 1
        payload = b"".join([block.payload for block in group])
        yield group[0] if alone else Block(sum([block.count for block in group]), payload)


def of_entries(entries: Sequence[Entry], encode: Callable[[Sequence[Entry]], Sequence[Block]]) -> Records:
    """
    New entries of one spec, which inherit their sequence numbers.
    """
    files = [entry.data_file for entry in entries]
    counts = count_by_status((entry.status, entry.data_file.record_count) for entry in entries)
    return Records(encode(entries), counts, frozenset(file.partition for file in files))


def saturate(total: int) -> int:
    """
    `total`, limited to what readers can hold, 0 to LARGEST: files of old tables may state impossible counts.
    """
    return min(max(total, 0), LARGEST)


def count_by_status(pairs: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """
    (files, rows) by status, of (status, rows) pairs; rows are saturated.
    """
    counts = dict.fromkeys((EXISTING, ADDED, DELETED), (0, 0))
    for status, rows in pairs:
        files, total = counts[status]
        counts[status] = (files + 1, total + rows)
    return {status: (files, saturate(rows)) for status, (files, rows) in counts.items()}
