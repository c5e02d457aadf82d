"""
The new files of rewrites as the records of manifests: one manifest per schema and spec.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.format.avro import Block
from bookkeeper.format.records import ADDED, Prefix, Records, count_by_status, join_blocks, write_prefix
from bookkeeper.manifests.header import Header


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Rewrites whose new files were written with one schema and one partition spec."""

    schema_id: int
    spec_id: int
    rewrites: Sequence[Rewrite]

    def records(self, header: Header) -> Records:
        """
        Their new files, each with the data sequence number of its rewrite, and the smallest of those for the manifest.

        Snapshot id and file sequence number stay null, and are inherited from the commit (Iceberg spec, "Sequence
        Number Inheritance"). A manifest without its smallest number would let Java drop equality deletes that are
        still needed.
        """
        rows = [row for rewrite in self.rewrites for row in rewrite.added]
        return Records(
            list(join_blocks(block for rewrite in self.rewrites for block in _added_blocks(rewrite, header))),
            count_by_status((ADDED, row.record_count) for row in rows),
            frozenset(row.partition for row in rows),
            min(rewrite.sequence_number for rewrite in self.rewrites),
        )


def _added_blocks(rewrite: Rewrite, header: Header) -> Iterator[Block]:
    # A prefix that takes more bytes than it needs is not known apart from what follows it.
    if not header.joins(rewrite.body.layout) or not all(row.prefix for row in rewrite.added):
        entries = (rewrite.body.entries[index] for index in rewrite.added_indexes)
        yield from header.encode_blocks(replace(entry, sequence_number=rewrite.sequence_number) for entry in entries)
        return
    prefix = write_prefix(Prefix(ADDED, None, rewrite.sequence_number, None))
    for block, rows in rewrite.added_blocks:
        if rows:
            records = [prefix + block.payload[row.start + len(row.prefix) : row.end] for row in rows]
            yield Block(len(records), b"".join(records))


def grouped_rewrites(rewrites: Iterable[Rewrite]) -> list[RewriteGroup]:
    """
    Rewrites that have new files, grouped by the spec and schema those were written with.
    """
    grouped: dict[tuple[int, int], list[Rewrite]] = {}
    for rewrite in rewrites:
        if rewrite.added_indexes:
            grouped.setdefault((rewrite.spec_id, rewrite.schema_id), []).append(rewrite)
    return [RewriteGroup(schema_id, spec_id, group) for (spec_id, schema_id), group in grouped.items()]
