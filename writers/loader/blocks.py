"""
Readers of whole blocks of lines, some twenty times as fast as the parsers of one line, with the same rows.

A reader answers None where Arrow refuses the block or could have read it differently from the parser: the caller then
cuts the block, and gives the lines that are left to the parser. What Arrow (pyarrow 26) is laxer about is said where
it is ruled out; a property test compares both on hostile lines.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import json as arrow_json
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, NestedField, StructType

from bookkeeper.format.input_files import BYTE_ORDER_MARK, csv_table
from writers.loader.records import storage_types
from writers.values.json_values import MOST_SINGLE, converter, text_converter
from writers.values.text_columns import decimal_digits, from_texts

#: reads a block of so many lines, each one row; None when that is not sure
ReadBlock = Callable[[bytes, int], pa.Table | None]
#: a column as it was read, as one of the table's type; None when it is not surely the same
_Build = Callable[[pa.Array], pa.Array | None]

_TEXT = pa.large_string()
_DIRECT = {"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64()}
_FLOATS = {"float": pa.float32(), "double": pa.float64()}
#: the first line's braces are checked by themselves
_BETWEEN_OBJECTS = r"\}\r?\n\{"
_MOST_OPENED = 200
_NEGATIVE_ZERO = -(2**63)


def ndjson_reader(schema: Schema, base64_bytes: bool = False, ignore_unknown: bool = False) -> ReadBlock | None:
    """
    A reader of JSON lines as ndjson_parser reads them; None for a schema with a type that only the parser reads.
    """
    targets = storage_types(schema)
    found = [_json_type(field.field_type, targets[field.field_id], base64_bytes, True) for field in schema.fields]
    columns = [column for column in found if column is not None]
    if len(columns) < len(found):
        return None
    read = pa.schema([(field.name, kind) for field, (kind, _) in zip(schema.fields, columns, strict=True)])
    build = _Builder(schema, {field.field_id: made for field, (_, made) in zip(schema.fields, columns, strict=True)})
    options = arrow_json.ParseOptions(
        explicit_schema=read, unexpected_field_behavior="ignore" if ignore_unknown else "error"
    )
    decimals = [field for field in schema.fields if isinstance(field.field_type, DecimalType)]

    def read_block(data: bytes, lines: int) -> pa.Table | None:
        # pyarrow 26 ends the process at a null in the first line.
        if not (data.startswith(b"{") and _plain(data)) or (ignore_unknown and _maybe_deep(data, lines)):
            return None
        try:
            table = arrow_json.read_json(
                pa.BufferReader(data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=options,
            )
        except pa.ArrowInvalid:
            return None
        if not _object_per_line(data, lines, table.num_rows):
            return None
        if not all(_decimals_fit(data, field, table[field.name]) for field in decimals):
            return None
        if _has_negative_zero(table) and re.search(rb"[:\[,]\s*-0\s*[,}\]]", data):
            return None  # -0 is the whole number 0 to the parser
        return build({field.field_id: table[field.name] for field in schema.fields}, table.num_rows)

    return read_block


def csv_reader(
    schema: Schema,
    fields: Sequence[NestedField | None],
    delimiter: str,
    base64_bytes: bool = False,
    nulls: Sequence[str] = (),
    ignore_unknown: bool = False,
) -> ReadBlock | None:
    """
    A reader of CSV records as csv_parser reads them; `fields` are the columns of the header, None for an ignored one.

    None where only the parser is sure: an unusual delimiter, or a column that the header names twice.
    """
    known = {field.field_id: str(index) for index, field in enumerate(fields) if field is not None}
    if not re.fullmatch(r"[\t -/:-@\[-`{-~]", delimiter) or delimiter == '"':
        return None
    if not known or len(known) < sum(field is not None for field in fields):
        return None
    targets = storage_types(schema)
    given = [field for field in schema.fields if field.field_id in known]
    keeps_empty = {field.field_id for field in given if field.required and str(field.field_type) == "string"}
    build = _Builder(
        schema,
        {field.field_id: _csv_build(field, targets[field.field_id], base64_bytes, ignore_unknown) for field in given},
    )
    whole = {known[field.field_id] for field in given if str(field.field_type) in ("int", "long")}
    types = {known[field.field_id]: _csv_type(field.field_type) for field in given}
    quoted = _quoted_field(delimiter)
    may_be_blank = delimiter in "\t " or len(fields) == 1

    def read_block(data: bytes, lines: int) -> pa.Table | None:
        if not _reads_alike(data, quoted, may_be_blank):
            return None
        # Arrow reads 0x1F as a whole number; in a block that may hold one they are read as texts.
        hexadecimal = (b"x" in data or b"X" in data) and re.search(rb"0[xX]", data)
        columns = {**types, **dict.fromkeys(whole, _TEXT)} if hexadecimal else types
        found = csv_table(data, len(fields), columns, delimiter, nulls)
        if found is None or found.num_rows != lines:
            return None
        return build({field.field_id: _csv_column(field, found) for field in given}, lines)

    def _csv_column(field: NestedField, found: pa.Table) -> pa.ChunkedArray:
        column = found[known[field.field_id]]
        if field.field_id not in keeps_empty or not column.null_count or nulls:
            return column
        return pc.fill_null(column, pa.scalar("", _TEXT))

    return read_block


def _reads_alike(data: bytes, quoted: "re.Pattern[bytes]", may_be_blank: bool) -> bool:
    """Whether Arrow finds the records that the parser finds."""
    if not _plain(data) or data.count(b"\r") != data.count(b"\r\n"):
        return False  # a lone carriage return ends a line for Arrow
    if b'"' in data and b'"' in quoted.sub(b"", b"\n" + data):
        return False  # Arrow takes what follows a closing quote, and a quoted line break
    is_blank = may_be_blank and re.search(rb"\n[ \t\v\f\r]*(\n|$)", b"\n" + data.rstrip(b"\r\n"))
    return not is_blank  # blank lines are no records


def _quoted_field(delimiter: str) -> "re.Pattern[bytes]":
    """Well-formed quoted fields; where they are all the quotes there are, each begins at the begin of a field."""
    edge = re.escape(delimiter).encode()
    return re.compile(rb"(?<=[\n" + edge + rb'])"[^"\n]*(?:""[^"\n]*)*"(?=[\r\n' + edge + rb"]|\Z)")


def _plain(data: bytes) -> bool:
    """Whether Arrow surely sees the text that Python does: UTF-8 without a mark to skip or a zero to stop at."""
    if b"\0" in data or data.startswith(BYTE_ORDER_MARK):
        return False
    try:
        return data.isascii() or bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _object_per_line(data: bytes, lines: int, rows: int) -> bool:
    """
    Whether each line is one object: Arrow takes several on a line, and one on several lines.

    Where a `}` ends a line and a `{` begins the next, an object ends: inside one they are never neighbours, and a text
    holds no line break. So each line has one object at least, and as many rows as lines means one each.
    """
    if rows != lines or not data.rstrip(b"\r\n").endswith(b"}"):
        return False
    between = pc.count_substring_regex(pa.array([data], pa.large_binary()), _BETWEEN_OBJECTS)[0].as_py()
    return bool(between == lines - 1)


def _maybe_deep(data: bytes, lines: int) -> bool:
    """Whether a field that is ignored may be nested deeper than Python's parser can follow."""
    if data.count(b"{") + data.count(b"[") < lines + _MOST_OPENED:
        return False
    return any(line.count(b"{") + line.count(b"[") > _MOST_OPENED for line in data.split(b"\n"))


