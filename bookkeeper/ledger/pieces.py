"""
Blocks of a manifest to be, each of records of one status, and what is known of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bookkeeper.format import avro
from bookkeeper.format.avro import Block, Stored
from bookkeeper.format.records import DELETED, EXISTING, Records, counted, grouped
from bookkeeper.format.skim import Row
from bookkeeper.ledger.manifests import Header
from bookkeeper.ledger.stretches import Range, Ranges, Stretch, digests, spanned, united


@dataclass(frozen=True, slots=True)
class Piece:
    """One block, EXISTING or DELETED."""

    status: int
    block: Block | Stored
    stretch: Stretch


class Carried(NamedTuple):
    """One record on its way into another manifest."""

    status: int
    raw: bytes
    row: Row
    sequence: int
    partition: tuple[Any, ...]


def pieces(records: Iterable[Carried]) -> Iterator[Piece]:
    """
    What stays and what goes are blocks of their own: what stays is carried as it is from then on.
    """
    sides: dict[int, list[Carried]] = {EXISTING: [], DELETED: []}
    for record in records:
        sides[record.status].append(record)
    for status, side in sides.items():
        if side:
            block = Block(len(side), b"".join([item.raw for item in side]))
            rows = sum(item.row.record_count for item in side)
            span = spanned((item.row.upper, item.sequence) for item in side)
            partitions = frozenset(item.partition for item in side)
            yield Piece(status, block, Stretch(len(side), rows, len(block.payload), span, partitions))


def assembled(found: Iterable[Piece], header: Header, ranges: Ranges) -> tuple[Records, Range]:
    """
    The records of a manifest, in blocks of a good size, and the range of its live files; both are remembered block
    by block, or retention and merges would have to read again what was just written.
    """
    sides: dict[int, list[Piece]] = {DELETED: [], EXISTING: []}
    for piece in found:
        sides[piece.status].append(piece)
    gone, kept = (list(map(_one, grouped(side, lambda piece: piece.stretch.size))) for side in sides.values())
    digest = digests(header.meta["avro.schema"], ranges.column)
    for stored, stretch in kept:
        ranges.note(digest(stored), stretch)
    span = united(stretch.range for _, stretch in kept)
    counts = counted(()) | {DELETED: _counts(gone), EXISTING: _counts(kept)}
    partitions = frozenset(values for _, stretch in (*gone, *kept) for values in stretch.partitions)
    blocks, least = [stored for stored, _ in (*gone, *kept)], span.least_sequence if kept else None
    return Records(blocks, counts, partitions, least), span


def _one(group: Sequence[Piece]) -> tuple[Stored, Stretch]:
    if len(group) == 1:
        return avro.stored(group[0].block), group[0].stretch
    found = [piece.stretch for piece in group]
    payload = b"".join([piece.block.payload for piece in group])
    files, rows = sum(item.files for item in found), sum(item.rows for item in found)
    partitions = frozenset(values for item in found for values in item.partitions)
    stretch = Stretch(files, rows, len(payload), united(item.range for item in found), partitions)
    return avro.stored(Block(files, payload)), stretch


def _counts(side: Sequence[tuple[Stored, Stretch]]) -> tuple[int, int]:
    return sum(stretch.files for _, stretch in side), sum(stretch.rows for _, stretch in side)
