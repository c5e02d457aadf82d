"""
Converts JSON values and CSV texts to values of Iceberg's types.

A value that does not fit raises ValueError with its reason; nothing is guessed, cut or rounded.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=60)
_MOST_DIGITS = 4000  # Python refuses a text of more than 4,300 as an int
_NANOSECONDS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
#: the greatest 32 bit float
MOST_SINGLE = 3.4028235e38


class RepeatedKeys(dict[str, Any]):
    """A JSON object that names a key twice; `repeated` has those keys."""

    repeated: frozenset[str]


class OutOfRange:
    """A JSON number that Python does not read."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def converter(kind: IcebergType, base64_bytes: bool = False, ignore_unknown: bool = False) -> Convert:
    """
    A function that turns a JSON value (never null) into one that Arrow takes for this type; it raises ValueError.
    """
    if isinstance(kind, StructType):
        return _struct(kind, base64_bytes, ignore_unknown)
    if isinstance(kind, ListType):
        return _list(kind, base64_bytes, ignore_unknown)
    if isinstance(kind, MapType):
        return _map(kind, base64_bytes, ignore_unknown)
    if isinstance(kind, DecimalType):
        return lambda value: _decimal(value, kind)
    if str(kind) == "binary" or isinstance(kind, FixedType):
        size = len(kind) if isinstance(kind, FixedType) else None
        return lambda value: _bytes(value, base64_bytes, size)
    return _SIMPLE[str(kind)]


def json_decoder(decimals: bool, ignore_unknown: bool = False) -> json.JSONDecoder:
    """
    A decoder that hides nothing: a key that is given twice, a number that is too big.

    `decimals`: numbers with a fraction are not floats. With `ignore_unknown` a number that Python does not read is no
    error before it is known whether it is ignored.
    """
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_float=_number if decimals or ignore_unknown else None,
        parse_int=_whole_number if ignore_unknown else None,
        # Decimals, so that an infinity that is written is no float that is too big.
        parse_constant=Decimal,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    twice = RepeatedKeys(found)
    twice.repeated = frozenset(name for name in names if names.count(name) > 1)
    return twice


def _number(text: str) -> Decimal | OutOfRange:
    try:
        return Decimal(text)
    except InvalidOperation:
        return OutOfRange(text)


def _whole_number(text: str) -> int | OutOfRange:
    return int(text) if len(text) <= _MOST_DIGITS else OutOfRange(text)


def text_converter(kind: IcebergType, base64_bytes: bool = False, ignore_unknown: bool = False) -> Convert:
    """
    The same for a CSV text: plain numbers and booleans, nested values as JSON.
    """
    convert = converter(kind, base64_bytes, ignore_unknown)
    if not kind.is_primitive:
        decode = json_decoder(decimals=True, ignore_unknown=ignore_unknown).decode
        return lambda text: convert(decode(text))
    read = _FROM_TEXT.get(str(kind))
    return convert if read is None else lambda text: convert(read(text))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a text")
    value.encode()  # a lone surrogate, which JSON can hold, cannot be stored
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is not true or false")
    return value


def _integer(bits: int) -> Convert:
    most = 2 ** (bits - 1)

    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{_shown(value)} is not a whole number")
        if not -most <= value < most:
            raise ValueError(f"{value} does not fit into {bits} bits")
        return value

    return convert


def _double(value: Any) -> float:
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError as exc:
        raise ValueError(f"{_shown(value)} does not fit into 64 bits") from exc
    if math.isinf(number) and not (isinstance(value, Decimal) and value.is_infinite()):
        raise ValueError(f"{_shown(value)} does not fit into 64 bits")
    return number


def _single(value: Any) -> float:
    number = _double(value)
    if math.isfinite(number) and abs(number) > MOST_SINGLE:
        raise ValueError(f"{number} does not fit into 32 bits")
    return number


def _decimal(value: Any, kind: DecimalType) -> Decimal:
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, Decimal)):
        raise ValueError(f"{_shown(value)} is not a decimal")
    try:
        number = Decimal(value)
    except InvalidOperation as exc:
        raise ValueError(f"{_shown(value)} is not a decimal") from exc
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a decimal")
    lost = [digit for digit in digits[exponent + kind.scale :] if digit] if exponent < -kind.scale else []
    if lost or (number and number.adjusted() >= kind.precision - kind.scale):
        raise ValueError(f"{value} does not fit into {kind}")
    return number.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)


