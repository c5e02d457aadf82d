"""
Splits rows by the table's partition spec; a file never holds rows of two partitions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType

from bookkeeper.format.bounds import unscaled
from bookkeeper.format.partition_tuples import avro_type, folder
from bookkeeper.format.transforms import column_at, physical, transformed


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one partition: `values` as its tuple in a manifest, `path` as a folder name without surprises."""

    values: tuple[Any, ...]
    path: str
    rows: pa.Table


class Splitter:
    """Splits rows by one partition spec."""

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._fields = [_Field(field, schema) for field in spec.fields]

    def split(self, rows: pa.Table) -> Iterator[Part]:
        """
        The rows by partition, in their order within each; nothing is copied when there is only one partition.
        """
        if not self._fields:
            yield Part((), "", rows)
            return
        keys = [field.encoded(rows) for field in self._fields]
        codes = _combined(keys)
        if len(codes.unique()) <= 1:
            yield from [self._part(keys, 0, rows)] if rows.num_rows else []
            return
        order, start = pc.sort_indices(codes), 0  # stable
        for end in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
            # Each part gets memory of its own: one slow partition must not keep all the others' rows alive.
            yield self._part(keys, order[start].as_py(), rows.take(order.slice(start, end - start)))
            start = end

    def _part(self, keys: list[pa.DictionaryArray], row: int, rows: pa.Table) -> Part:
        raw = [key.dictionary[key.indices[row].as_py()].as_py() for key in keys]
        pairs = list(zip(self._fields, raw, strict=True))
        values = tuple(_tuple_value(field.result, value) for field, value in pairs)
        return Part(values, "/".join(field.folder(value) for field, value in pairs), rows)


class _Field:
    def __init__(self, field: PartitionField, schema: Schema) -> None:
        self._field = field
        self._source: IcebergType = schema.find_type(field.source_id)
        self._path = str(schema.find_column_name(field.source_id)).split(".")
        self.result = field.transform.result_type(self._source)

    def encoded(self, rows: pa.Table) -> pa.DictionaryArray:
        column = physical(column_at(rows, self._path))
        values = transformed(column, self._field.transform, self._source).combine_chunks()
        return values.dictionary_encode(null_encoding="encode")

    def folder(self, value: Any) -> str:
        return folder(self._field, self._source, value)


def _combined(keys: list[pa.DictionaryArray]) -> pa.Array:
    codes = keys[0].indices.cast(pa.int64())
    for key in keys[1:]:
        codes = pc.add(pc.multiply(codes, max(len(key.dictionary), 1)), key.indices.cast(pa.int64()))
        # Renumbered, so that the product of many keys stays small.
        codes = codes.dictionary_encode().indices.cast(pa.int64())
    return codes


def _tuple_value(kind: IcebergType, value: Any) -> Any:
    """A physical value as a partition tuple holds it: decimals as the bytes of an Avro fixed."""
    if value is None or not isinstance(kind, DecimalType):
        return value
    size = avro_type(kind, 0)["size"]
    return unscaled(value, kind.scale).to_bytes(size, "big", signed=True)
