"""
Blocks of a manifest to be, each of records of one status, and what is known of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bookkeeper.format import avro
from bookkeeper.format.avro import Block, Stored
from bookkeeper.format.records import ADDED, DELETED, EXISTING, Records, grouped, saturated
from bookkeeper.format.skim import Row
from bookkeeper.ledger.manifests import Header
from bookkeeper.ledger.memory import Memory, Range, Stretch, digests, united


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


@dataclass(frozen=True, slots=True)
class Assembled:
    """The records of a manifest to be, and what will be remembered of it."""

    records: Records
    range: Range
    digests: Sequence[bytes]


def pieces(records: Iterable[Carried]) -> Iterator[Piece]:
    """
    What stays and what goes are blocks of their own, of a good size: what stays is carried as it is from then on.
    """
    sides: dict[int, list[Carried]] = {EXISTING: [], DELETED: []}
    for record in records:
        sides[record.status].append(record)
    for status, side in sides.items():
        for group in grouped(side, lambda item: len(item.raw)):
            block = Block(len(group), b"".join([item.raw for item in group]))
            files = [(item.row, item.sequence, item.partition) for item in group]
            yield Piece(status, block, Stretch.of(files, len(block.payload)))


def assembled(found: Iterable[Piece], header: Header, memory: Memory) -> Assembled:
    """
    The records of a manifest, in blocks of a good size; what stays is remembered block by block, or retention and
    merges would have to read again what was just written.
    """
    kept, gone = list[Piece](), list[Piece]()
    for piece in found:
        (kept if piece.status == EXISTING else gone).append(piece)
    kept, gone = _joined(kept), _joined(gone)
    blocks = [avro.stored(piece.block) for piece in (*gone, *kept)]
    digest = digests(header.meta["avro.schema"])
    marks = [digest(block) for block in blocks[len(gone) :]]
    for mark, piece in zip(marks, kept, strict=True):
        memory.note(mark, piece.stretch)
    span = united(piece.stretch.range for piece in kept)
    counts = {ADDED: (0, 0), DELETED: _counts(gone), EXISTING: _counts(kept)}
    partitions = frozenset(one for piece in (*gone, *kept) for one in piece.stretch.partitions)
    return Assembled(Records(blocks, counts, partitions, span.least_sequence if kept else None), span, marks)


def _joined(found: Sequence[Piece]) -> list[Piece]:
    """The same, where small ones lie in one block."""
    groups = grouped(found, lambda piece: piece.stretch.size)
    return [group[0] if len(group) == 1 else _one(group) for group in groups]


def _one(group: Sequence[Piece]) -> Piece:
    stretch = Stretch.joined([piece.stretch for piece in group])
    payload = b"".join([avro.payload_of(piece.block) for piece in group])
    return Piece(group[0].status, Block(stretch.files, payload), stretch)


def _counts(side: Sequence[Piece]) -> tuple[int, int]:
    return sum(piece.stretch.files for piece in side), saturated(sum(piece.stretch.rows for piece in side))
