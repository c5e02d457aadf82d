"""
Lines that are changes, as rows: one by one (NDJSON or CSV), and flat ones in whole blocks.

A row that is deleted holds only the keys. A line that is no row raises BadLine; a change that cannot be applied raises
SchemaRefused, because what follows it must not be applied either.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.json_decoder import check_keys
from writers.changes import DELETES, UNAVAILABLE_TEXTS, UPSERTS, Change
from writers.loader.blocks import ReadBlock
from writers.loader.records import BadLine, Row, ToRow, table_of

#: makes the changes of what a line holds; raises SchemaRefused
Translate = Callable[[Any], Iterable[Change]]
#: in a row, beside its field ids: it is deleted
DELETED = -1
_ENVELOPE = ("before", "after", "op", "payload")
#: a letter, digit or sign of the placeholder may be written like this
_ESCAPED = re.compile(rb"\\u00[3-7]")


def change_parser(
    decode: Callable[[bytes], Any],
    to_row: ToRow,
    translate: Translate,
    names: Collection[str],
) -> Callable[[bytes], Sequence[Row]]:
    """
    Reads the rows of one line: `decode` reads the line, `to_row` makes a row of what it says.

    Of `names` none may be given twice. Raises BadLine, UnknownColumn and SchemaRefused.
    """

    def parse(line: bytes) -> Sequence[Row]:
        data = decode(line)
        try:
            _check_once(data, {*names, *_ENVELOPE})
            changes = list(translate(data))
        except (ValueError, RecursionError) as exc:
            raise BadLine(str(exc)) from exc
        return [_deleted(to_row, change) if change.deleted else to_row(change.row, None) for change in changes]

    return parse


def _deleted(to_row: ToRow, change: Change) -> Row:
    return {**to_row(change.row, change.row.keys()), DELETED: True}


def _check_once(data: Any, names: Collection[str]) -> None:
    """Raises ValueError where the message, or a row in it, gives a name twice: it is not known which one counts."""
    if isinstance(data, dict):
        check_keys(data, names)
        for inner in ("payload", "before", "after"):
            _check_once(data.get(inner), names)


def with_op(schema: Schema, op_field: str) -> Schema:
    """
    The columns of flat rows: the table's, and the op; raises SchemaRefused where the table has a column of that name.
    """
    if any(field.name == op_field for field in schema.fields):
        hint = "Name the field of the rows that says the op; it is no column of the table."
        raise SchemaRefused(f"{op_field!r} is a column of the table", hint=hint)
    op = NestedField(max(schema.field_ids) + 1, op_field, StringType(), required=False)
    return Schema(*schema.fields, op, schema_id=schema.schema_id)


def flat_reader(
    schema: Schema, op_field: str, keys: Collection[str], reader: Callable[[Schema], ReadBlock | None]
) -> ReadBlock | None:
    """
    A reader of blocks of flat rows, as change_table makes them; `reader` makes one of rows for a schema.

    A delete needs no more than the keys, so what the table requires is looked at here.
    """
    columns = [field if field.name in keys else field.model_copy(update={"required": False}) for field in schema.fields]
    required = [field.name for field in schema.fields if field.required and field.name not in keys]
    read = reader(with_op(Schema(*columns, schema_id=schema.schema_id), op_field))
    if read is None:
        return None

    def read_block(data: bytes, lines: int) -> pa.Table | None:
        if _ESCAPED.search(data) or any(text.encode() in data for text in UNAVAILABLE_TEXTS):
            return None
        table = read(data, lines)
        if table is None:
            return None
        ops = pc.ascii_lower(table[op_field])
        deleted, upserted = (pc.is_in(ops, pa.array(sorted(known), ops.type)) for known in (DELETES, UPSERTS))
        if not pc.all(pc.or_(deleted, upserted)).as_py():
            return None
        if any(pc.any(pc.and_(pc.is_null(table[name]), upserted)).as_py() for name in required):
            return None
        return table.drop_columns([op_field]).append_column("deleted", deleted)

    return read_block


def change_table(rows: Sequence[Row], schema: Schema) -> pa.Table:
    """
    The rows as Arrow, with the columns of the schema and, last, whether each is deleted.
    """
    deleted = pa.array([DELETED in row for row in rows], pa.bool_())
    return table_of(rows, schema).append_column("deleted", deleted)


def split_deleted(table: pa.Table) -> tuple[pa.Table, pa.Array]:
    """
    The rows of change_table, and whether each is deleted.
    """
    last = table.num_columns - 1
    return table.remove_column(last), table.column(last).combine_chunks()
