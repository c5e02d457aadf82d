"""
The column that `retention.keep` compares: its newest value in a file is that file's age.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from bookkeeper.config.settings import Retention
from bookkeeper.errors import ConfigInvalid

_MICROS = timedelta(microseconds=1)
#: unit and bytes of a bound of the column's type
_UNITS = {"timestamp": (_MICROS, 8), "timestamptz": (_MICROS, 8), "date": (timedelta(days=1), 4)}


class RetentionColumn(NamedTuple):
    """A column of times: the unit of its values, and the bytes of a bound of it."""

    field_id: int
    unit: timedelta
    width: int
    required: bool


def is_time(kind: IcebergType) -> bool:
    """
    Whether a column of this type can be the one.
    """
    return str(kind) in _UNITS


def retention_column(settings: Retention, schema: Schema, schemas: Iterable[Schema]) -> RetentionColumn:
    """
    The column that the settings name, else the first with a time; raises ConfigInvalid where none can serve.

    `schemas` are all that the table has. A column that is the first since another one was moved or dropped must be
    named: by the time in it, say a date of birth, rows may be old as soon as they are written.
    """
    if settings.column is None:
        field = next((field for field in schema.fields if is_time(field.field_type)), None)
        if field is None:
            raise ConfigInvalid("retention.keep needs a timestamp or date column, and the table has none")
        times = (item for known in (schema, *schemas) for item in known.fields if is_time(item.field_type))
        first = min(times, key=lambda item: item.field_id)
        if first.field_id < field.field_id:
            raise ConfigInvalid(
                f"retention.column must be named: {field.name!r} is the first with a time since {first.name!r} was "
                "moved or dropped"
            )
    else:
        try:
            field = schema.find_field(settings.column)
        except ValueError as exc:
            raise ConfigInvalid(f"retention.column = {settings.column!r}: the table has no such column") from exc
        if str(field.field_type) not in _UNITS:
            raise ConfigInvalid(
                f"retention.column = {settings.column!r} is {field.field_type}; timestamp or date is allowed"
            )
    unit, width = _UNITS[str(field.field_type)]
    return RetentionColumn(field.field_id, unit, width, field.required)
