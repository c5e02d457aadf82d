"""
Manifest records as bytes: joined, and carried into another manifest, without being decoded and encoded again.

A record of the standard layout is a prefix (status, snapshot id, sequence numbers; spec fields 0, 1, 3, 4) and the
data file. Carrying a file on changes the prefix only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.format import avro
from bookkeeper.format.avro import Block, encode_long

EXISTING, ADDED, DELETED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Inherits:
    """What records without ids of their own inherit from their manifest (spec, "Sequence Number Inheritance")."""

    snapshot_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """The fields before the data file, ids filled in."""

    status: int
    snapshot_id: int
    sequence: int
    file_sequence: int


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one layout and spec, ready to be a manifest; counts by status are (files, rows)."""

    blocks: Sequence[Block]
    counts: dict[int, tuple[int, int]]
    partitions: frozenset[tuple[Any, ...]]
    least_sequence: int | None = None


def read_prefix(raw: bytes, inherits: Inherits) -> Prefix:
    """
    The prefix `raw` of a record; ids that are null are inherited.
    """
    cursor = avro.Cursor(raw)
    status = cursor.long()
    snapshot_id, sequence, file_sequence = (_optional(cursor) for _ in range(3))
    return Prefix(
        status,
        inherits.snapshot_id if snapshot_id is None else snapshot_id,
        inherits.sequence if sequence is None else sequence,
        inherits.sequence if file_sequence is None else file_sequence,
    )


def _optional(cursor: avro.Cursor) -> int | None:
    return cursor.long() if cursor.long() == 1 else None


def write_prefix(prefix: Prefix) -> bytes:
    """
    The bytes of a prefix with every id written out.
    """
    ids = (prefix.snapshot_id, prefix.sequence, prefix.file_sequence)
    return encode_long(prefix.status) + b"".join(b"\x02" + encode_long(number) for number in ids)


def blocks_of(records: Sequence[bytes], per_block: int = 1000) -> list[Block]:
    """
    Encoded records as blocks of an Avro file.
    """
    starts = range(0, len(records), per_block)
    parts = (records[start : start + per_block] for start in starts)
    return [Block(len(part), b"".join(part)) for part in parts]


def counted(files: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """
    (files, rows) by status, of (status, rows) pairs.
    """
    counts = dict.fromkeys((EXISTING, ADDED, DELETED), (0, 0))
    for status, rows in files:
        count, total = counts[status]
        counts[status] = (count + 1, total + rows)
    return counts
