"""
Data on stdout: rows as an aligned table or as JSON; talk goes to stderr.

A row is a dict. For people a `timedelta` becomes `1.5 s`, a key that ends in `bytes` a size, a time UTC; in
JSON they are seconds, plain numbers and ISO 8601. None is `-` and null.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from bookkeeper.core.units import spoken, spoken_size

Row = Mapping[str, Any]


def show_rows(rows: Iterable[Row], as_json: bool, nothing: str = "nothing") -> None:
    """
    Print rows as a table, or as a JSON array; `nothing` goes to stderr when a table would have no rows.
    """
    listed = list(rows)
    if as_json:
        click.echo(to_json(listed))
    elif listed:
        click.echo("\n".join(table(listed)))
    else:
        say(nothing)


def show_record(record: Row, as_json: bool) -> None:
    """
    Print one record as `key  value` lines, or as a JSON object.
    """
    if as_json:
        click.echo(to_json(record))
        return
    width = max((len(heading(key)) for key in record), default=0)
    for key, value in record.items():
        click.echo(f"{heading(key):<{width}}  {human(key, value)}".rstrip())


def say(text: str) -> None:
    """
    Print talk on stderr.
    """
    click.echo(text, err=True)


def to_json(data: Any) -> str:
    """
    `data` as JSON for programs.
    """
    return json.dumps(data, indent=2, default=plain)


def plain(value: Any) -> Any:
    """
    What JSON has no word for, as programs read it.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


def table(rows: Sequence[Row]) -> list[str]:
    """
    The lines of an aligned table with the keys of all rows as columns; numbers and sizes to the right.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[human(key, row.get(key)) for key in columns] for row in rows]
    heads = [heading(key) for key in columns]
    widths = [max(len(line[index]) for line in [heads, *cells]) for index in range(len(columns))]
    right = [any(_is_amount(row.get(key)) for row in rows) for key in columns]
    return [_aligned(line, widths, right) for line in [heads, *cells]]


def _aligned(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        text.rjust(width) if to_right else text.ljust(width)
        for text, width, to_right in zip(line, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float, timedelta)) and not isinstance(value, bool)


def heading(key: str) -> str:
    """
    A key as a person reads it.
    """
    return key.replace("_", " ").replace("-", " ")


def human(key: str, value: Any) -> str:
    """
    A value as a person reads it.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return spoken(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if key.endswith("bytes") and _is_amount(value):
        return spoken_size(value)
    return _human_plain(value)


def _human_plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={human(str(key), item)}" for key, item in value.items()) or "-"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(human("", item) for item in value) or "-"
    return str(value)
