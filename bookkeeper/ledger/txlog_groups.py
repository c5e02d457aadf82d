"""
The txlogs of a batch as the records of manifests: joined as bytes, one manifest per schema and spec.

Where the batch has delete files, each record gets its sequence number written out, see `numbers`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.format.avro import Block
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import ADDED, Prefix, Records, count_by_status, join_blocks, write_prefix
from bookkeeper.format.skim import EntrySummary
from bookkeeper.manifests.header import Header


@dataclass(frozen=True, slots=True)
class TxlogGroup:
    """The txlogs of a batch that were written with one schema and one partition spec."""

    schema_id: int
    spec_id: int
    txlogs: Sequence[Txlog]

    def records(self, header: Header) -> Records:
        """All their records; those of our own layout are not decoded."""
        rows = [row for txlog in self.txlogs for row in txlog.rows]
        blocks = list[Block]()
        for txlog in self.txlogs:
            # Records of another layout must not stand beside ours in one manifest.
            blocks += txlog.body.blocks if header.joins(txlog.body.layout) else header.encode_blocks(txlog.entries)
        return _records(blocks, rows)


@dataclass(frozen=True, slots=True)
class NumberedGroup:
    """Manifests of txlogs that get one manifest, and the data sequence number of each record of each."""

    schema_id: int
    spec_id: int
    bodies: Sequence[tuple[Manifest, Sequence[int]]]

    @property
    def rows(self) -> list[EntrySummary]:
        """All their records."""
        return [row for body, _ in self.bodies for row in body.rows]

    def records(self, header: Header) -> Records:
        """
        All their records, none of which inherits its data sequence number.

        One that did would have that of the snapshot, and outlive each delete of its key in the batch. The manifest's
        smallest number is that of its entries: with a larger one, readers would not apply deletes to them.
        """
        blocks = [block for body, numbers in self.bodies for block in _numbered(body, numbers, header)]
        least = min(number for _, numbers in self.bodies for number in numbers)
        return _records(blocks, self.rows, least)


def _records(blocks: Iterable[Block], rows: Sequence[EntrySummary], least: int | None = None) -> Records:
    counts = count_by_status((ADDED, row.record_count) for row in rows)
    return Records(list(join_blocks(blocks)), counts, frozenset(row.partition for row in rows), least)


def _numbered(body: Manifest, numbers: Sequence[int], header: Header) -> Iterator[Block]:
    if not header.joins(body.layout):
        pairs = zip(body.entries, numbers, strict=True)
        yield from header.encode_blocks(replace(entry, sequence_number=number) for entry, number in pairs)
        return
    prefixes = {number: write_prefix(Prefix(ADDED, None, number, None)) for number in {*numbers}}
    following = iter(numbers)
    for block, rows in zip(body.blocks, body.skimmed, strict=True):
        records = [_renumbered(block, row, next(following), prefixes, header) for row in rows]
        yield Block(len(records), b"".join(records))


def _renumbered(block: Block, row: EntrySummary, number: int, prefixes: Mapping[int, bytes], header: Header) -> bytes:
    if not row.prefix and row.entry is not None:  # written with more bytes than it needs
        return header.encode_record(replace(row.entry, sequence_number=number))[0]
    return prefixes[number] + block.payload[row.start + len(row.prefix) : row.end]


def grouped_by_spec(txlogs: Iterable[Txlog]) -> list[TxlogGroup]:
    """
    The txlogs of a batch, grouped by the spec and schema they were written with.
    """
    grouped: dict[tuple[int, int], list[Txlog]] = {}
    for txlog in txlogs:
        grouped.setdefault((txlog.spec_id, txlog.schema_id), []).append(txlog)
    return [TxlogGroup(schema_id, spec_id, group) for (spec_id, schema_id), group in grouped.items()]


def numbered_data(txlogs: Iterable[Txlog], first: Mapping[TxlogName, int]) -> list[NumberedGroup]:
    """
    The data files of a batch with deletes, grouped by spec and schema; `first` says where each txlog's range begins.
    """
    with_data = [txlog for txlog in txlogs if txlog.rows]
    return _grouped(
        (txlog, txlog.spec_id, txlog.body, first[txlog.name], txlog.numbers or [0] * len(txlog.rows))
        for txlog in with_data
    )


def numbered_deletes(txlogs: Iterable[Txlog], first: Mapping[TxlogName, int]) -> list[NumberedGroup]:
    """
    The delete files of a batch, grouped and numbered like its data files.
    """
    pairs = ((txlog, txlog.deletes) for txlog in txlogs if txlog.deletes is not None)
    return _grouped(
        (txlog, deletes.spec_id, deletes.body, first[txlog.name], deletes.numbers) for txlog, deletes in pairs
    )


def _grouped(parts: Iterable[tuple[Txlog, int, Manifest, int, Sequence[int]]]) -> list[NumberedGroup]:
    grouped: dict[tuple[int, int], list[tuple[Manifest, Sequence[int]]]] = {}
    for txlog, spec_id, body, first, relative in parts:
        numbers = [first + number for number in relative]
        grouped.setdefault((spec_id, txlog.schema_id), []).append((body, numbers))
    return [NumberedGroup(schema_id, spec_id, bodies) for (spec_id, schema_id), bodies in grouped.items()]
