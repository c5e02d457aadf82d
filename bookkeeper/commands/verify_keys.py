"""
`verify --deep`: keys of a keyed table that are live twice. Reads the key columns of every live file.

Holds the keys of all live rows in memory.
"""

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from bookkeeper.commands.audit import ERROR, WARNING, Audit, Finding
from bookkeeper.commands.live_rows import live_rows
from bookkeeper.contract.keyed import keyed_of
from bookkeeper.errors import CannotRead
from bookkeeper.format.python_rows import python_rows
from bookkeeper.format.transforms import physical

#: keys that are shown
MOST_SHOWN = 20


def double_keys(audit: Audit) -> list[Finding]:
    """
    A finding for each key with two live rows, up to 20 of them; none for a table that is not keyed. Raises Retry.
    """
    keyed = keyed_of(audit.view.metadata)
    if keyed is None:
        return []
    schema = audit.view.metadata.schema()
    empty = schema_to_pyarrow(Schema(*map(schema.find_field, keyed.key_ids))).empty_table()
    try:
        live = [empty, *live_rows(audit.ledger, audit.view, keyed, keyed.key_ids)]
    except CannotRead as error:
        return [Finding(WARNING, f"which keys are live is not known: {error}", audit.settings.identifier)]
    return [*_doubles(pa.concat_tables(live), audit.settings.identifier)]


def _doubles(keys: pa.Table, table: str) -> Iterator[Finding]:
    names = [f"k{number}" for number in range(keys.num_columns)]
    uuids = {name for name, kind in zip(names, keys.schema.types, strict=True) if isinstance(kind, pa.UuidType)}
    # Arrow groups no extension types.
    plain = [physical(column) if name in uuids else column for name, column in zip(names, keys.columns, strict=True)]
    counted = pa.table(plain, names=names).append_column("one", pa.repeat(pa.scalar(1), keys.num_rows))
    times = counted.group_by(names).aggregate([("one", "sum")])
    double = times.filter(pc.greater(times.column("one_sum"), 1))
    for row in python_rows(double.slice(0, MOST_SHOWN)):
        shown = ", ".join(
            f"{column} = {str(UUID(bytes=row[name])) if name in uuids else row[name]!r:.60}"
            for name, column in zip(names, keys.column_names, strict=True)
        )
        yield Finding(ERROR, f"{row['one_sum']} rows with {shown} are live, of {double.num_rows} such keys", table)
