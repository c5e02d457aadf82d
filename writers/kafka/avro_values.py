"""
Values of Avro as values of Iceberg's types.

A value that does not fit raises ValueError with its reason; nothing is guessed, cut or rounded. A string is read as
`--format json` reads a text. A logical type fits its own type of column, and that of the values it is written as.
"""

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

from bookkeeper.format.csv_json_types import shown
from writers.kafka.avro_schema import Avro
from writers.values.json_values import Convert, text_converter
from writers.values.json_values import converter as json_converter

_EXACT = Context(prec=4000)
#: of a decimal; 38 digits need 17
_DECIMAL_BYTES = 1024
#: days, and microseconds, from 1970-01-01 to 0001-01-01 and to 10000-01-01
_DAYS = (-719_162, 2_932_897)
_MICROS = (_DAYS[0] * 86_400_000_000, _DAYS[1] * 86_400_000_000)
#: values that Arrow takes as they are, and checks
_DIRECT = frozenset(
    {
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "int"),
        ("long", "long"),
        ("float", "float"),
        ("float", "double"),
        ("double", "double"),
        ("string", "string"),
        ("enum", "string"),
        ("bytes", "binary"),
        ("fixed", "binary"),
    }
)


def column_of(avro: Avro, kind: IcebergType, target: pa.DataType, ignore_unknown: bool) -> Callable[[list[Any]], Any]:
    """
    A function that makes an array of `target` of values; it raises ValueError, OverflowError and pa.ArrowException.
    """
    of = avro.value
    if of is not None and (of.kind, str(kind)) in _DIRECT:
        return lambda values: pa.array(values, target)
    convert = converter(avro, kind, ignore_unknown)
    return lambda values: pa.array([None if value is None else convert(value) for value in values], target)


def converter(avro: Avro, kind: IcebergType, ignore_unknown: bool) -> Convert:
    """
    A function that turns a value (never null) into one that Arrow takes for this type; it raises ValueError.
    """
    of = avro.value
    if of is None:
        return _refusing(f"a {avro} fits no column: of several branches it is not known which one a value is")
    if isinstance(kind, StructType) and of.kind == "record":
        return _struct(of, kind, ignore_unknown)
    if isinstance(kind, ListType) and of.kind == "array":
        return _list(of, kind, ignore_unknown)
    if isinstance(kind, MapType) and of.kind == "map":
        return _map(of, kind, ignore_unknown)
    found = _logical(of, kind) or (_plain(of, kind) if kind.is_primitive else None)
    if found is None:
        return _refusing(_misfit(of, kind))
    return _in_32_bits(found) if of.kind == "int" else found


def _misfit(avro: Avro, kind: IcebergType) -> str:
    zones = {
        "timestamp": "has no time zone, and such a value is in UTC",
        "timestamptz": "is in UTC, and such a value not",
    }
    why = f": the column {zones[str(kind)]}" if "timestamp-" in avro.logical and str(kind) in zones else ""
    return f"a {avro} does not fit a column of {kind}{why}"[:300]


def _refusing(reason: str) -> Convert:
    def refuse(value: Any) -> Any:
        raise ValueError(reason)

    return refuse


def _logical(avro: Avro, kind: IcebergType) -> Convert | None:
    name = str(kind)
    if avro.logical == "decimal" and isinstance(kind, DecimalType):
        return _decimal(avro.scale, kind)
    if avro.logical == "uuid" and avro.kind == "fixed" and name == "uuid":
        return _same
    if (avro.logical, name) == ("date", "date"):
        return _within(1, 1, *_DAYS, "a date")
    meaning, _, unit = avro.logical.rpartition("-")
    of = {"time": "time", "timestamp": "timestamptz", "local-timestamp": "timestamp"}.get(meaning)
    if of != name:
        return None
    times, parts = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}[unit]
    return _within(times, parts, *((0, 86_400_000_000) if of == "time" else _MICROS), f"a {of}")


