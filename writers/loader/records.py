"""
Parsers of lines: one JSON object or one CSV record a line, as the table's columns by field id.

A line that is no row of the table raises BadLine with its reason.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, NestedField

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.input_files import csv_cells
from bookkeeper.format.json_decoder import check_keys, line_decoder
from writers.values.json_values import converter, text_converter

Row = Mapping[int, Any]
Parse = Callable[[bytes], Row]
#: makes a row out of values by column name; with names of columns, only of these
ToRow = Callable[[Mapping[str, Any], Collection[str] | None], Row]
NONE: Mapping[str, int] = {}


class BadLine(ValueError):
    """A line that cannot become a row."""


class UnknownColumn(BadLine):
    """A line with a column that the table does not have (yet)."""


def ndjson_parser(
    schema: Schema, base64_bytes: bool = False, former: Mapping[str, int] = NONE, ignore_unknown: bool = False
) -> Parse:
    """
    Reads one JSON object with the table's columns as keys; raises BadLine, UnknownColumn.

    `former` are names that columns had before, with their field ids. `ignore_unknown`: keys that are no columns are
    passed over, also inside structs.
    """
    known = columns_by_name(schema, former)
    fields = {
        name: (field.field_id, converter(field.field_type, base64_bytes, ignore_unknown))
        for name, field in known.items()
    }
    required = _required(schema)
    decode = ndjson_decoder(schema, ignore_unknown)

    def parse(line: bytes) -> Row:
        data = decode(line)
        if not isinstance(data, dict):
            raise BadLine("not a JSON object")
        try:
            check_keys(data, fields)
        except ValueError as exc:
            raise BadLine(str(exc)) from exc
        pairs = ((name, value) for name, value in data.items() if name in fields) if ignore_unknown else data.items()
        return _row(pairs, fields, required)

    return parse


def ndjson_decoder(schema: Schema, ignore_unknown: bool = False) -> Callable[[bytes], Any]:
    """
    Reads one JSON value; raises BadLine.
    """
    decimals = any(isinstance(schema.find_type(number), DecimalType) for number in schema.field_ids)
    return line_decoder(decimals, ignore_unknown, BadLine)


def row_maker(
    schema: Schema,
    convert: Callable[[IcebergType], Callable[[Any], Any]],
    former: Mapping[str, int] = NONE,
    ignore_unknown: bool = False,
) -> ToRow:
    """
    Makes rows of decoded values, each converted by what `convert` gives for its type.

    It raises BadLine, UnknownColumn.
    """
    known = columns_by_name(schema, former)
    fields = {name: (field.field_id, convert(field.field_type)) for name, field in known.items()}
    required = _required(schema)

    def to_row(data: Mapping[str, Any], only: Collection[str] | None) -> Row:
        needed = required if only is None else {fields[name][0]: name for name in only}
        known = [(name, value) for name, value in data.items() if name in fields or not ignore_unknown]
        return _row(known, fields, needed)

    return to_row


def csv_parser(
    schema: Schema,
    header: bytes,
    delimiter: str = ",",
    base64_bytes: bool = False,
    former: Mapping[str, int] = NONE,
    nulls: Sequence[str] = (),
    ignore_unknown: bool = False,
) -> Parse:
    """
    Reads one CSV record with the columns of `header`; raises BadLine. An unknown column raises SchemaRefused now.

    An empty field is null, or an empty text in a required text column; so is a field that is one of `nulls`, in any
    column.
    """
    columns = csv_columns(schema, header, delimiter, former, ignore_unknown)
    fields = {
        field.name: (field.field_id, text_converter(field.field_type, base64_bytes, ignore_unknown))
        for field in columns
        if field is not None
    }
    required = _required(schema)
    decode = csv_decoder(columns, delimiter, nulls)

    def parse(line: bytes) -> Row:
        return _row(decode(line).items(), fields, required)

    return parse


def csv_decoder(
    columns: Sequence[NestedField | None], delimiter: str, nulls: Sequence[str] = ()
) -> Callable[[bytes], Mapping[str, str | None]]:
    """
    Reads the texts of one CSV record by column name; raises BadLine.
    """

    def decode(line: bytes) -> Mapping[str, str | None]:
        cells = _cells(line, delimiter)
        if len(cells) != len(columns):
            raise BadLine(f"{len(cells)} fields, the header has {len(columns)}")
        return {
            field.name: None if cell in nulls or not (cell or _keeps_empty(field)) else cell
            for field, cell in zip(columns, cells, strict=True)
            if field is not None
        }

    return decode


def _keeps_empty(field: NestedField) -> bool:
    return field.required and str(field.field_type) == "string"


def csv_columns(
    schema: Schema, header: bytes, delimiter: str, former: Mapping[str, int] = NONE, ignore_unknown: bool = False
) -> list[NestedField | None]:
    """
    The columns that a CSV header names, None for one that is ignored; raises SchemaRefused.
    """
    names = _cells(header, delimiter)
    known = columns_by_name(schema, former)
    unknown = [name for name in names if name not in known]
    columns = [known.get(name) for name in names]
    given = [field.field_id for field in columns if field is not None]
    if (unknown and not ignore_unknown) or len(set(given)) < len(given):
        raise SchemaRefused(f"CSV header {names}: the table has the columns {', '.join(known)}")
    return columns


def bad_line_parser(parser: Callable[[bytes], Parse], kind: str, header_of: Callable[[str], bytes]) -> Parse:
    """
    Reads the line in a record of a bad line; `parser` makes the parser for a CSV header, `header_of` a file's header.
    """
    parsers: dict[str, Parse] = {}

    def parse(line: bytes) -> Row:
        try:
            record = json.loads(line)
            file, text = str(record["file"]), str(record["text"]).encode()
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise BadLine("not a record of a bad line") from exc
        if record.get("exact", True) is not True:
            raise BadLine("the record does not hold the line exactly: take it from its file")
        if file not in parsers:
            parsers[file] = parser(_header(file, header_of) if kind == "csv" else b"")
        return parsers[file](text)

    return parse


def _header(file: str, header_of: Callable[[str], bytes]) -> bytes:
    try:
        return header_of(file)
    except OSError as exc:
        raise BadLine(f"the header of {file} cannot be read: {exc.strerror}") from exc


def columns_by_name(schema: Schema, former: Mapping[str, int]) -> dict[str, NestedField]:
    """
    The columns by their names, and by those that they had before.
    """
    by_id = {field.field_id: field for field in schema.fields}
    before = {name: by_id[number] for name, number in former.items() if number in by_id}
    return before | {field.name: field for field in schema.fields}


def _cells(line: bytes, delimiter: str) -> list[str]:
    try:
        return csv_cells(line, delimiter)
    except ValueError as exc:
        raise BadLine(f"not CSV: {exc}") from exc


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


def storage_types(schema: Schema) -> dict[int, pa.DataType]:
    """
    The Arrow type in which each column, by field id, is built.
    """
    kinds = zip(schema.fields, schema_to_pyarrow(schema), strict=True)
    return {
        field.field_id: pa.binary(16) if isinstance(target.type, pa.UuidType) else target.type
        for field, target in kinds
    }


def table_of(rows: Sequence[Row], schema: Schema) -> pa.Table:
    """
    The rows as Arrow, with the columns of the schema.
    """
    kinds = storage_types(schema)
    columns = [pa.array([row.get(number) for row in rows], kind) for number, kind in kinds.items()]
    return pa.Table.from_arrays(columns, names=[field.name for field in schema.fields])
