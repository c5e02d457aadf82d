"""
Manifest lists (Iceberg spec, "Manifest Lists", format v2): encoding of their lines, in Iceberg Java's layout.

A line never changes while its manifest is listed, so its bytes are made once and joined into every list.
"""

import io
import json
from collections.abc import Sequence
from typing import Any

from fastavro import parse_schema, schemaless_writer
from pyiceberg.manifest import ManifestFile

from bookkeeper.format import avro
from bookkeeper.format.avro import Block

_SUMMARY: dict[str, Any] = {
    "type": "record",
    "name": "r508",
    "fields": [
        {"name": "contains_null", "type": "boolean", "field-id": 509},
        {"name": "contains_nan", "type": ["null", "boolean"], "default": None, "field-id": 518},
        {"name": "lower_bound", "type": ["null", "bytes"], "default": None, "field-id": 510},
        {"name": "upper_bound", "type": ["null", "bytes"], "default": None, "field-id": 511},
    ],
}
_COUNTS = (
    ("added_files_count", "int", 504),
    ("existing_files_count", "int", 505),
    ("deleted_files_count", "int", 506),
    ("added_rows_count", "long", 512),
    ("existing_rows_count", "long", 513),
    ("deleted_rows_count", "long", 514),
)
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        {"name": "manifest_path", "type": "string", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "content", "type": "int", "field-id": 517},
        {"name": "sequence_number", "type": "long", "field-id": 515},
        {"name": "min_sequence_number", "type": "long", "field-id": 516},
        {"name": "added_snapshot_id", "type": "long", "field-id": 503},
        *({"name": name, "type": kind, "field-id": number} for name, kind, number in _COUNTS),
        {
            "name": "partitions",
            "type": ["null", {"type": "array", "items": _SUMMARY, "element-id": 508}],
            "default": None,
            "field-id": 507,
        },
        {"name": "key_metadata", "type": ["null", "bytes"], "default": None, "field-id": 519},
    ],
}
_PARSED = parse_schema(SCHEMA)


def encode(snapshot_id: int, parent_id: int | None, sequence: int, lines: Sequence[bytes]) -> bytes:
    """
    The manifest list of a snapshot.
    """
    meta = {
        "avro.schema": json.dumps(SCHEMA).encode(),
        "snapshot-id": str(snapshot_id).encode(),
        "parent-snapshot-id": b"null" if parent_id is None else str(parent_id).encode(),
        "sequence-number": str(sequence).encode(),
        "format-version": b"2",
    }
    return avro.encode(meta, [Block(len(lines), b"".join(lines))])


def encode_line(manifest: ManifestFile) -> bytes:
    """
    The record of one manifest; counts that an old manifest does not give are written as 0.
    """
    record = {item["name"]: getattr(manifest, item["name"]) for item in SCHEMA["fields"]}
    record |= {name: record[name] or 0 for name, _, _ in _COUNTS}
    record["content"] = int(record["content"])
    if record["partitions"] is not None:  # an empty list would say that the spec has no fields, and Java believes it
        names = [item["name"] for item in _SUMMARY["fields"]]
        record["partitions"] = [{name: getattr(found, name) for name in names} for found in record["partitions"]]
    out = io.BytesIO()
    schemaless_writer(out, _PARSED, record)
    return out.getvalue()
