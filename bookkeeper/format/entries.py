"""
Manifest entries (Iceberg spec, "Manifests", format v2) and the Avro layout of their records.

We write Iceberg Java's layout: partition fields optional, field 143 present. We read any layout whose fields
have the ids and types of the spec, whatever their names, order and optionality.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ADDED = 1
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

#: field id -> (name, Avro type, required), in Java's order (spec: `data_file` struct)
DATA_FILE: dict[int, tuple[str, Any, bool]] = {
    134: ("content", "int", True),
    100: ("file_path", "string", True),
    101: ("file_format", "string", True),
    102: ("partition", "partition", True),
    103: ("record_count", "long", True),
    104: ("file_size_in_bytes", "long", True),
    108: ("column_sizes", (117, 118, "long"), False),
    109: ("value_counts", (119, 120, "long"), False),
    110: ("null_value_counts", (121, 122, "long"), False),
    137: ("nan_value_counts", (138, 139, "long"), False),
    125: ("lower_bounds", (126, 127, "bytes"), False),
    128: ("upper_bounds", (129, 130, "bytes"), False),
    131: ("key_metadata", "bytes", False),
    132: ("split_offsets", [133, "long"], False),
    135: ("equality_ids", [136, "int"], False),
    140: ("sort_order_id", "int", False),
    143: ("referenced_data_file", "string", False),
}
#: field id -> (name, Avro type, required) (spec: `manifest_entry`)
ENTRY: dict[int, tuple[str, Any, bool]] = {
    0: ("status", "int", True),
    1: ("snapshot_id", "long", False),
    3: ("sequence_number", "long", False),
    4: ("file_sequence_number", "long", False),
    2: ("data_file", "data_file", True),
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """
    One data file as a manifest describes it.

    `partition` holds the physical Avro values in the order of the spec's fields; the maps go from field id to
    bytes, counts or single-value serialized bounds.
    """

    path: str
    file_format: str
    partition: tuple[Any, ...]
    record_count: int
    size_bytes: int
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    key_metadata: bytes | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a manifest, unchecked: the tick checks what a txlog may hold."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    content: int
    equality_ids: tuple[int, ...] | None
    referenced_data_file: str | None
    data_file: DataFile


def added(file: DataFile) -> Entry:
    """
    The entry of a txlog: ids and sequence numbers null, so that they are inherited.
    """
    return Entry(ADDED, None, None, None, DATA, None, None, file)


def avro_schema(partition_fields: list[dict[str, Any]]) -> dict[str, Any]:
    """
    The Avro schema of a manifest in Java's layout; `partition_fields` from `partition_tuples.avro_fields`.
    """
    partition = {"type": "record", "name": "r102", "fields": partition_fields}
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [_field(number, *spec, partition) for number, spec in DATA_FILE.items()],
    }
    fields = [_field(number, *spec, data_file) for number, spec in ENTRY.items()]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def _field(number: int, name: str, kind: Any, required: bool, record: dict[str, Any]) -> dict[str, Any]:
    written = _avro_type(kind, record)
    if required:
        return {"name": name, "type": written, "field-id": number}
    return {"name": name, "type": ["null", written], "default": None, "field-id": number}


def _avro_type(kind: Any, record: dict[str, Any]) -> Any:
    if isinstance(kind, tuple):
        key_id, value_id, value = kind
        fields = [
            {"name": "key", "type": "int", "field-id": key_id},
            {"name": "value", "type": value, "field-id": value_id},
        ]
        pair = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
        return {"type": "array", "items": pair, "logicalType": "map"}
    if isinstance(kind, list):
        return {"type": "array", "items": kind[1], "element-id": kind[0]}
    return record if kind in ("partition", "data_file") else kind


def to_record(entry: Entry) -> dict[str, Any]:
    """
    The entry as the dictionary that an Avro writer of `avro_schema` takes, keyed by the spec's names.
    """
    file = entry.data_file
    data = {
        "content": entry.content,
        "file_path": file.path,
        "file_format": file.file_format,
        "partition": {f"p{index}": value for index, value in enumerate(file.partition)},
        "record_count": file.record_count,
        "file_size_in_bytes": file.size_bytes,
        "key_metadata": file.key_metadata,
        "split_offsets": _listed(file.split_offsets),
        "equality_ids": _listed(entry.equality_ids),
        "sort_order_id": file.sort_order_id,
        "referenced_data_file": entry.referenced_data_file,
    }
    for name in (
        "column_sizes",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
    ):
        values = getattr(file, name)
        data[name] = [{"key": key, "value": values[key]} for key in sorted(values)] or None
    return {
        "status": entry.status,
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
        "data_file": data,
    }


def _listed(values: tuple[int, ...] | None) -> list[int] | None:
    return None if values is None else list(values)


def from_record(record: Mapping[str, Any]) -> Entry:
    """
    The entry in a dictionary keyed by the spec's names; missing optional fields are null.
    """
    data = record["data_file"]
    return Entry(
        record["status"],
        record.get("snapshot_id"),
        record.get("sequence_number"),
        record.get("file_sequence_number"),
        data.get("content", DATA),
        _tuple(data.get("equality_ids")),
        data.get("referenced_data_file"),
        _data_file(data),
    )


def _data_file(data: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=data["file_path"],
        file_format=data["file_format"],
        partition=tuple(data["partition"].values()),
        record_count=data["record_count"],
        size_bytes=data["file_size_in_bytes"],
        column_sizes=_mapped(data.get("column_sizes")),
        value_counts=_mapped(data.get("value_counts")),
        null_value_counts=_mapped(data.get("null_value_counts")),
        nan_value_counts=_mapped(data.get("nan_value_counts")),
        lower_bounds=_mapped(data.get("lower_bounds")),
        upper_bounds=_mapped(data.get("upper_bounds")),
        split_offsets=_tuple(data.get("split_offsets")),
        sort_order_id=data.get("sort_order_id"),
        key_metadata=data.get("key_metadata"),
    )


def _tuple(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _mapped(pairs: list[dict[str, Any]] | None) -> dict[int, Any]:
    return {pair["key"]: pair["value"] for pair in pairs or ()}
