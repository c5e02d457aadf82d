"""
The txlogs of a batch as the records of manifests: joined as bytes, one manifest per schema and spec.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bookkeeper.core.txlog import Txlog
from bookkeeper.format.avro import Block
from bookkeeper.format.records import ADDED, Records, count_by_status, join_blocks
from bookkeeper.ledger.manifests import Header


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
        return Records(
            list(join_blocks(blocks)),
            count_by_status((ADDED, row.record_count) for row in rows),
            frozenset(row.partition for row in rows),
        )


def grouped_by_spec(txlogs: Iterable[Txlog]) -> list[TxlogGroup]:
    """
    The txlogs of a batch, grouped by the spec and schema they were written with.
    """
    grouped: dict[tuple[int, int], list[Txlog]] = {}
    for txlog in txlogs:
        grouped.setdefault((txlog.spec_id, txlog.schema_id), []).append(txlog)
    return [TxlogGroup(schema_id, spec_id, group) for (spec_id, schema_id), group in grouped.items()]