def _decimals_fit(data: bytes, field: NestedField, column: pa.ChunkedArray) -> bool:
    """
    Whether all values of a decimal column are written with digits that surely fit: Arrow wraps around at 128 bits.

    Counts the column's name, as Python and most programs write it, and its values that fit; both must be the same.
    """
    assert isinstance(field.field_type, DecimalType)
    text = pa.array([data], pa.large_binary())
    name = json.dumps(field.name, ensure_ascii=False)
    value = f'"-?{decimal_digits(field.field_type)}"|-?{decimal_digits(field.field_type)}'
    key = rf"{re.escape(name)}[ \t]*:[ \t]*"
    fitting = pc.count_substring_regex(text, rf"{key}({value})[ \t]*[,}}]")[0].as_py()
    nothing = pc.count_substring_regex(text, rf"{key}null[ \t]*[,}}]")[0].as_py()
    named = data.count(name.encode())
    return bool(fitting == len(column) - column.null_count and named == fitting + nothing)


def _has_negative_zero(table: pa.Table) -> bool:
    return any(_negative_zero(chunk) for column in table.columns for chunk in column.chunks)


def _negative_zero(array: pa.Array) -> bool:
    if pa.types.is_struct(array.type):
        return any(_negative_zero(child) for child in array.flatten())
    if pa.types.is_list(array.type):
        return _negative_zero(array.flatten())
    if not pa.types.is_float64(array.type):
        return False
    return bool(pc.any(pc.equal(array.view(pa.int64()), _NEGATIVE_ZERO)).as_py())


