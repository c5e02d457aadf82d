"""
Manifests (Iceberg spec, "Manifests", format v2) as bytes: header keys and entries.

`decode` proves that every byte belongs to a record; it says nothing about what the entries mean.
"""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.core.errors import TxlogCorrupt
from bookkeeper.format import avro, partition
from bookkeeper.format.entries import Entry, avro_schema, from_record, to_record
from bookkeeper.format.layout import Layout, parse_layout

RECORDS_PER_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest's header (Iceberg's keys and ours) and its entries."""

    meta: Mapping[str, bytes]
    layout: Layout
    entries: tuple[Entry, ...] = field(repr=False)


def header(schema: Schema, spec: PartitionSpec) -> dict[str, bytes]:
    """
    Iceberg's header keys of a data manifest, format v2, in Java's layout.
    """
    fields = json.loads(spec.model_dump_json())["fields"]
    return {
        "avro.schema": json.dumps(avro_schema(partition.avro_fields(spec, schema))).encode(),
        "schema": schema.model_dump_json().encode(),
        "schema-id": str(schema.schema_id).encode(),
        "partition-spec": json.dumps(fields).encode(),
        "partition-spec-id": str(spec.spec_id).encode(),
        "format-version": b"2",
        "content": b"data",
    }


def encode(meta: Mapping[str, bytes], entries: Iterable[Entry]) -> bytes:
    """
    A manifest of `entries` under the header `meta`.
    """
    schema = parse_layout(meta["avro.schema"]).schema
    records = [_encode_record(schema, entry) for entry in entries]
    starts = range(0, len(records), RECORDS_PER_BLOCK)
    parts = [records[start : start + RECORDS_PER_BLOCK] for start in starts]
    return avro.encode(meta, [avro.Block(len(part), b"".join(part)) for part in parts])


def _encode_record(schema: Any, entry: Entry) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, schema, to_record(entry))
    return out.getvalue()


def decode(data: bytes, most_bytes: int) -> Manifest:
    """
    The manifest in `data`; raises TxlogCorrupt or TxlogTooLarge, whatever the bytes are.
    """
    container = avro.decode(data, most_bytes)
    if "avro.schema" not in container.meta:
        raise TxlogCorrupt("the header has no avro.schema")
    layout = parse_layout(container.meta["avro.schema"])
    entries = [entry for block in container.blocks for entry in _decode_block(block, layout)]
    return Manifest(container.meta, layout, tuple(entries))


def _decode_block(block: avro.Block, layout: Layout) -> list[Entry]:
    stream = io.BytesIO(block.payload)
    if block.count > len(block.payload):
        raise TxlogCorrupt(f"{block.count} records in {len(block.payload)} bytes")
    try:
        entries = [from_record(_read(stream, layout)) for _ in range(block.count)]
    except (EOFError, ValueError, TypeError, LookupError, OverflowError, MemoryError) as exc:
        raise TxlogCorrupt(f"a record does not decode: {exc or type(exc).__name__}") from exc
    if stream.tell() != len(block.payload):
        raise TxlogCorrupt(f"{len(block.payload) - stream.tell()} bytes behind the last record of a block")
    return entries


def _read(stream: io.BytesIO, layout: Layout) -> Any:
    return schemaless_reader(stream, layout.schema, None)
