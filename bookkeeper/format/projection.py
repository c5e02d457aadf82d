"""
Rows of an older or foreign Parquet file as rows of the table's schema now (Iceberg spec, "Column Projection").

Columns are found by field id, where a file has none by the table's name mapping; never by name or position alone. What
a reader of the table would see is what comes out; a file that would need anything else is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from bookkeeper.errors import CannotRead
from bookkeeper.format.partition_tuples import partition_value

Convert = Callable[[Any], Any]
_ID = b"PARQUET:field_id"
_SPELLINGS = {
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
}
#: bits of the integers that are read as one
_INTEGERS = {"int": (8, 16, 32), "long": (8, 16, 32, 64)}
#: what else a type was before it was widened, or how it is stored
_OTHERS = {"double": pa.float32(), "uuid": pa.binary(16)}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file: its place among its siblings, its type, and the mapping of the names below it."""

    index: int
    kind: pa.DataType
    names: tuple[MappedField, ...] | None


class Projection:
    """
    What to read of files with the Arrow schema `source`, and how it becomes rows of `target`, the table's `schema`.

    `constants` are the values of columns that the partition has by identity: they hold where the file lacks the
    column. Raises CannotRead.
    """

    def __init__(
        self,
        source: pa.Schema,
        schema: Schema,
        target: pa.Schema,
        mapping: NameMapping | None,
        constants: Mapping[int, pa.Array],
    ) -> None:
        by_id = any(map(_has_id, source))
        if not by_id and mapping is None:
            raise CannotRead("it has no field ids, and the table no name mapping (schema.name-mapping.default)")
        names = None if by_id else tuple(mapping or ())
        wanted = {field.field_id for field in schema.fields}
        found = _columns(source, names)
        kept = sorted(column.index for number, column in found.items() if number in wanted)
        #: field ids that the files lack
        self.missing = wanted - found.keys()
        #: of its columns, the ones to read; all, where the table has none of them: their number of rows is needed
        self.source = pa.schema([source.field(index) for index in kept]) if kept else source
        #: their names, None: all
        self.names: list[str] | None = None if len(self.source) == len(source) else self.source.names
        self._target = target
        self._convert = _struct(list(self.source), schema.as_struct(), list(target), names, constants, "")

    def rows(self, batch: pa.RecordBatch) -> pa.Table:
        """These rows in the table's schema; raises CannotRead for a null where the table allows none."""
        projected = self._convert(batch.to_struct_array())
        return pa.Table.from_arrays(projected.flatten(), schema=self._target)


def _has_id(field: pa.Field) -> bool:
    return _ID in (field.metadata or {}) or any(map(_has_id, _children(field.type)))


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _columns(fields: Iterable[pa.Field], names: tuple[MappedField, ...] | None) -> dict[int, _Column]:
    """Sibling columns by field id: their own, or those that `names` give them."""
    found = dict[int, _Column]()
    mapped = {name: item for item in names or () for name in item.names}
    for index, field in enumerate(fields):
        number, below = _own_id(field) if names is None else _mapped(field, mapped)
        if number in found:
            raise CannotRead(f"field id {number} belongs to two of its columns")
        found[number] = _Column(index, field.type, below)
    return found


def _own_id(field: pa.Field) -> tuple[int, None]:
    text = (field.metadata or {}).get(_ID, b"")
    if not text.isdigit():
        raise CannotRead(f"its column {field.name[:100]!r} has no field id, though others have")
    return int(text), None


def _mapped(field: pa.Field, mapped: Mapping[str, MappedField]) -> tuple[int, tuple[MappedField, ...]]:
    item = mapped.get(field.name)
    if item is None or item.field_id is None:
        raise CannotRead(f"it has no field ids, and the table's name mapping has no column {field.name[:100]!r}")
    return item.field_id, tuple(item.fields)


def _converter(column: _Column, kind: IcebergType, target: pa.DataType, where: str) -> Convert:
    if isinstance(kind, StructType) and pa.types.is_struct(column.kind):
        return _struct(_children(column.kind), kind, _children(target), column.names, {}, f"{where}.")
    if isinstance(kind, ListType) and (pa.types.is_list(column.kind) or pa.types.is_large_list(column.kind)):
        return _list(column, kind, target, where)
    if isinstance(kind, MapType) and pa.types.is_map(column.kind):
        return _map(column, kind, target, where)
    if kind.is_primitive and _fits(column.kind, str(kind), target):
        return _leaf(column.kind, target)
    raise CannotRead(f"its column {where!r} has type {column.kind}, which is not read as {kind}")


def _struct(
    fields: list[pa.Field],
    kind: StructType,
    target: list[pa.Field],
    names: tuple[MappedField, ...] | None,
    constants: Mapping[int, pa.Array],
    where: str,
) -> Convert:
    found = _columns(fields, names)
    parts = [
        _child(found.get(child.field_id), child, wanted.type, constants.get(child.field_id), f"{where}{child.name}")
        for child, wanted in zip(kind.fields, target, strict=True)
    ]

    def convert(array: pa.StructArray) -> pa.StructArray:
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays([part(array) for part in parts], fields=target, mask=mask)

    return convert