class _Builder:
    """Makes the table's columns out of those that were read; None when one is not surely the same, or lacks a value."""

    def __init__(self, schema: Schema, builds: Mapping[int, _Build]) -> None:
        self._fields, self._builds, self._targets = schema.fields, builds, storage_types(schema)

    def __call__(self, read: Mapping[int, pa.ChunkedArray], rows: int) -> pa.Table | None:
        arrays = []
        for field in self._fields:
            column = read.get(field.field_id)
            array = pa.nulls(rows, self._targets[field.field_id]) if column is None else self._build(field, column)
            if array is None or (field.required and array.null_count):
                return None
            arrays.append(array)
        return pa.Table.from_arrays(arrays, names=[field.name for field in self._fields])

    def _build(self, field: NestedField, column: pa.ChunkedArray) -> pa.Array | None:
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return self._builds[field.field_id](array)


def _csv_type(kind: IcebergType) -> pa.DataType:
    return pa.float64() if str(kind) in _FLOATS else _DIRECT.get(str(kind), _TEXT)


def _csv_build(field: NestedField, target: pa.DataType, base64_bytes: bool, ignore_unknown: bool) -> _Build:
    kind = field.field_type
    if str(kind) in _FLOATS:
        return lambda array: _finite(array, target)
    texts = from_texts(kind, target, text_converter(kind, base64_bytes, ignore_unknown))
    return lambda array: texts(array) if array.type == _TEXT else array


def _json_type(
    kind: IcebergType, target: pa.DataType, base64_bytes: bool, top: bool = False
) -> tuple[pa.DataType, _Build] | None:
    """How Arrow reads a JSON value of this type, and what makes the column of it; None when only the parser can."""
    if isinstance(kind, StructType):
        return _json_struct(kind, target, base64_bytes)
    if isinstance(kind, ListType):
        return _json_list(kind, target, base64_bytes)
    if not kind.is_primitive or isinstance(target, pa.UuidType) or (isinstance(kind, DecimalType) and not top):
        return None
    if str(kind) in _FLOATS:
        return pa.float64(), lambda array: _finite(array, target)
    if str(kind) in _DIRECT or isinstance(kind, DecimalType):
        return target, lambda array: array
    return _TEXT, from_texts(kind, target, converter(kind, base64_bytes))


def _json_struct(kind: StructType, target: pa.StructType, base64_bytes: bool) -> tuple[pa.DataType, _Build] | None:
    fields = list(zip(kind.fields, target, strict=True))
    found = [_json_type(field.field_type, wanted.type, base64_bytes) for field, wanted in fields]
    children = [child for child in found if child is not None]
    if len(children) < len(found):
        return None

    def build(array: pa.Array) -> pa.Array | None:
        parts: list[pa.Array] = []
        for index, (field, (_, make)) in enumerate(zip(kind.fields, children, strict=True)):
            part = make(array.field(index))
            # Under a null struct the child is null.
            if part is None or (field.required and part.null_count > array.null_count):
                return None
            parts.append(part)
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)

    return pa.struct([(field.name, child[0]) for field, child in zip(kind.fields, children, strict=True)]), build


def _json_list(kind: ListType, target: pa.DataType, base64_bytes: bool) -> tuple[pa.DataType, _Build] | None:
    element = _json_type(kind.element_type, target.value_type, base64_bytes)
    if element is None:
        return None

    def build(array: pa.Array) -> pa.Array | None:
        items = element[1](array.values)
        if items is None or (kind.element_required and items.null_count):
            return None
        mask = array.is_null() if array.null_count else None
        return pa.LargeListArray.from_arrays(array.offsets.cast(pa.int64()), items, type=target, mask=mask)

    return pa.list_(element[0]), build


def _finite(numbers: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Arrow and Python spell what is no number differently, and Arrow cuts what is too big for 32 bits to infinity."""
    most = MOST_SINGLE if target == pa.float32() else None
    if not pc.all(pc.is_finite(numbers)).as_py() and numbers.null_count < len(numbers):
        return None
    if most is None:
        return numbers
    greatest = pc.max(pc.abs(numbers)).as_py()
    return numbers.cast(target) if greatest is None or greatest <= most else None
