"""
Casts Arrow rows to the table's schema: its columns, in its order, in its types.

A missing optional column becomes null and a narrower type is widened. Rows are refused when a cast would lose or invent
values: an unknown column, a null in a required one, text for a number, a time without its zone.
"""

from collections.abc import Mapping

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.arrow_types import type_of_arrow
from bookkeeper.format.csv_json_types import uuid
from bookkeeper.format.required import optional, with_required


def cast(table: pa.Table, schema: Schema, target: pa.Schema, former: Mapping[str, int]) -> pa.Table:
    """
    `table` in the schema `target` (of `schema`); `former` maps names that columns had before to their field ids.

    Raises SchemaRefused.
    """
    given = _by_field(table, schema, former)
    columns = []
    for field, wanted in zip(schema.fields, target, strict=True):
        column = given.get(field.field_id)
        if column is None and field.required and table.num_rows:
            raise SchemaRefused(f"required column {field.name!r} is missing")
        if column is None:
            columns.append(pa.nulls(table.num_rows, wanted.type))
        else:
            found = _cast_column(column, field, wanted.type, field.name)
            columns.append(_with_required(found, wanted.type, field.name))
    return pa.Table.from_arrays(columns, schema=target)


def unknown_columns(names: list[str], schema: Schema, former: Mapping[str, int]) -> list[str]:
    """
    The names that are no column of the table, and were none that it still has.
    """
    ids = {field.field_id for field in schema.fields}
    known = {field.name for field in schema.fields} | {name for name, number in former.items() if number in ids}
    return [name for name in names if name not in known]


def _by_field(table: pa.Table, schema: Schema, former: Mapping[str, int]) -> dict[int, pa.ChunkedArray]:
    unknown = unknown_columns(table.column_names, schema, former)
    if unknown:
        columns = ", ".join(field.name for field in schema.fields)
        raise SchemaRefused(
            f"the table has no column {', '.join(map(repr, unknown))}; it has {columns}",
            hint="Add the column to the table first (writers see it at their next roll), or leave it out.",
        )
    ids = {**former, **{field.name: field.field_id for field in schema.fields}}
    given: dict[int, pa.ChunkedArray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if ids[name] in given:
            raise SchemaRefused(f"column {name!r} is given twice")
        given[ids[name]] = column
    return given


def _cast_column(column: pa.ChunkedArray, field: NestedField, wanted: pa.DataType, where: str) -> pa.ChunkedArray:
    if field.required and column.null_count:
        nulls = "1 null" if column.null_count == 1 else f"{column.null_count} nulls"
        raise SchemaRefused(f"required column {where!r} holds {nulls}", hint="Give each row a value, or leave it out.")
    kind = field.field_type
    if isinstance(kind, StructType) and pa.types.is_struct(column.type):
        return _cast_struct(column, kind, wanted, where)
    if isinstance(kind, (ListType, MapType)) and _family(column.type) == _family(wanted):
        _check_items(column, kind, where)
    if column.type == wanted:
        return column
    given = _check_family(column.type, wanted, where, kind)
    if isinstance(wanted, pa.UuidType) and given == "text":
        column = _bytes_of_uuids(column, where)
    try:
        if isinstance(kind, (ListType, MapType)):
            return _with_required(column.cast(optional(wanted)), wanted, where)
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
        raise SchemaRefused(f"column {where!r} ({_shown(column.type)}) does not fit {kind}: {exc}") from exc


def _bytes_of_uuids(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Texts are UUIDs as lines have them: their sixteen characters would pass for bytes."""
    try:
        return pa.chunked_array([[None if text is None else uuid(text) for text in column.to_pylist()]], pa.binary(16))
    except ValueError as exc:
        raise SchemaRefused(f"column {where!r}: {exc}") from exc


def _cast_struct(column: pa.ChunkedArray, kind: StructType, wanted: pa.StructType, where: str) -> pa.ChunkedArray:
    names = [child.name for child in column.type]
    unknown = [name for name in names if name not in {child.name for child in kind.fields}]
    if unknown:
        raise SchemaRefused(f"the table has no column {f'{where}.{unknown[0]}'!r}")
    children: list[pa.Array] = []
    for child, wanted_child in zip(kind.fields, wanted, strict=True):
        inner = f"{where}.{child.name}"
        if child.name in names:
            part = pc.struct_field(column, child.name)
            _check_required(child, part.null_count - column.null_count, inner)
            optional = child.model_copy(update={"required": False})
            children.append(_cast_column(part, optional, wanted_child.type, inner).combine_chunks())
        else:
            _check_required(child, len(column) - column.null_count, inner)
            children.append(pa.nulls(len(column), wanted_child.type))
    mask = pc.is_null(column).combine_chunks() if column.null_count else None
    return pa.chunked_array([pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)], wanted)


def _with_required(column: pa.ChunkedArray, wanted: pa.DataType, where: str) -> pa.ChunkedArray:
    try:
        return with_required(column, wanted, where) if pa.types.is_nested(wanted) else column
    except ValueError as exc:
        raise SchemaRefused(str(exc)) from exc


def _check_required(field: NestedField, nulls: int, where: str) -> None:
    if field.required and nulls > 0:
        raise SchemaRefused(f"required column {where!r} is missing or null in {nulls} rows")


def _check_items(column: pa.ChunkedArray, kind: ListType | MapType, where: str) -> None:
    for chunk in column.chunks:
        if isinstance(kind, ListType) and kind.element_required and chunk.flatten().null_count:
            raise SchemaRefused(f"the elements of {where!r} are required, some are null")
        if isinstance(kind, MapType) and kind.value_required and _items(chunk).null_count:
            raise SchemaRefused(f"the values of {where!r} are required, some are null")


def _items(chunk: pa.MapArray) -> pa.Array:
    """The values of a chunk, which may be a slice."""
    begin, end = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
    return chunk.items.slice(begin, end - begin)


def _shown(given: pa.DataType) -> str:
    """Iceberg's name of an Arrow type, its own where there is none."""
    return type_of_arrow(given) or str(given)


def _check_family(given: pa.DataType, wanted: pa.DataType, where: str, kind: IcebergType) -> str:
    """The family of the given type; raises SchemaRefused."""
    given = given.value_type if pa.types.is_dictionary(given) else given
    family = _family(given)
    if pa.types.is_null(given) or family == _family(wanted) or family in _WIDER[_family(wanted)]:
        return family
    hint = "Cast the column yourself, so that it is clear what is meant."
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        hint = "Give the times with their zone for timestamptz (such as UTC), and without for timestamp."
    raise SchemaRefused(f"column {where!r} has type {_shown(given)}, the table wants {kind}", hint=hint)


def _family(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "instant" if kind.tz else "local time"
    for name, test in _FAMILIES:
        if test(kind):
            return name
    return str(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    views = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(views or pa.types.is_fixed_size_binary(kind) or isinstance(kind, pa.UuidType))


_FAMILIES = (
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    (
        "text",
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    ),
    ("bytes", _is_bytes),
    ("date", pa.types.is_date),
    ("time of day", pa.types.is_time),
    (
        "list",
        lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind),
    ),
    ("map", pa.types.is_map),
)
#: family of the table's column -> other families that always fit it, or are checked by the cast
_WIDER = {name: () for name, _ in _FAMILIES} | {
    "float": ("integer",),
    "decimal": ("integer",),
    "bytes": ("text",),
}
_WIDER |= {"instant": (), "local time": (), "bool": ()}