def _date(value: Any) -> date:
    return date.fromisoformat(_string(value))


def _moment(value: Any) -> str:
    text = _string(value)
    if _NANOSECONDS.search(text):  # Python would cut them
        raise ValueError(f"{_shown(text)} has parts of a microsecond, which the table cannot hold")
    return text


def _time(value: Any) -> time:
    parsed = time.fromisoformat(_moment(value))
    if parsed.tzinfo:
        raise ValueError(f"{value!r} has a time zone, a time of day has none")
    return parsed


def _timestamp(value: Any) -> int:
    parsed = datetime.fromisoformat(_moment(value))
    if parsed.tzinfo:
        raise ValueError(f"{value!r} has a time zone, a timestamp has none")
    return (parsed.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def _timestamptz(value: Any) -> int:
    parsed = datetime.fromisoformat(_moment(value))
    if not parsed.tzinfo:
        raise ValueError(f"{value!r} has no time zone; write it like 2026-01-31T12:00:00Z")
    return (parsed - _EPOCH) // _MICROSECOND


def _uuid(value: Any) -> bytes:
    return UUID(_string(value)).bytes


def _bytes(value: Any, base64_bytes: bool, size: int | None) -> bytes:
    text = _string(value)
    data = base64.b64decode(text, validate=True) if base64_bytes else text.encode()
    if size is not None and len(data) != size:
        raise ValueError(f"{len(data)} bytes are given, the column has {size}")
    return data


def _struct(kind: StructType, base64_bytes: bool, ignore_unknown: bool) -> Convert:
    fields = {
        field.name: (field.required, converter(field.field_type, base64_bytes, ignore_unknown)) for field in kind.fields
    }

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        check_keys(value, fields.keys())
        unknown = value.keys() - fields.keys()
        if unknown and not ignore_unknown:
            raise ValueError(f"{min(unknown)!r} is not a field of this column")
        return {name: _nullable(value.get(name), name, *field) for name, field in fields.items()}

    return convert


def check_keys(value: dict[str, Any], known: Collection[str]) -> None:
    """
    Raises ValueError when an object gives one of these keys twice.
    """
    if isinstance(value, RepeatedKeys):
        twice = sorted(name for name in value.repeated if name in known)
        if twice:
            raise ValueError(f"{_shown(twice[0])} is given twice")


def _list(kind: ListType, base64_bytes: bool, ignore_unknown: bool) -> Convert:
    element = converter(kind.element_type, base64_bytes, ignore_unknown)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is not a list")
        return [_nullable(item, "element", kind.element_required, element) for item in value]

    return convert


def _map(kind: MapType, base64_bytes: bool, ignore_unknown: bool) -> Convert:
    key = text_converter(kind.key_type, base64_bytes, ignore_unknown)
    value_of = converter(kind.value_type, base64_bytes, ignore_unknown)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        check_keys(value, value.keys())
        return [(key(name), _nullable(item, name, kind.value_required, value_of)) for name, item in value.items()]

    return convert


def _nullable(value: Any, name: str, required: bool, convert: Convert) -> Any:
    if value is not None:
        return convert(value)
    if required:
        raise ValueError(f"required {name!r} is missing")
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _truth(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.lower())
    if found is None:
        raise ValueError(f"{_shown(text)} is not true or false")
    return found


def _whole(text: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,40}\s*", text):
        raise ValueError(f"{_shown(text)} is not a whole number")
    return int(text)


def _real(text: str) -> float | Decimal:
    number = float(text)
    if not math.isinf(number):
        return number
    try:
        return Decimal(text)  # which tells an infinity from a number that is too big
    except InvalidOperation as exc:
        raise ValueError(f"{_shown(text)} does not fit into 64 bits") from exc


_SIMPLE: dict[str, Convert] = {
    "string": _string,
    "boolean": _boolean,
    "int": _integer(32),
    "long": _integer(64),
    "float": _single,
    "double": _double,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "uuid": _uuid,
}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "boolean": _truth,
    "int": _whole,
    "long": _whole,
    "float": _real,
    "double": _real,
}