def _within(times: int, parts: int, least: int, end: int, what: str) -> Convert:
    def convert(value: int) -> int:
        whole, rest = divmod(value * times, parts)
        if rest:
            raise ValueError(f"{value} has parts of a microsecond, which the table cannot hold")
        if not least <= whole < end:
            raise ValueError(f"{value} is out of range for {what}")
        return whole

    return convert


def _decimal(scale: int, kind: DecimalType) -> Convert:
    fit = json_converter(kind)

    def convert(data: bytes) -> Any:
        if not 0 < len(data) <= _DECIMAL_BYTES:
            raise ValueError(f"{len(data)} bytes are no decimal")
        return fit(Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT))

    return convert


def _plain(avro: Avro, kind: IcebergType) -> Convert | None:
    """For the values as which a type is written."""
    name = str(kind)
    if avro.kind == "string":
        return json_converter(kind) if name in _OF_TEXT or isinstance(kind, DecimalType) else None
    if avro.kind in ("int", "long"):
        exact = {"float": _exact_single, "double": _exact_double}.get(name)
        if name in ("int", "long") or (isinstance(kind, DecimalType) and not avro.logical):
            return json_converter(kind)
        return None if avro.logical else exact
    if avro.kind in ("bytes", "fixed") and isinstance(kind, FixedType):
        return _sized(len(kind))
    if (avro.kind, name) == ("double", "float"):
        return _exact_single
    return _same if (avro.kind, name) in _DIRECT else None


_OF_TEXT = frozenset({"string", "binary", "date", "time", "timestamp", "timestamptz", "uuid"})


def _same(value: Any) -> Any:
    return value


def _in_32_bits(convert: Convert) -> Convert:
    """fastavro takes 64 bits for an int."""

    def checked(value: int) -> Any:
        if not -(2**31) <= value < 2**31:
            raise ValueError(f"{value} is no int of Avro: it has more than 32 bits")
        return convert(value)

    return checked


def _exact_double(value: Any) -> float:
    number = float(value)
    if number != value:
        raise ValueError(f"{value} has more digits than a double holds")
    return number


def _exact_single(value: Any) -> float:
    try:
        (number,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError as exc:
        raise ValueError(f"{value} does not fit into 32 bits") from exc
    if number != value and not math.isnan(value):
        raise ValueError(f"{value} has more digits than a float of 32 bits holds")
    return float(number)


def _sized(size: int) -> Convert:
    def convert(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes are given, the column has {size}")
        return data

    return convert


def _struct(avro: Avro, kind: StructType, ignore_unknown: bool) -> Convert:
    fields = [
        (item.name, item.required, converter(avro.parts[item.name], item.field_type, ignore_unknown))
        for item in kind.fields
        if item.name in avro.parts
    ]
    unknown = avro.parts.keys() - {item.name for item in kind.fields}
    if unknown and not ignore_unknown:
        return _refusing(f"{min(unknown)!r} is not a field of this column")
    lacking = [item.name for item in kind.fields if item.required and item.name not in avro.parts]
    if lacking:
        return _refusing(f"required {lacking[0]!r} is missing")

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {name: _nullable(value[name], name, required, make) for name, required, make in fields}

    return convert


def _list(avro: Avro, kind: ListType, ignore_unknown: bool) -> Convert:
    element, required = converter(avro.parts["items"], kind.element_type, ignore_unknown), kind.element_required
    return lambda value: [_nullable(item, "element", required, element) for item in value]


def _map(avro: Avro, kind: MapType, ignore_unknown: bool) -> Convert:
    key = text_converter(kind.key_type)
    make, required = converter(avro.parts["items"], kind.value_type, ignore_unknown), kind.value_required

    def convert(value: Sequence[dict[str, Any]]) -> list[tuple[Any, Any]]:
        if len({item["key"] for item in value}) < len(value):
            raise ValueError("a key of a map is given twice")
        return [(key(item["key"]), _nullable(item["value"], item["key"], required, make)) for item in value]

    return convert


def _nullable(value: Any, name: str, required: bool, convert: Convert) -> Any:
    if value is not None:
        return convert(value)
    if required:
        raise ValueError(f"required {shown(name)} is missing")
    return None
