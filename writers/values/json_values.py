"""
Converts JSON values and CSV texts to values of Iceberg's types.

A value that does not fit raises ValueError with its reason; nothing is guessed, cut or rounded.
"""

import base64
import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

from bookkeeper.format import csv_json_types as text_types
from bookkeeper.format.csv_json_types import shown
from bookkeeper.format.json_decoder import check_keys, json_decoder

Convert = Callable[[Any], Any]

_EXACT = Context(prec=60)
#: the greatest 32 bit float
MOST_SINGLE = 3.4028235e38


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


def text_converter(kind: IcebergType, base64_bytes: bool = False, ignore_unknown: bool = False) -> Convert:
    """
    The same for a CSV text: numbers and booleans are texts, too, and nested values JSON.
    """
    convert = converter(kind, base64_bytes, ignore_unknown)
    if not kind.is_primitive:
        decode = json_decoder(decimals=True, ignore_unknown=ignore_unknown).decode
        return lambda text: convert(decode(text))
    return _FROM_TEXT.get(str(kind), convert)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a text")
    value.encode()  # a lone surrogate, which JSON can hold, cannot be stored
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not true or false")
    return value


def _integer(bits: int) -> Convert:
    most = 2 ** (bits - 1)

    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{shown(value)} is not a whole number")
        if not -most <= value < most:
            raise ValueError(f"{shown(value)} does not fit into {bits} bits")
        return value

    return convert


def _double(value: Any) -> float:
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError as exc:
        raise ValueError(f"{shown(value)} does not fit into 64 bits") from exc
    if math.isinf(number) and not (isinstance(value, Decimal) and value.is_infinite()):
        raise ValueError(f"{shown(value)} does not fit into 64 bits")
    return number


def _single(value: Any) -> float:
    return _in_single(_double(value))


def _in_single(number: float) -> float:
    if math.isfinite(number) and abs(number) > MOST_SINGLE:
        raise ValueError(f"{number} does not fit into 32 bits")
    return number


def _decimal(value: Any, kind: DecimalType) -> Decimal:
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, Decimal)):
        raise ValueError(f"{shown(value)} is not a decimal")
    number = text_types.decimal(value) if isinstance(value, str) else Decimal(value)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a decimal")
    lost = [digit for digit in digits[exponent + kind.scale :] if digit] if exponent < -kind.scale else []
    if lost or (number and number.adjusted() >= kind.precision - kind.scale):
        raise ValueError(f"{shown(value)} does not fit into {kind}")
    return number.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)


def _of_text(read: Callable[[str], Any]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is not a text")
        return read(value)

    return convert


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
            raise ValueError(f"{shown(value)} is not an object")
        check_keys(value, fields.keys())
        unknown = value.keys() - fields.keys()
        if unknown and not ignore_unknown:
            raise ValueError(f"{min(unknown)!r} is not a field of this column")
        return {name: _nullable(value.get(name), name, *field) for name, field in fields.items()}

    return convert


def _list(kind: ListType, base64_bytes: bool, ignore_unknown: bool) -> Convert:
    element = converter(kind.element_type, base64_bytes, ignore_unknown)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{shown(value)} is not a list")
        return [_nullable(item, "element", kind.element_required, element) for item in value]

    return convert


def _map(kind: MapType, base64_bytes: bool, ignore_unknown: bool) -> Convert:
    key = text_converter(kind.key_type, base64_bytes, ignore_unknown)
    value_of = converter(kind.value_type, base64_bytes, ignore_unknown)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not an object")
        check_keys(value, value.keys())
        return [(key(name), _nullable(item, name, kind.value_required, value_of)) for name, item in value.items()]

    return convert


def _nullable(value: Any, name: str, required: bool, convert: Convert) -> Any:
    if value is not None:
        return convert(value)
    if required:
        raise ValueError(f"required {name!r} is missing")
    return None


_INT, _LONG = _integer(32), _integer(64)
_SIMPLE: dict[str, Convert] = {
    "string": _string,
    "boolean": _boolean,
    "int": _INT,
    "long": _LONG,
    "float": _single,
    "double": _double,
    "date": _of_text(text_types.day),
    "time": _of_text(text_types.clock),
    "timestamp": _of_text(text_types.moment),
    "timestamptz": _of_text(text_types.instant),
    "uuid": _of_text(text_types.uuid),
}
_FROM_TEXT: dict[str, Convert] = {
    "boolean": text_types.boolean,
    "int": lambda text: _INT(text_types.whole(text)),
    "long": lambda text: _LONG(text_types.whole(text)),
    "float": lambda text: _in_single(text_types.real(text)),
    "double": text_types.real,
}
