"""
Manifests (Iceberg spec, "Manifests", format v2) as bytes: header keys and records.

`decode` proves that every byte belongs to a record; it does not check what the entries mean.
"""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from fastavro import schemaless_writer
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, partition_tuples
from bookkeeper.format.avro import Block, PackedBlock
from bookkeeper.format.decoder import decode_block
from bookkeeper.format.entries import Entry, avro_schema, to_record
from bookkeeper.format.layout import Layout, parse_layout
from bookkeeper.format.remembered import remembered
from bookkeeper.format.skim import EntrySummary, Skimmer, StatusRow, skimmer_for

RECORDS_PER_BLOCK = 1000
MOST_ENTRIES = 1_000_000


@dataclass(eq=False)
class Manifest:
    """A manifest's blocks, and the skimmed records of each block, with the upper bounds of `column`."""

    layout: Layout
    blocks: tuple[Block, ...] = field(repr=False)
    skimmed: tuple[tuple[EntrySummary, ...], ...] = field(repr=False)
    column: int | None = None
    #: every record, skimmed
    rows: tuple[EntrySummary, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows = self.skimmed[0] if len(self.skimmed) == 1 else tuple(chain.from_iterable(self.skimmed))

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every record, decoded in full."""
        return tuple(entry for block in self.blocks for entry in decode_block(block, self.layout))


def header(schema: Schema, spec: PartitionSpec, content: bytes = b"data") -> dict[str, bytes]:
    """
    Iceberg's header keys of a manifest of data or `deletes`, format v2, in Java's layout.
    """
    return {**_header(schema, spec), "content": content}


@remembered
def _header(schema: Schema, spec: PartitionSpec) -> dict[str, bytes]:
    """The keys of both contents: 0.08 ms for a few columns, and a writer needs them for each publish."""
    fields = json.loads(spec.model_dump_json())["fields"]
    return {
        "avro.schema": json.dumps(avro_schema(partition_tuples.avro_fields(spec, schema))).encode(),
        "schema": schema.model_dump_json().encode(),
        "schema-id": str(schema.schema_id).encode(),
        "partition-spec": json.dumps(fields).encode(),
        "partition-spec-id": str(spec.spec_id).encode(),
        "format-version": b"2",
    }


def encode(meta: Mapping[str, bytes], entries: Iterable[Entry]) -> bytes:
    """
    A manifest of `entries` under the header `meta`.
    """
    return avro.encode(meta, encode_blocks(meta["avro.schema"], entries))


def encode_blocks(avro_schema: bytes, entries: Iterable[Entry]) -> list[Block]:
    """
    `entries` as blocks of records.
    """
    records = [encode_record(avro_schema, entry) for entry in entries]
    starts = range(0, len(records), RECORDS_PER_BLOCK)
    parts = [records[start : start + RECORDS_PER_BLOCK] for start in starts]
    return [Block(len(part), b"".join(part)) for part in parts]


def encode_record(avro_schema: bytes, entry: Entry) -> bytes:
    """
    One record.
    """
    out = io.BytesIO()
    schemaless_writer(out, parse_layout(avro_schema).schema, to_record(entry))
    return out.getvalue()


def decode(
    data: bytes,
    most_bytes: int,
    most_entries: int = MOST_ENTRIES,
    header: avro.Header | None = None,
    column: int | None = None,
) -> Manifest:
    """
    The manifest in `data`, every record proven; raises TxlogCorrupt or TxlogTooLarge, whatever the bytes are.

    `header` is the header, if it was read already; the rows have the null count and the upper bound of `column`.
    """
    meta, blocks = avro.decode(data, most_bytes, header)
    return prove(blocks, skimmer_of(meta, column), most_entries)


def skimmer_of(meta: Mapping[str, bytes], column: int | None = None) -> Skimmer:
    """
    The skimmer of a manifest with this header; raises TxlogCorrupt.
    """
    if "avro.schema" not in meta:
        raise TxlogCorrupt("the header has no avro.schema")
    return skimmer_for(meta["avro.schema"], column)


def with_status(block: Block | PackedBlock, skims: Skimmer, *statuses: int) -> list[StatusRow]:
    """
    The records of these statuses in a block, every record proven; raises TxlogCorrupt or TxlogTooLarge.
    """
    if block.count > MOST_ENTRIES:
        raise TxlogTooLarge(f"{block.count} entries in a block, at most {MOST_ENTRIES} are allowed")
    return skims.with_status(avro.payload_of(block), block.count, *statuses)


def prove(blocks: tuple[Block, ...], skims: Skimmer, most_entries: int = MOST_ENTRIES) -> Manifest:
    """
    The manifest of these blocks, every record proven; raises TxlogCorrupt or TxlogTooLarge.
    """
    for block in blocks:
        if block.count > len(block.payload):
            raise TxlogCorrupt(f"{block.count} records in {len(block.payload)} bytes")
    count = sum([block.count for block in blocks])
    if count > most_entries:
        raise TxlogTooLarge(f"{count} entries, at most {most_entries} are allowed")
    skimmed = tuple([skims.rows(block.payload, block.count) for block in blocks])
    return Manifest(skims.layout, blocks, skimmed, skims.column)
