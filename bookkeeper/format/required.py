"""
Required fields inside optional ones, as pyarrow's Parquet writer takes them.

Of a null struct a required field holds no value: in Parquet the definition level of the struct says so, and the field
stays required, as Iceberg Java writes it. pyarrow (26) writes that too, unless the child array says itself that it is
null there: then it raises. So such a child loses its own nulls, and what lies below them is never read.
"""

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]


def settled(table: pa.Table) -> pa.Table:
    """
    The same rows, with no nulls in required fields; raises ValueError where one has a null that is its own.
    """
    for index, field in enumerate(table.schema):
        if _has_required(field.type):
            column = with_required(table.column(index), field.type, field.name)
            table = table.set_column(index, field, column)
    return table


def with_required(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    """
    A column as `kind`, whose fields it has, required or not; raises like `settled`.
    """
    return pa.chunked_array([_settled(chunk, kind, name, None) for chunk in column.chunks], kind)


def optional(kind: pa.DataType) -> pa.DataType:
    """
    The type with all fields below it optional: pyarrow casts to a required one only what has no nulls at all.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(optional(field.type)).with_nullable(True) for field in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(optional(item.type)).with_nullable(True))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = kind.value_field.with_type(optional(kind.value_type)).with_nullable(True)
        return pa.list_(element) if pa.types.is_list(kind) else pa.large_list(element)
    return kind


def _has_required(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    # The keys of a map are never null.
    fields = [kind.item_field] if pa.types.is_map(kind) else [kind.field(index) for index in range(kind.num_fields)]
    return any(not field.nullable or _has_required(field.type) for field in fields)


def _settled(array: pa.Array, kind: pa.DataType, where: str, valid: pa.Array | None) -> pa.Array:
    """`valid` says where the struct around it is not null, None: everywhere."""
    if not _has_required(kind):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if mask is not None:
            valid = array.is_valid() if valid is None else pc.and_(valid, array.is_valid())
        parts = [_child(array.field(index), field, where, valid) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    # Of a slice only its own values, and offsets from 0: a mask goes with no others.
    begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    offsets = pc.subtract(array.offsets, array.offsets[0])
    if pa.types.is_map(kind):
        keys, items = array.keys.slice(begin, end - begin), array.items.slice(begin, end - begin)
        items = _child(items, kind.item_field, where, None)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    values = _child(array.values.slice(begin, end - begin), kind.value_field, where, None)
    return type(array).from_arrays(offsets, values, type=kind, mask=mask)


def _child(array: pa.Array, field: pa.Field, where: str, valid: pa.Array | None) -> pa.Array:
    where = f"{where}.{field.name}"
    found = _settled(array, field.type, where, valid)
    return found if field.nullable else _required(found, where, valid)


def _required(array: pa.Array, where: str, valid: pa.Array | None) -> pa.Array:
    if not array.null_count:
        return array
    own = array.is_null() if valid is None else pc.and_(valid, array.is_null())
    if count := pc.sum(own).as_py():
        raise ValueError(f"required {where!r} is null in {count} rows")
    return _without_nulls(array)


def _without_nulls(array: pa.Array) -> pa.Array:
    """The same values, with any where there was none."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _without_nulls(array.storage))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(index) for index in range(len(kind))], fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if pa.types.is_nested(kind):
        return type(array).from_arrays(array.offsets, array.values, type=kind)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], 0, array.offset)
