"""
Data on stdout: rows as an aligned table or as JSON; messages go to stderr.

A row is a dict. For people a `timedelta` becomes `1.5 s`, a key that ends in `bytes` a size, a time UTC; in
JSON they are seconds, plain numbers and ISO 8601. None is `-` and null. The id of a snapshot is a string in JSON:
JavaScript and jq would round it.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from bookkeeper.config.units import format_duration, spoken_size
from bookkeeper.console import status_line
from bookkeeper.console.colour import BOLD, FAINT, painted, tone_of
from bookkeeper.console.secrets import redacted

Row = Mapping[str, Any]
_FREE_TEXT = ("trouble", "state", "outcome", "reason", "hint", "what", "why", "verdict")
_ID, _IDS = ("snapshot", "snapshot_id", "base"), ("snapshots", "expire")
_COUNTS = ("rows", "files", "snapshots", "txlogs", "pending", "data_files", "live_files", "batch")


def show_rows(rows: Iterable[Row], as_json: bool, nothing: str = "nothing") -> None:
    """
    Print rows as a table, or as a JSON array; `nothing` goes to stderr when a table would have no rows.

    On a terminal that is too narrow for the table each row is a record.
    """
    status_line.release()
    listed = [_safe(row) for row in rows]
    if as_json:
        click.echo(to_json(listed))
    elif not listed:
        say(nothing)
    elif sys.stdout.isatty() and len(max(table(listed), key=len)) > shutil.get_terminal_size().columns:
        click.echo("\n\n".join("\n".join(_record(row)) for row in listed))
    else:
        click.echo("\n".join(table(listed, paint=True)))


def show_record(record: Row, as_json: bool) -> None:
    """
    Print one record as `key  value` lines, or as a JSON object.
    """
    status_line.release()
    safe = _safe(record)
    click.echo(to_json(safe) if as_json else "\n".join(_record(safe)))


def _safe(row: Row) -> Row:
    """Hides secrets in free text: a library's error message may hold a password."""
    return {
        key: redacted(value) if key in _FREE_TEXT and isinstance(value, str) else value for key, value in row.items()
    }


def _record(record: Row) -> list[str]:
    width = max((len(heading(key)) for key in record), default=0)
    names = [painted(heading(key).ljust(width), FAINT) for key in record]
    texts = [painted(human(key, value), tone_of(key, value)) for key, value in record.items()]
    return [f"{name}  {text}".rstrip() for name, text in zip(names, texts, strict=True)]


def say(text: str) -> None:
    """
    Print a message on stderr.
    """
    status_line.release()
    click.echo(redacted(text), err=True)


def to_json(data: Any) -> str:
    """
    `data` as JSON for programs.
    """
    return json.dumps(_exact(data), indent=2, default=plain)


def _exact(data: Any, is_id: bool = False) -> Any:
    if isinstance(data, Mapping):
        return {key: _exact(value, key in _ID or (key in _IDS and _is_list(value))) for key, value in data.items()}
    if _is_list(data):
        return [_exact(value, is_id) for value in data]
    return str(data) if is_id and type(data) is int else data


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def plain(value: Any) -> Any:
    """
    A value that JSON has no type for, as one that it has.
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


def printable(text: str) -> str:
    """
    The text with escapes in place of what could move the cursor, end the line, or pass for another column.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def table(rows: Sequence[Row], paint: bool = False) -> list[str]:
    """
    The lines of an aligned table with the keys of all rows as columns; numbers and sizes to the right.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[human(key, row.get(key)) for key in columns] for row in rows]
    heads = [heading(key) for key in columns]
    widths = [max(len(line[index]) for line in [heads, *cells]) for index in range(len(columns))]
    right = [any(_is_amount(row.get(key)) for row in rows) for key in columns]
    tones: list[list[str | None]] = [
        [BOLD] * len(columns),
        *([tone_of(key, row.get(key)) for key in columns] for row in rows),
    ]
    lines = zip([heads, *cells], tones, strict=True)
    return [_aligned(line, widths, right, how if paint else [None] * len(columns)) for line, how in lines]


def _aligned(line: Sequence[str], widths: Sequence[int], right: Sequence[bool], tones: Sequence[str | None]) -> str:
    aligned = [
        text.rjust(width) if to_right else text.ljust(width)
        for text, width, to_right in zip(line, widths, right, strict=True)
    ]
    aligned[-1] = aligned[-1].rstrip()
    return "  ".join(painted(text, tone) for text, tone in zip(aligned, tones, strict=True)).rstrip()


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float, timedelta)) and not isinstance(value, bool)


def heading(key: str) -> str:
    """
    A key as a person reads it.
    """
    return key.replace("_", " ").replace("-", " ")


def human(key: str, value: Any) -> str:
    """
    A value as a person reads it; what others wrote moves no cursor.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return _amount(key, value) if _is_amount(value) else _human_plain(value)


def _amount(key: str, value: int | float) -> str:
    if key.endswith("bytes"):
        return spoken_size(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if key in _COUNTS and value >= 10_000 else str(value)


def _human_plain(value: Any) -> str:
    if isinstance(value, bytes):
        return printable(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={human(str(key), item)}" for key, item in value.items()) or "-"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(human("", item) for item in value) or "-"
    return printable(str(value))
