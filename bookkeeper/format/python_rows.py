"""
Rows as Python objects, to be shown: also those that hold what Python does not.
"""

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """
    The rows as dicts. A value that Python does not hold, such as a time after the year 9999, is text as Arrow shows it.
    """
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
        return found
    except (ValueError, OverflowError):
        columns = [[_value(value) for value in column] for column in rows.columns]
        return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return " ".join(pa.array([value], value.type).to_string().strip("[] \n").split())
