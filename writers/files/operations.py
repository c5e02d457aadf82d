"""
Arrow rows as operations on a keyed table: inserts, upserts and deletes, in the order in which they happen.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.arrow_types import type_of_arrow
from writers.files.keyed_spec import KeyedSpec
from writers.files.last_of_each_key import DELETE
from writers.files.write_spec import WriteSpec
from writers.values.cast import cast

_DELETED = "Give one True (delete) or False (upsert) for each row: change(rows, [True, False])."


class Operations(NamedTuple):
    """
    The kind of each operation, its key in the key schema of a WriteSpec, and the rows of those that are no deletes in
    its schema.
    """

    kinds: pa.Array
    keys: pa.Table
    written: pa.Table

    def size(self) -> int:
        """Bytes of Arrow data."""
        return int(self.keys.nbytes + self.written.nbytes)

    def slice(self, start: int, count: int) -> "Operations":
        """So many of them from `start` on."""
        kinds = self.kinds.slice(start, count)
        before, within = _written(self.kinds.slice(0, start)), _written(kinds)
        return Operations(kinds, self.keys.slice(start, count), self.written.slice(before, within))

    def pieces(self, most_rows: int, most_bytes: int) -> Iterator["Operations"]:
        """All of them, in pieces of so many rows and about so many bytes."""
        count = min(most_rows, max(len(self.kinds) * most_bytes // max(self.size(), 1), 1))
        return (self.slice(start, count) for start in range(0, len(self.kinds), count))


def _written(kinds: pa.Array) -> int:
    return len(kinds) - (pc.sum(pc.equal(kinds, pa.scalar(DELETE, pa.int8()))).as_py() or 0)


def operations(table: pa.Table, spec: WriteSpec, keyed: KeyedSpec, kind: int) -> Operations:
    """
    Operations of one kind; of deletes `table` holds the keys. Raises SchemaRefused.
    """
    keyed.check_given(table.column_names, spec.ids, kind)
    kinds = pa.repeat(pa.scalar(kind, pa.int8()), table.num_rows)
    if kind == DELETE:
        return Operations(kinds, cast(table, keyed.schema, keyed.arrow, spec.former), spec.arrow.empty_table())
    rows = cast(table, spec.schema, spec.arrow, spec.former)
    return Operations(kinds, rows.select(keyed.names), rows)


def booleans(values: Any) -> pa.Array:
    """
    A sequence of booleans as Arrow; raises SchemaRefused.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        found = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as exc:
        raise SchemaRefused(f"`deleted` is {type(values).__name__}: {str(exc)[:200]}", hint=_DELETED) from exc
    return pa.array([], pa.bool_()) if pa.types.is_null(found.type) and not len(found) else found


def changes(table: pa.Table, spec: WriteSpec, keyed: KeyedSpec, kind: int, deleted: pa.Array) -> Operations:
    """
    Operations of this kind but where `deleted` says so: of those rows only the keys count. Raises SchemaRefused.
    """
    if len(deleted) != table.num_rows or deleted.null_count or not pa.types.is_boolean(deleted.type):
        count, nulls = len(deleted), deleted.null_count
        shown = type_of_arrow(deleted.type) or deleted.type
        raise SchemaRefused(
            f"`deleted` has {count} values of type {shown}, {nulls} of them null; there are {table.num_rows} rows",
            hint=_DELETED,
        )
    written = operations(table.filter(pc.invert(deleted)), spec, keyed, kind)
    keys = table.select([name for name in table.column_names if spec.ids.get(name) in keyed.key_ids])
    kinds = pc.if_else(deleted, pa.scalar(DELETE, pa.int8()), pa.scalar(kind, pa.int8()))
    return Operations(kinds, operations(keys, spec, keyed, DELETE).keys, written.written)
