"""
Iceberg types for fields that the table does not have, from Arrow types and from the values of lines.

None stands for a type that is not asked for: of a null, which fits any column, and of what only a person can decide.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, TimestamptzType

from bookkeeper.core.column_requests import ADD, WIDEN, ColumnRequest
from writers.values.json_values import converter

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})"
)
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_REAL = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_ARROW: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (lambda kind: kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    (pa.types.is_integer, "long"),
    (lambda kind: kind in (pa.float16(), pa.float32()), "float"),
    (pa.types.is_float64, "double"),
    (lambda kind: _any(kind, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), "string"),
    (lambda kind: _any(kind, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view), "binary"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (lambda kind: isinstance(kind, pa.UuidType), "uuid"),
)

_moment = converter(TimestamptzType())


def _any(kind: pa.DataType, *tests: Callable[[pa.DataType], bool]) -> bool:
    return any(test(kind) for test in tests)


def type_of_arrow(kind: pa.DataType) -> str | None:
    """
    The Iceberg type of a column for such Arrow values; None for nested and unusual ones.
    """
    if pa.types.is_dictionary(kind):
        return type_of_arrow(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})" if 0 <= kind.scale <= kind.precision <= 38 else None
    return next((name for test, name in _ARROW if test(kind)), None)


def wider_columns(table: pa.Table, schema: Schema, target: pa.Schema) -> list[ColumnRequest]:
    """
    What to ask for where rows did not fit `target` (of `schema`): wider types for columns with values that do not.
    """
    kinds = {field.name: (field.field_type, wanted.type) for field, wanted in zip(schema.fields, target, strict=True)}
    wider = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        have, wanted = kinds.get(name, (None, None))
        if str(have) == "int" and type_of_arrow(column.type) == "long" and not _fits(column, wanted):
            wider.append(ColumnRequest(WIDEN, name, "long"))
        elif isinstance(have, DecimalType) and pa.types.is_decimal(column.type) and not _fits(column, wanted):
            kind = column.type
            digits = have.scale + max(kind.precision - kind.scale, have.precision - have.scale)
            if have.precision < digits <= 38:
                wider.append(ColumnRequest(WIDEN, name, f"decimal({digits}, {have.scale})"))
    return wider


def _fits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def type_of_json(value: Any) -> str | None:
    """
    The Iceberg type for a JSON value; a text is a time only where it says day, time and zone in full.
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else None
    if isinstance(value, (float, Decimal)):
        return "double"
    return _type_of_string(value) if isinstance(value, str) else None


def type_of_text(text: str | None) -> str | None:
    """
    The Iceberg type for a CSV field; a number with leading zeros is a text.
    """
    if text is None:
        return None
    if text.lower() in ("true", "false"):
        return "boolean"
    if _WHOLE.fullmatch(text):
        return "long"
    return "double" if _REAL.fullmatch(text) else _type_of_string(text)


def _type_of_string(text: str) -> str:
    if _MOMENT.fullmatch(text):
        try:
            _moment(text)
            return "timestamptz"
        except (ValueError, OverflowError):
            pass
    return "string"


def requests_for(
    rows: Iterable[Mapping[str, Any]], known: Container[str], type_of: Callable[[Any], str | None], texts: bool
) -> list[ColumnRequest]:
    """
    What to ask for so that the fields of these rows are columns, each in a type that all its values fit, if there is
    one; else in that of its first value. `texts`: each value is a text, which fits a text column.
    """
    found: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            if name not in known and (kind := type_of(value)) is not None:
                found[name] = _common(found.get(name, kind), kind, texts)
    return [ColumnRequest(ADD, name, kind) for name, kind in found.items()]


def _common(one: str, other: str, texts: bool) -> str:
    if one == other:
        return one
    if {one, other} == {"long", "double"}:
        return "double"
    return "string" if texts or {one, other} == {"timestamptz", "string"} else one
