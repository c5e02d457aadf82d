"""
Rows of an Avro data file, each column and each field inside of one found by its field id.

A name in the file is the one that the field had when the file was written, in letters that Avro allows.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any

import fastavro
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

_Convert = Callable[[Any], Any]
#: of the columns with these field ids the values that are known, by field id
Absent = Callable[[set[int]], Mapping[int, Any]]


def rows(source: IO[bytes], wanted: Schema, absent: Absent) -> Iterator[dict[str, Any]]:
    """
    Each row by the names in `wanted`; `absent` is asked for the columns that the file does not have, and others are
    null. Raises ValueError for a file without field ids.
    """
    reader = fastavro.reader(source)
    named = dict[str, Any]()
    fastavro.parse_schema(reader.writer_schema, named)
    ids = set(_by_id(reader.writer_schema))
    constants = absent({column.field_id for column in wanted.fields} - ids)
    convert = _record(reader.writer_schema, wanted.as_struct(), named, constants)
    return map(convert, reader)


def _by_id(schema: Any) -> dict[int, Any]:
    try:
        return {field["field-id"]: field for field in schema["fields"]}
    except KeyError as exc:
        raise ValueError("it has fields without an Iceberg field id") from exc


def _record(schema: Any, kind: StructType, named: Mapping[str, Any], constants: Mapping[int, Any] = {}) -> _Convert:
    known, parts = _by_id(schema), list[tuple[str, str | None, _Convert]]()
    for child in kind.fields:
        field = known.get(child.field_id)
        if field is None:
            parts.append((child.name, None, partial(_same, constants.get(child.field_id))))
        else:
            parts.append((child.name, field["name"], _null_safe(field["type"], child.field_type, named)))

    def convert(record: Mapping[str, Any]) -> dict[str, Any]:
        return {name: act(None if source is None else record[source]) for name, source, act in parts}

    return convert


def _null_safe(schema: Any, kind: IcebergType, named: Mapping[str, Any]) -> _Convert:
    convert = _converter(_present(schema, named), kind, named)
    return lambda value: None if value is None else convert(value)


def _converter(schema: Any, kind: IcebergType, named: Mapping[str, Any]) -> _Convert:
    """How a value that is not null becomes the one of Arrow."""
    if isinstance(kind, StructType):
        return _record(schema, kind, named)
    if isinstance(kind, ListType):
        element = _null_safe(schema["items"], kind.element_type, named)
        return lambda values: [element(value) for value in values]
    if isinstance(kind, MapType) and schema["type"] == "map":
        of_value = _null_safe(schema["values"], kind.value_type, named)
        return lambda pairs: [(key, of_value(value)) for key, value in pairs.items()]
    if isinstance(kind, MapType):  # an array of pairs, for any type of key
        pair = {field["name"]: field["type"] for field in _present(schema["items"], named)["fields"]}
        of_key = _null_safe(pair["key"], kind.key_type, named)
        of_value = _null_safe(pair["value"], kind.value_type, named)
        return lambda pairs: [(of_key(item["key"]), of_value(item["value"])) for item in pairs]
    return _itself


def _present(schema: Any, named: Mapping[str, Any]) -> Any:
    """The type of a value that is not null."""
    if isinstance(schema, list):
        schema = next((item for item in schema if item != "null"), "null")
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _present(schema["type"], named)
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _itself(value: Any) -> Any:
    return value


def _same(constant: Any, value: Any) -> Any:
    return constant