def _child(
    column: _Column | None, field: NestedField, target: pa.DataType, constant: pa.Array | None, where: str
) -> Convert:
    """The column of a struct's field, from the struct."""
    if column is None:
        return _filled(field, target, constant, where)
    convert = _converter(column, field.field_type, target, where)

    def taken(array: pa.StructArray) -> pa.Array:
        given = array.field(column.index)
        if field.required and given.null_count:
            _check_required(given, array, where)
        return convert(given)

    return taken


def _filled(field: NestedField, target: pa.DataType, constant: pa.Array | None, where: str) -> Convert:
    """A column that the file lacks: the partition's value, the column's default, or null."""
    if constant is None and field.initial_default is not None:
        constant = _value(field.initial_default, target, where)
    if constant is None or constant.null_count:
        if field.required:
            raise CannotRead(f"it lacks the required column {where!r}")
        return lambda array: pa.nulls(len(array), target)
    return lambda array: pa.repeat(constant[0], len(array))


def _value(value: Any, target: pa.DataType, where: str) -> pa.Array:
    try:
        return pa.array([value], target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise CannotRead(f"it lacks column {where!r}, whose value {str(value)[:100]!r} is not understood") from exc


def _check_required(given: pa.Array, around: pa.StructArray, where: str) -> None:
    if pc.any(pc.and_(given.is_null(), around.is_valid())).as_py():
        raise CannotRead(f"its column {where!r} holds nulls, the table requires a value")


def _list(column: _Column, kind: ListType, target: pa.DataType, where: str) -> Convert:
    names = column.names
    inner = _columns([_element(column.kind)], names).get(kind.element_id)
    if inner is None:
        raise CannotRead(f"the elements of its column {where!r} have another field id")
    convert = _converter(inner, kind.element_type, target.value_type, f"{where}.element")
    made, offset = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(target) else (pa.ListArray, pa.int32())

    def listed(array: Any) -> Any:
        if not len(array):
            return pa.array([], target)
        offsets, (values,) = inside(array, array.values)
        if kind.element_required and values.null_count:
            raise CannotRead(f"the elements of its column {where!r} hold nulls, the table requires values")
        return made.from_arrays(offsets.cast(offset), convert(values), type=target, mask=_mask(array))

    return listed


def _element(kind: pa.DataType) -> pa.Field:
    # A mapping names the elements of every list so, whatever the file calls them.
    return kind.value_field.with_name("element")


def _map(column: _Column, kind: MapType, target: pa.DataType, where: str) -> Convert:
    pair = [column.kind.key_field.with_name("key"), column.kind.item_field.with_name("value")]
    found = _columns(pair, column.names)
    key, value = found.get(kind.key_id), found.get(kind.value_id)
    if key is None or value is None:
        raise CannotRead(f"the keys or values of its column {where!r} have other field ids")
    of_key = _converter(key, kind.key_type, target.key_type, f"{where}.key")
    of_value = _converter(value, kind.value_type, target.item_type, f"{where}.value")

    def mapped(array: pa.MapArray) -> pa.MapArray:
        if not len(array):
            return pa.array([], target)
        offsets, (keys, values) = inside(array, array.keys, array.items)
        if keys.null_count or (kind.value_required and values.null_count):
            raise CannotRead(f"the keys or values of its column {where!r} hold nulls, the table requires values")
        return pa.MapArray.from_arrays(offsets, of_key(keys), of_value(values), type=target, mask=_mask(array))

    return mapped


def inside(array: Any, *values: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """
    The offsets of a list or map from 0, and what they point at of its `values`: of a slice only its own part.
    """
    offsets = array.offsets
    begin, end = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, offsets[0]), [item.slice(begin, end - begin) for item in values]


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _leaf(given: pa.DataType, target: pa.DataType) -> Convert:
    if given == target:
        return _same
    if isinstance(target, pa.BaseExtensionType):
        return lambda array: pa.ExtensionArray.from_storage(target, array.cast(target.storage_type))
    return lambda array: array.cast(target)


def _same(array: Any) -> Any:
    return array


def _fits(given: pa.DataType, kind: str, target: pa.DataType) -> bool:
    """Whether a column of this Arrow type holds values of this Iceberg type, or of one that it was widened from."""
    if given == target:
        return True
    if kind in _INTEGERS:
        return pa.types.is_signed_integer(given) and given.bit_width in _INTEGERS[kind]
    if kind in _SPELLINGS:
        plain = given.value_type if pa.types.is_dictionary(given) else given
        return any(test(plain) for test in _SPELLINGS[kind])
    if kind.startswith("decimal"):
        return bool(pa.types.is_decimal(given) and given.scale == target.scale and given.precision <= target.precision)
    if kind == "timestamptz":
        return pa.types.is_timestamp(given) and given.unit == "us" and given.tz is not None
    return bool(given == _OTHERS.get(kind))


def constants(spec: PartitionSpec, values: tuple[Any, ...], schema: Schema, arrow: pa.Schema) -> dict[int, pa.Array]:
    """
    The values of columns that are partitioned by identity, by field id.
    """
    found = dict[int, pa.Array]()
    for field, value in zip(spec.fields, values, strict=True):
        index = next((at for at, column in enumerate(schema.fields) if column.field_id == field.source_id), None)
        if isinstance(field.transform, IdentityTransform) and index is not None:
            plain = partition_value(value, schema.fields[index].field_type)
            found[field.source_id] = pa.array([plain], arrow.field(index).type)
    return found
