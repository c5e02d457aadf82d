"""
Avro data files (Iceberg spec, "Appendix A: Avro"): field ids as attributes, counts and bounds taken from Arrow.
"""

import io
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from fastavro import parse_schema, writer
from fastavro.write import Writer as Encoder
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from bookkeeper.format.bounds import Leaf
from bookkeeper.format.open_file import ColumnMetrics, Finished
from bookkeeper.format.partition_tuples import avro_type, compatible
from bookkeeper.format.transforms import physical

log = logging.getLogger(__name__)
_CODECS = {"zstd": "zstandard", "snappy": "snappy", "gzip": "deflate", "none": "null"}
_BLOCK_BYTES = 2**18
_LOOK_BYTES = 2**20

Convert = Callable[[Any], Any]


def avro_schema(schema: Schema) -> dict[str, Any]:
    """
    The Avro schema of a table's data files, with Iceberg's `field-id`, `element-id`, `key-id`, `value-id`.
    """
    return _record("table", schema.as_struct())


def _record(name: str, kind: StructType) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(child) for child in kind.fields]}


def _field(field: NestedField) -> dict[str, Any]:
    written = {"name": compatible(field.name), "field-id": field.field_id}
    if written["name"] != field.name:
        written["iceberg-field-name"] = field.name
    inner = _type(field.field_type, field.field_id)
    if field.required:
        return {**written, "type": inner}
    return {**written, "type": ["null", inner], "default": None}


def _type(kind: IcebergType, number: int) -> Any:
    if isinstance(kind, StructType):
        return _record(f"r{number}", kind)
    if isinstance(kind, ListType):
        items = _type(kind.element_type, kind.element_id)
        items = items if kind.element_required else ["null", items]
        return {"type": "array", "element-id": kind.element_id, "items": items}
    if isinstance(kind, MapType):
        # As an array of pairs for every type of key: an Avro map has only text keys.
        pair = _record(f"k{kind.key_id}_v{kind.value_id}", StructType(kind.key_field, kind.value_field))
        return {"type": "array", "logicalType": "map", "items": pair}
    return avro_type(kind, number)


@lru_cache
def codec(compression: str) -> str:
    """
    Avro's name of the card's compression; deflate, with one warning, where the library for it is not installed.
    """
    name = _CODECS[compression]
    try:
        writer(io.BytesIO(), "int", [0], codec=name)
    except ValueError as exc:
        log.warning("avro codec not installed, deflate instead", extra={"action": "codec", "cause": str(exc)})
        return "deflate"
    return name


class AvroFile:
    """Implements OpenFile."""

    def __init__(self, schema: Schema, leaves: tuple[Leaf, ...], compression: str, target_bytes: int) -> None:
        self.rows = 0
        self._target = target_bytes
        self._metrics = ColumnMetrics(leaves)
        self._out = io.BytesIO()
        self._columns = [(compatible(field.name), _converter(field.field_type)) for field in schema.fields]
        self._encoder = Encoder(self._out, parse_schema(avro_schema(schema)), codec(compression), _BLOCK_BYTES)

    def bytes_to_add(self) -> int:
        """See OpenFile."""
        return max(self._target - self.size(), _LOOK_BYTES)

    def add(self, rows: pa.Table) -> None:
        """See OpenFile."""
        self._metrics.add(rows)
        self.rows += rows.num_rows
        columns = []
        for column, (_, convert) in zip(rows.columns, self._columns, strict=True):
            values = physical(column).to_pylist()
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            columns.append(values)
        names = [name for name, _ in self._columns]
        for row in zip(*columns, strict=True):
            self._encoder.write(dict(zip(names, row, strict=True)))

    def size(self) -> int:
        """See OpenFile."""
        return self._out.tell()

    def memory(self) -> int:
        """See OpenFile."""
        return self._out.tell()

    def full(self) -> bool:
        """See OpenFile."""
        return self.size() >= self._target

    def finish(self) -> Finished:
        """See OpenFile."""
        self._encoder.flush()
        return Finished(self._out.getbuffer(), self.rows, self._metrics.metrics())


def _converter(kind: IcebergType) -> Convert | None:
    """How Arrow's Python value of a nested type becomes the encoder's, or None when it is the same."""
    if isinstance(kind, StructType):
        parts = [
            (child.name, compatible(child.name), _null_safe(_converter(child.field_type))) for child in kind.fields
        ]
        return lambda record: {name: convert(record[source]) for source, name, convert in parts}
    if isinstance(kind, ListType):
        element = _null_safe(_converter(kind.element_type))
        return lambda values: [element(value) for value in values]
    if isinstance(kind, MapType):
        key, value = _null_safe(_converter(kind.key_type)), _null_safe(_converter(kind.value_type))
        return lambda pairs: [{"key": key(first), "value": value(second)} for first, second in pairs]
    return None


def _null_safe(convert: Convert | None) -> Convert:
    if convert is None:
        return _leaf
    return lambda value: None if value is None else convert(value)


def _leaf(value: Any) -> Any:
    # Only UUIDs inside nested types: columns of them went through `physical`.
    return value.bytes if hasattr(value, "bytes") else value
