"""
What a writer asks for where fields have no column, or their values do not fit: new columns and wider types.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType

from bookkeeper.contract.column_requests import ADD, WIDEN, ColumnRequest
from bookkeeper.format.arrow_types import type_of_arrow
from bookkeeper.format.csv_json_types import LIST, OBJECT, common_type


def asked_type(kind: pa.DataType) -> str | None:
    """
    The type to ask for, for such Arrow values; None for nulls, which fit any column, and for what a person decides.
    """
    found = type_of_arrow(kind)
    return None if found is None or found.startswith("fixed") else found


def wider_columns(table: pa.Table, schema: Schema, target: pa.Schema) -> list[ColumnRequest]:
    """
    What to ask for where rows did not fit `target` (of `schema`): wider types for columns with values that do not.
    """
    kinds = {field.name: (field.field_type, wanted.type) for field, wanted in zip(schema.fields, target, strict=True)}
    wider = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        have, wanted = kinds.get(name, (None, None))
        if str(have) == "int" and pa.types.is_integer(column.type) and not _fits(column, wanted):
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
            kind = None if value is None or name in known else type_of(value)
            if kind not in (None, OBJECT, LIST):
                first = found.get(name, kind)
                found[name] = common_type({first, kind}) or ("string" if texts else first)
    return [ColumnRequest(ADD, name, kind) for name, kind in found.items()]
