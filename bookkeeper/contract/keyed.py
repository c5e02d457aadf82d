"""
Keyed tables: rows are upserted and deleted by key (docs/upserts.md).

A table is keyed when its property `bookkeeper.upserts` is set. Its keys are the schema's identifier fields. The
property names columns by field id, so that they can be renamed.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType, StructType

from bookkeeper.errors import TableUnusable

PROPERTY = "bookkeeper.upserts"
_SPEC, _OP, _ORDER = "delete-spec-id", "op-field-id", "order-field-id"
ADVICE = "`bookkeeper init --key` sets it up again; without the property the table is append-only."


@dataclass(frozen=True, slots=True)
class Keyed:
    """
    How a table is keyed: field ids of its keys, ascending; the spec of its equality-delete files; the field ids of its
    op- and order-column, where it has them.
    """

    key_ids: tuple[int, ...]
    delete_spec_id: int
    op_field_id: int | None = None
    order_field_id: int | None = None


def keyed_of(metadata: TableMetadata) -> Keyed | None:
    """
    How the table is keyed; None when it is not. The delete spec may be gone. Raises TableUnusable.
    """
    stored = metadata.properties.get(PROPERTY)
    if stored is None:
        return None
    try:
        return parse(json.loads(stored), metadata.schema())
    except (ValueError, RecursionError) as exc:
        raise TableUnusable(f"the property {PROPERTY} does not fit the table: {exc}", hint=ADVICE) from exc


def to_json(keyed: Keyed) -> dict[str, int]:
    """
    What the property and the card say; the keys are in the schema.
    """
    values = {_SPEC: keyed.delete_spec_id, _OP: keyed.op_field_id, _ORDER: keyed.order_field_id}
    return {key: value for key, value in values.items() if value is not None}


def dumps(keyed: Keyed) -> str:
    """
    The value of the property.
    """
    return json.dumps(to_json(keyed))


def parse(said: Any, schema: Schema) -> Keyed:
    """
    What `to_json` made, checked against the schema; raises ValueError.
    """
    if not isinstance(said, Mapping) or not {_SPEC} <= said.keys() <= {_SPEC, _OP, _ORDER}:
        raise ValueError(f"{_SPEC} is needed, {_OP} and {_ORDER} are allowed; it is {str(said)[:200]}")
    for key, value in said.items():
        if type(value) is not int or not 0 <= value < 2**31:
            raise ValueError(f"{key} is {str(value)[:60]}, not an id")
    keyed = Keyed(tuple(sorted(schema.identifier_field_ids)), said[_SPEC], said.get(_OP), said.get(_ORDER))
    check(keyed, schema)
    return keyed


def check(keyed: Keyed, schema: Schema) -> None:
    """
    Raises ValueError when the schema's columns cannot serve as the keys, op-column and order-column.
    """
    if not keyed.key_ids:
        raise ValueError("the schema has no identifier fields, which are the keys")
    columns = {field.field_id: field for field in schema.fields}
    for number in keyed.key_ids:
        _check_key(columns.get(number), number)
    ids = (*keyed.key_ids, keyed.op_field_id, keyed.order_field_id)
    given = [number for number in ids if number is not None]
    if len(set(given)) < len(given):
        raise ValueError("keys, op-column and order-column must be different columns")
    for said, column_id, kind in ((_OP, keyed.op_field_id, StringType), (_ORDER, keyed.order_field_id, LongType)):
        if column_id is None:
            continue
        if column_id not in columns:
            raise ValueError(f"{said} is {column_id}, the schema has no such column")
        if not isinstance(columns[column_id].field_type, kind):
            raise ValueError(f"{columns[column_id].name!r} ({said}) is {columns[column_id].field_type}, not {kind()}")
    if keyed.op_field_id is not None:
        _check_tombstones(schema.fields, {*ids})


def _check_key(field: NestedField | None, number: int) -> None:
    if field is None:
        raise ValueError(f"the key with the id {number} is no column, or lies in one: keys are whole columns")
    if not field.field_type.is_primitive or isinstance(field.field_type, FloatType | DoubleType):
        raise ValueError(f"{field.name!r} is {field.field_type}, which no key can be")
    if not field.required:
        raise ValueError(f"{field.name!r} is optional, a key must be required")


def _check_tombstones(fields: Sequence[NestedField], carried: Set[int | None]) -> None:
    """A tombstone carries the keys, the op and the order: any other column must be able to be null."""
    for field in fields:
        if not field.required or field.field_id in carried:
            continue
        if not isinstance(field.field_type, StructType):
            raise ValueError(f"{field.name!r} is required, but a tombstone carries only the keys")
        _check_tombstones(field.field_type.fields, carried)


def is_within_keys(spec: PartitionSpec, keyed: Keyed) -> bool:
    """
    Whether rows of one key always lie in one partition of this spec: all its source columns are keys.
    """
    return all(field.source_id in keyed.key_ids for field in spec.fields)
