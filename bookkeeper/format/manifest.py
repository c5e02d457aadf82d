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

from bookkeeper.core.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, partition
from bookkeeper.format.entries import Entry, avro_schema, from_record, to_record
from bookkeeper.format.layout import Layout, parse_layout

RECORDS_PER_BLOCK = 1000
MOST_ENTRIES = 1_000_000
#: of one record: decoding takes about 100 times its bytes for a moment; 10,000 columns with all metrics fit
RECORD_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest's header (Iceberg's keys and ours) and its entries."""

    meta: Mapping[str, bytes]
    layout: Layout
    entries: tuple[Entry, ...] = field(repr=False)
    blocks: int = 1


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


def decode(data: bytes, most_bytes: int, most_entries: int = MOST_ENTRIES) -> Manifest:
    """
    The manifest in `data`; raises TxlogCorrupt or TxlogTooLarge, whatever the bytes are.
    """
    container = avro.decode(data, most_bytes)
    if "avro.schema" not in container.meta:
        raise TxlogCorrupt("the header has no avro.schema")
    layout = parse_layout(container.meta["avro.schema"])
    count = sum(block.count for block in container.blocks)
    if count > most_entries:
        raise TxlogTooLarge(f"{count} entries, at most {most_entries} are allowed")
    entries = [entry for block in container.blocks for entry in _decode_block(block, layout)]
    return Manifest(container.meta, layout, tuple(entries), len(container.blocks))


def _decode_block(block: avro.Block, layout: Layout) -> list[Entry]:
    if block.count > len(block.payload):
        raise TxlogCorrupt(f"{block.count} records in {len(block.payload)} bytes")
    entries: list[Entry] = []
    at = 0
    while len(entries) < block.count:
        window = block.payload[at : at + RECORD_BYTES]
        at += _decode_window(window, block.count - len(entries), layout, entries)
    if at != len(block.payload):
        raise TxlogCorrupt(f"{len(block.payload) - at} bytes behind the last record of a block")
    return entries


def _decode_window(window: bytes, most: int, layout: Layout, entries: list[Entry]) -> int:
    """Appends the records that lie whole in `window`, at least one; returns the bytes they fill."""
    stream, used = io.BytesIO(window), 0
    for number in range(most):
        try:
            entry = from_record(_read(stream, layout))
        except (EOFError, ValueError, TypeError, LookupError, OverflowError, MemoryError) as exc:
            if number == 0:
                raise TxlogCorrupt(f"a record does not decode: {str(exc) or type(exc).__name__}") from exc
            break  # cut by the window, or broken: the next window starts with it and tells
        _check_ints(entry, layout)
        entries.append(entry)
        used = stream.tell()
    return used


def _check_ints(entry: Entry, layout: Layout) -> None:
    for value, (_, kind) in zip(entry.data_file.partition, layout.partition, strict=True):
        # An Avro int has 32 bits, but the reader takes 64: Java would fail on what we then write.
        if kind == "int" and value is not None and not -(2**31) <= value < 2**31:
            raise TxlogCorrupt(f"partition value {value} is no int")


def _read(stream: io.BytesIO, layout: Layout) -> Any:
    return schemaless_reader(stream, layout.schema, None)
