"""
What the values of a column are, and the type that holds all of them.

A type is chosen only where `writer lines` reads every value of the sample as it: a time needs its zone for timestamptz,
a whole number with leading zeros stays a text.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time

#: of JSON only, beside the names of Iceberg's types
OBJECT, LIST = "object", "list"
_TIMES = frozenset(("date", "timestamp", "timestamptz"))
_TEXTS = _TIMES | {"string"}
#: texts that other programs write for null
NULL_TEXTS = frozenset(("NA", "N/A", "n/a", "#N/A", "null", "NULL", "Null", "None", "nil", "\\N", "-", "?", "."))
_LONG, _DECIMAL_DIGITS = 2**63, 38
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_REAL = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,6}0*)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def kind_of_text(text: str) -> str:
    """
    The narrowest type that reads a CSV text.
    """
    if _WHOLE.fullmatch(text):
        return "long" if len(text) < 20 and -_LONG <= int(text) < _LONG else "string"
    if _REAL.fullmatch(text):
        return "double"
    return "boolean" if text.lower() in ("true", "false") else kind_of_time(text)


def kind_of_time(text: str) -> str:
    """
    date, timestamp or timestamptz where a text is one, else string.
    """
    if not text[:1].isdecimal():
        return "string"
    moment = _MOMENT.fullmatch(text)
    try:
        if moment:
            datetime.fromisoformat(text)
            return "timestamptz" if moment[3] else "timestamp"
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
    except ValueError:
        pass
    return "string"


def kind_of_json(value: object) -> str:
    """
    The kind of a JSON value that is not null.
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if -_LONG <= value < _LONG:
            return "long"
        return f"decimal({_DECIMAL_DIGITS}, 0)" if abs(value) < 10**_DECIMAL_DIGITS else "double"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return kind_of_time(value)
    return OBJECT if isinstance(value, dict) else LIST


def common(kinds: set[str]) -> str | None:
    """
    The type that reads the values of all these kinds; None where there is none.
    """
    if len(kinds) == 1:
        return next(iter(kinds))
    decimal = f"decimal({_DECIMAL_DIGITS}, 0)"
    for wider, narrower in ((decimal, {"long"}), ("double", {"long", decimal}), ("timestamp", {"date"})):
        if kinds <= narrower | {wider}:
            return wider
    return "string" if kinds <= _TEXTS else None


@dataclass
class Column:
    """What was seen of a column: for each kind the first line (from 1) and value, and how many values there were."""

    kinds: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: the texts that are null for other programs, with the first line of each
    null_texts: dict[str, int] = field(default_factory=dict)
    values: int = 0
    example: str = ""
    low: str = ""
    high: str = ""
    fields: dict[str, "Column"] = field(default_factory=dict)
    element: "Column | None" = None

    def see(self, kind: str, line: int, text: str) -> None:
        """Note one value."""
        if kind not in self.kinds:
            self.kinds[kind] = (line, text[:40])
            self.example = self.example or text[:40]
        if kind in _TIMES:
            self.low = min(self.low or text, text)
            self.high = max(self.high, text)

    def days(self) -> int | None:
        """How many days its times span, None of no times."""
        try:
            return (_moment(self.high) - _moment(self.low)).days + 1 if self.low else None
        except (ValueError, OverflowError):
            return None


def _moment(text: str) -> datetime:
    found = datetime.combine(date.fromisoformat(text), time()) if len(text) == 10 else datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@dataclass
class Sample:
    """The columns of a file by name, from so many lines or rows of it; `whole` where these are all."""

    columns: dict[str, Column]
    lines: int = 0
    whole: bool = True
    notes: list[str] = field(default_factory=list)
