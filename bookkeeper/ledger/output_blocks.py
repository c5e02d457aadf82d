"""
Blocks of a manifest to be, each of records of one status, and what is known of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bookkeeper.format import avro
from bookkeeper.format.avro import Block, Stored
from bookkeeper.format.records import ADDED, DELETED, EXISTING, Records, grouped, saturated
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.block_cache import BlockCache, BlockStats, Range, digests, united
from bookkeeper.ledger.manifests import Header


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """One block, EXISTING or DELETED."""

    status: int
    block: Block | Stored
    stretch: BlockStats


class CopiedEntry(NamedTuple):
    """One record on its way into another manifest."""

    status: int
    raw: bytes
    row: EntrySummary
    sequence: int
    partition: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ManifestBody:
    """The records of a manifest to be, and what will be remembered of it."""

    records: Records
    range: Range
    digests: Sequence[bytes]


def pieces(records: Iterable[CopiedEntry]) -> Iterator[OutputBlock]:
    """
    What stays and what goes are blocks of their own, of a good size: what stays is carried as it is from then on.
    """
    sides: dict[int, list[CopiedEntry]] = {EXISTING: [], DELETED: []}
    for record in records:
        sides[record.status].append(record)
    for status, side in sides.items():
        for group in grouped(side, lambda item: len(item.raw)):
            block = Block(len(group), b"".join([item.raw for item in group]))
            files = [(item.row, item.sequence, item.partition) for item in group]
            yield OutputBlock(status, block, BlockStats.of(files, len(block.payload)))


def assembled(found: Iterable[OutputBlock], header: Header, memory: BlockCache) -> ManifestBody:
    """
    The records of a manifest, in blocks of a good size; what stays is remembered block by block, or retention and
    merges would have to read again what was just written.
    """
    kept, gone = list[OutputBlock](), list[OutputBlock]()
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
    return ManifestBody(Records(blocks, counts, partitions, span.least_sequence if kept else None), span, marks)


def _joined(found: Sequence[OutputBlock]) -> list[OutputBlock]:
    """The same, where small ones lie in one block."""
    groups = grouped(found, lambda piece: piece.stretch.size)
    return [group[0] if len(group) == 1 else _one(group) for group in groups]


def _one(group: Sequence[OutputBlock]) -> OutputBlock:
    stretch = BlockStats.joined([piece.stretch for piece in group])
    payload = b"".join([avro.payload_of(piece.block) for piece in group])
    return OutputBlock(group[0].status, Block(stretch.files, payload), stretch)


def _counts(side: Sequence[OutputBlock]) -> tuple[int, int]:
    return sum(piece.stretch.files for piece in side), saturated(sum(piece.stretch.rows for piece in side))
