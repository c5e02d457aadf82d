"""
The columns of Parquet and Arrow files: their own, in the types that Iceberg has for them.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.commands.infer.sample import Column, Sample
from bookkeeper.errors import ConfigInvalid
from bookkeeper.format.arrow_types import holding, type_of_arrow
from bookkeeper.format.input_files import row_kind


def read_arrow(path: str) -> tuple[pa.Schema, Sample]:
    """
    The schema of a Parquet or Arrow file, and what it says of its rows; raises ConfigInvalid.
    """
    try:
        schema, sample = _parquet(path) if row_kind(path) == "Parquet" else _arrow(path)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise ConfigInvalid(f"{path} cannot be read as {row_kind(path)}: {str(exc)[:200]}") from exc
    fields = []
    for field in schema:
        kind = _fitting(field.type, field.name, path, sample.notes)
        fields.append(field.with_type(kind))
    return pa.schema(fields), sample


def _fitting(kind: pa.DataType, where: str, path: str, notes: list[str]) -> pa.DataType:
    """The type without what Iceberg does not have; the writer checks that no value is lost."""

    def inner(child: pa.Field) -> pa.Field:
        return child.with_type(_fitting(child.type, f"{where}.{child.name}", path, notes))

    if pa.types.is_struct(kind):
        return pa.struct([inner(child) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field))
    if pa.types.is_null(kind):
        notes.append(f"column {where!r} has no type in {path}: taken as text.")
        return pa.string()
    if type_of_arrow(kind) is None:
        raise ConfigInvalid(
            f"{path}: column {where!r} has the type {kind}, which Iceberg does not have",
            hint="Cast or leave out the column, or say the columns by --schema FILE.",
        )
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        notes.append(f"column {where!r} has nanoseconds, the table microseconds: rows that would lose any are bad.")
    return holding(kind)


def _parquet(path: str) -> tuple[pa.Schema, Sample]:
    with pq.ParquetFile(path) as file:
        schema, facts = file.schema_arrow, file.metadata
        sample = Sample({name: Column() for name in schema.names}, facts.num_rows)
        for index in range(facts.num_columns):
            name = facts.schema.column(index).path
            if name in sample.columns and _has_days(schema.field(name).type):
                for group in range(facts.num_row_groups):
                    found = facts.row_group(group).column(index).statistics
                    if found is not None and found.has_min_max:
                        _see(sample.columns[name], partial(_bounds, found))
    return schema, sample


def _arrow(path: str) -> tuple[pa.Schema, Sample]:
    with pa.memory_map(path) as file:
        reader = pa.ipc.open_file(file)
        schema = reader.schema
        sample = Sample({name: Column() for name in schema.names})
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            sample.lines += batch.num_rows
            for name, column in zip(schema.names, batch.columns, strict=True):
                if _has_days(column.type):
                    _see(sample.columns[name], partial(_least_and_most, column))
    return schema, sample


def _bounds(statistics: Any) -> tuple[Any, ...]:
    return statistics.min, statistics.max


def _least_and_most(column: pa.Array) -> tuple[Any, ...]:
    return tuple(pc.min_max(column).as_py().values())


def _has_days(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _see(column: Column, bounds: Callable[[], Any]) -> None:
    try:
        for value in bounds():
            if isinstance(value, datetime):
                column.see("timestamptz", 0, (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat())
            elif isinstance(value, date):
                column.see("date", 0, value.isoformat())
    except (ValueError, OverflowError):  # the year 10000: Python does not have it
        pass
