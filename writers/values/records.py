"""
Parsers of lines: one JSON object or one CSV record a line, as the table's columns by field id.

A line that is no row of the table raises BadLine with its reason.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField

from bookkeeper.errors import SchemaRefused
from writers.values.json_values import converter, text_converter

Row = Mapping[int, Any]
Parse = Callable[[bytes], Row]
NONE: Mapping[str, int] = {}


class BadLine(ValueError):
    """A line that cannot become a row."""


class UnknownColumn(BadLine):
    """A line with a column that the table does not have (yet)."""


def ndjson_parser(schema: Schema, base64_bytes: bool = False, former: Mapping[str, int] = NONE) -> Parse:
    """
    Reads one JSON object with the table's columns as keys; raises BadLine, UnknownColumn.

    `former` are names that columns had before, with their field ids.
    """
    known = _named(schema, former)
    fields = {name: (field.field_id, converter(field.field_type, base64_bytes)) for name, field in known.items()}
    required = _required(schema)
    exact = any(isinstance(schema.find_type(number), DecimalType) for number in schema.field_ids)
    decoder = json.JSONDecoder(parse_float=Decimal if exact else None)

    def parse(line: bytes) -> Row:
        try:
            data = decoder.decode(line.decode("utf-8").strip())
        except (ValueError, RecursionError) as exc:
            raise BadLine(f"not JSON: {exc}") from exc
        if not isinstance(data, dict):
            raise BadLine("not a JSON object")
        return _row(data.items(), fields, required)

    return parse


def csv_parser(
    schema: Schema, header: bytes, delimiter: str = ",", base64_bytes: bool = False, former: Mapping[str, int] = NONE
) -> Parse:
    """
    Reads one CSV record with the columns of `header`; raises BadLine. An unknown column raises SchemaRefused now.

    An empty field is null, or an empty text in a required text column.
    """
    names = _cells(header, delimiter)
    known = _named(schema, former)
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise SchemaRefused(f"CSV header {names}: the table has the columns {', '.join(known)}")
    fields = {name: (field.field_id, text_converter(field.field_type, base64_bytes)) for name, field in known.items()}
    required = _required(schema)
    keeps_empty = {name for name in names if known[name].required and str(known[name].field_type) == "string"}

    def parse(line: bytes) -> Row:
        cells = _cells(line, delimiter)
        if len(cells) != len(names):
            raise BadLine(f"{len(cells)} fields, the header has {len(names)}")
        pairs = zip(names, cells, strict=True)
        return _row(((name, cell if cell or name in keeps_empty else None) for name, cell in pairs), fields, required)

    return parse


def _named(schema: Schema, former: Mapping[str, int]) -> dict[str, NestedField]:
    by_id = {field.field_id: field for field in schema.fields}
    before = {name: by_id[number] for name, number in former.items() if number in by_id}
    return before | {field.name: field for field in schema.fields}


def _cells(line: bytes, delimiter: str) -> list[str]:
    try:
        records = list(csv.reader([line.decode("utf-8").rstrip("\r\n")], delimiter=delimiter, strict=True))
    except (csv.Error, UnicodeDecodeError) as exc:
        raise BadLine(f"not CSV: {exc}") from exc
    return records[0] if records else []


def _row(
    pairs: Iterable[tuple[str, Any]],
    fields: Mapping[str, tuple[int, Callable[[Any], Any]]],
    required: Mapping[int, str],
) -> Row:
    row: dict[int, Any] = {}
    for name, value in pairs:
        if name not in fields:
            raise UnknownColumn(f"the table has no column {name!r}")
        number, convert = fields[name]
        if value is None:
            continue
        try:
            row[number] = convert(value)
        except (ValueError, OverflowError, RecursionError) as exc:
            raise BadLine(f"column {name!r}: {exc}") from exc
    for number, name in required.items():
        if number not in row:
            raise BadLine(f"required column {name!r} is missing")
    return row


def _required(schema: Schema) -> dict[int, str]:
    return {field.field_id: field.name for field in schema.fields if field.required}


def table_of(rows: Sequence[Row], schema: Schema) -> pa.Table:
    """
    The rows as Arrow, with the columns of the schema.
    """
    arrow = schema_to_pyarrow(schema)
    columns = []
    for field, target in zip(schema.fields, arrow, strict=True):
        kind = pa.binary(16) if isinstance(target.type, pa.UuidType) else target.type
        columns.append(pa.array([row.get(field.field_id) for row in rows], kind))
    return pa.Table.from_arrays(columns, names=arrow.names)
