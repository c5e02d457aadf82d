"""
Which text is which type, and which value: of CSV fields, of texts in JSON and of numbers in JSON.

`writer lines` reads every text by it; `bookkeeper init --like` and schemas that grow choose the types of new columns by
it. The forms are ASCII, and the same for each version of Python, whose own parsers also take `1_000`, digits of other
scripts, `+01:75`, and 1000 as a time of day. What a type does not take raises ValueError. Nothing is guessed, cut or
rounded, but that a float is the one nearest to its text.
"""

import math
import re
from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

#: of JSON only, beside the names of Iceberg's types
OBJECT, LIST = "object", "list"
#: the widest whole numbers that are no floats
MOST_DECIMAL = "decimal(38, 0)"
TIMES = frozenset(("date", "timestamp", "timestamptz"))

_ANY_CASE = re.IGNORECASE | re.ASCII  # else a dotless i is an i
_DIGITS, _NAMES = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", "nan|inf|infinity"
_WHOLE = re.compile("[ \t]*[+-]?[0-9]{1,40}[ \t]*")
_NUMBER = re.compile(f"[ \t]*[+-]?{_DIGITS}[ \t]*")
_NAMED = re.compile(f"[ \t]*[+-]?(?:{_NAMES})[ \t]*", _ANY_CASE)
_HOUR, _SIXTY, _FRACTION = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]", r"(?:[.,][0-9]{1,6}0*)?"
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}")
#: a time of day; RE2 reads it, too
CLOCK = re.compile(f"{_HOUR}:{_SIXTY}(?::{_SIXTY}{_FRACTION})?")
#: groups: a time of day, and its zone; Python refuses a day with one hyphen
_MOMENT = re.compile(
    "[0-9]{4}-?[0-9]{2}-?[0-9]{2}"
    f"([T ]{_HOUR}(?::?{_SIXTY}(?::?{_SIXTY}{_FRACTION})?)?( ?(?:Z|[+-]{_HOUR}(?::?{_SIXTY})?))?)?"
)
#: to be matched in any case, by Java's regular expressions, too
UUID_TEXT = "(?:urn:uuid:)?[{]?(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})[}]?"
_UUID = re.compile(UUID_TEXT, _ANY_CASE)
_PARTS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
#: A new column is whole numbers only where these are all there is to them: with a plus or leading zeros it may be a
#: telephone number or a postal code, and stays a text.
_PLAIN_WHOLE = re.compile("-?(?:0|[1-9][0-9]*)")
_PLAIN_REAL = re.compile(f"[+-]?(?:(?=[0-9]*[.eE]){_DIGITS}|{_NAMES})", _ANY_CASE)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def shown(value: Any) -> str:
    """
    A value as messages quote it, cut to 60 characters.
    """
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def boolean(text: str) -> bool:
    """
    true or false, in any case.
    """
    found = {"true": True, "false": False}.get(text.lower())
    if found is None:
        raise ValueError(f"{shown(text)} is not true or false")
    return found


def whole(text: str) -> int:
    """
    A whole number of up to 40 digits, blanks and tabs around it.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a whole number")
    return int(text)


def real(text: str) -> float:
    """
    The float of 64 bits that is nearest to a number; nan and infinities by their names.
    """
    if _NUMBER.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError(f"{shown(text)} does not fit into 64 bits")
        return number
    if _NAMED.fullmatch(text):
        return float(text)
    raise ValueError(f"{shown(text)} is not a number")


def decimal(text: str) -> Decimal:
    """
    A number with all its digits.
    """
    try:
        if _NUMBER.fullmatch(text):
            return Decimal(text.strip())
    except InvalidOperation:  # an exponent of some twenty digits
        pass
    raise ValueError(f"{shown(text)} is not a decimal")


def day(text: str) -> date:
    """
    2026-01-31 or 20260131.
    """
    if not _DAY.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a date; write it like 2026-01-31")
    return date.fromisoformat(text)


def clock(text: str) -> time:
    """
    A time of day with at least hour and minute: 12:30, 12:30:15.25.
    """
    if not CLOCK.fullmatch(text):
        no_clock = ValueError(f"{shown(text)} is not a time of day without a zone; write it like 12:30:15")
        raise _with_parts(text) or no_clock
    return time.fromisoformat(text)


def moment(text: str) -> int:
    """
    Microseconds from 1970-01-01 to a time without a zone; one without a time of day is midnight.

    A day, T or a blank, hour, minutes, seconds and parts of a second; as far as is given, with or without - and :.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise _no_moment(text)
    if found[2]:
        raise ValueError(f"{shown(text)} has a time zone, a timestamp has none")
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def instant(text: str) -> int:
    """
    The same for a time with its zone: microseconds since 1970-01-01 in UTC.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise _no_moment(text)
    if not found[2]:
        raise ValueError(f"{shown(text)} has no time zone; write it like 2026-01-31T12:00:00Z")
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _no_moment(text: str) -> ValueError:
    example = "2026-01-31T12:00:00, with Z or +01:00 for a zone"
    return _with_parts(text) or ValueError(f"{shown(text)} is not a time; write it like {example}")


def _with_parts(text: str) -> ValueError | None:
    parts = f"{shown(text)} has parts of a microsecond, which the table cannot hold"
    return ValueError(parts) if _PARTS.search(text) else None


def uuid(text: str) -> bytes:
    """
    32 hexadecimal digits, with all four hyphens or none, in braces or behind urn:uuid: if need be.
    """
    if not _UUID.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a UUID")
    return UUID(text).bytes


def type_of_text(text: str) -> str:
    """
    The type of a new column for a CSV field, which that type takes.
    """
    if _PLAIN_WHOLE.fullmatch(text):
        return "long" if len(text) <= 20 and -(2**63) <= int(text) < 2**63 else "string"
    if _PLAIN_REAL.fullmatch(text):
        return "double" if _is_taken(real, text) else "string"
    return "boolean" if text.lower() in ("true", "false") else _type_of_time(text)


def type_of_json(value: Any) -> str | None:
    """
    The type of a new column for a JSON value as json_decoder gives it; None for null and for what no type takes.
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return "long"
        return MOST_DECIMAL if abs(value) < 10**38 else "double" if _is_taken(float, value) else None
    if isinstance(value, float | Decimal):
        return "double" if _is_finite(value) else None
    if isinstance(value, str):
        return _type_of_time(value) if value.isascii() or _is_taken(str.encode, value) else None
    return OBJECT if isinstance(value, dict) else LIST if isinstance(value, list) else None


def _is_finite(value: float | Decimal) -> bool:
    """Whether it is a number of 64 bits; NaN and infinities that are written as such are Decimals."""
    written = isinstance(value, Decimal) and not value.is_finite()
    return written or math.isfinite(value)


def _type_of_time(text: str) -> str:
    found = _MOMENT.fullmatch(text) if text[:1].isdecimal() else None
    if found is None or not _is_taken(datetime.fromisoformat, text):
        return "string"
    if found[1]:
        return "timestamptz" if found[2] else "timestamp"
    return "date" if "-" in text else "string"


def _is_taken(read: Any, value: Any) -> bool:
    try:
        read(value)
    except (ValueError, OverflowError):
        return False
    return True


def common_type(types: Collection[str]) -> str | None:
    """
    The type that takes the values of all these types; None where there is none.
    """
    found = set(types)
    if len(found) == 1:
        return next(iter(found))
    for wider, narrower in ((MOST_DECIMAL, {"long"}), ("double", {"long", MOST_DECIMAL}), ("timestamp", {"date"})):
        if found <= narrower | {wider}:
            return wider
    return "string" if found <= TIMES | {"string"} else None
