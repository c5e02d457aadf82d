"""
What a program gives as rows, as Arrow: Arrow data itself, frames of other libraries, files, and Python objects.

Python values become the type that Arrow infers of them; the cast to the table's types (writers.values.cast) then
refuses what does not fit, as it does for Arrow rows. Libraries are known by the methods they have: none is imported.
"""

import dataclasses
import enum
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow.interchange import from_dataframe  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import MapType

from bookkeeper.errors import SchemaRefused
from bookkeeper.format.input_files import row_kind

_HINT = (
    "Give a pyarrow Table or RecordBatch, a polars or pandas frame or something else with an Arrow C stream, a dict or "
    "a list or generator of dicts, dataclass or pydantic objects, or the Path of a Parquet or Arrow file."
)


def as_table(rows: Any, schema: Schema) -> pa.Table:
    """
    Rows as a table, not yet in the types of `schema`, which is the table's; raises SchemaRefused, also for text that is
    not UTF-8: such rows would be in a table whose readers end at them.

    Python rows are a dict, a dataclass or a pydantic object, or a list or iterator of them; a key that a row lacks is
    null. Of a Path the whole file is read: `writer lines` loads large ones in pieces.
    """
    if (found := _arrow(rows)) is not None:
        check_texts(found)
        return found
    return _table([_mapping(row) for row in (rows if isinstance(rows, list | tuple | Iterator) else [rows])], schema)


def check_texts(table: pa.Table) -> None:
    """
    Raises SchemaRefused for texts that are not UTF-8: a file may hold them, and pyarrow reads them as they are.
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise SchemaRefused(str(exc)) from exc


def _arrow(rows: Any) -> pa.Table | None:
    """Arrow data, frames and files as a table; None for Python objects."""
    if type(rows).__name__ == "LazyFrame":  # of polars, which has no Arrow C stream until it is collected
        rows = rows.collect()
    if isinstance(rows, Path):
        return _file(rows)
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table) or hasattr(rows, "__arrow_c_stream__"):
        return rows if isinstance(rows, pa.Table) else pa.table(rows)
    return from_dataframe(rows) if hasattr(rows, "__dataframe__") else None  # pandas before 2.2


def _file(path: Path) -> pa.Table:
    try:
        kind = row_kind(str(path))
        if kind == "Parquet":
            return pq.read_table(path, partitioning=None)
        if kind == "Arrow":
            with pa.OSFile(str(path)) as raw, pa.ipc.open_file(raw) as file:
                return file.read_all()
    except (pa.ArrowException, OSError) as exc:
        raise SchemaRefused(f"{path} cannot be read: {str(exc)[:200]}", hint=_HINT) from exc
    raise SchemaRefused(f"{path} is no Parquet or Arrow file", hint="`writer lines` loads CSV and NDJSON.")


def _mapping(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "model_dump"):
        dumped: Mapping[str, Any] = row.model_dump()
        return dumped
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.asdict(row)
    raise SchemaRefused(f"{type(row).__name__} is no row", hint=_HINT)


def _table(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    kinds = {field.name: field.field_type for field in schema.fields}
    # Not the first row's keys alone: a column that only a later one has would be lost without a word.
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [_plain(row.get(name)) for row in rows]
        try:
            columns[name] = _maps(values) if isinstance(kinds.get(name), MapType) else pa.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as exc:
            raise SchemaRefused(f"column {name!r}: {str(exc)[:200]}") from exc
    return pa.table(columns)


def _plain(value: Any) -> Any:
    """A value that Arrow knows: of an enum its value, of a UUID its bytes."""
    if isinstance(value, enum.Enum):
        value = value.value
    return value.bytes if isinstance(value, uuid.UUID) else value


def _maps(values: Sequence[Any]) -> pa.Array:
    """Dicts as a map, which Arrow would take for structs."""
    offsets: list[int | None] = [0]
    keys: list[Any] = []
    items: list[Any] = []
    for value in values:
        found = [] if value is None else list(dict(value).items())
        keys += [_plain(key) for key, _ in found]
        items += [_plain(item) for _, item in found]
        offsets.append(len(keys))
    mask = pa.array([value is None for value in values])
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(keys), pa.array(items), mask=mask)
