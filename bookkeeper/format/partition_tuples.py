"""
Partition tuples in Avro (Iceberg spec, "Appendix A: Avro" and "Partition Transforms"), and their summaries in manifest
lists ("Manifest Lists": `field_summary`, ids 507-511; "Appendix D: Single-value serialization").

Values are physical: days and dates are ints, timestamps are longs in microseconds, decimals and UUIDs are bytes.
"""

import math
import re
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FixedType, IcebergType, PrimitiveType
from pyiceberg.utils.decimal import decimal_required_bytes, unscaled_to_decimal

from bookkeeper.format.layout import Physical

_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
}
#: of a folder: name and value together are a name on any disk
_NAME_CHARACTERS, _PATH_CHARACTERS = 160, 80
_STRUCTS = {"int": "<i", "long": "<q", "float": "<f", "double": "<d", "boolean": "<?"}


def avro_fields(spec: PartitionSpec, schema: Schema) -> list[dict[str, Any]]:
    """
    The fields of record r102 in Java's layout: every one optional.
    """
    return [
        {
            "name": compatible(field.name),
            "type": ["null", avro_type(field.field_type, field.field_id)],
            "default": None,
            "field-id": field.field_id,
        }
        for field in spec.partition_type(schema).fields
    ]


def avro_type(kind: IcebergType, field_id: int) -> Any:
    """
    The Avro type of one partition value; `field_id` makes names of fixed types unique.
    """
    if isinstance(kind, DecimalType):
        bytes_needed = decimal_required_bytes(kind.precision)
        decimal = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": f"decimal_{field_id}", "size": bytes_needed, **decimal}
    if isinstance(kind, FixedType):
        return {"type": "fixed", "name": f"fixed_{field_id}", "size": len(kind)}
    assert isinstance(kind, PrimitiveType)
    if str(kind) == "uuid":
        return {"type": "fixed", "name": f"uuid_{field_id}", "size": 16, "logicalType": "uuid"}
    return _PLAIN[str(kind)]


def widened(value: bytes, width: int) -> bytes:
    """
    A decimal's bytes, in `width` bytes.
    """
    return int.from_bytes(value, "big", signed=True).to_bytes(width, "big", signed=True)


def compatible(name: str) -> str:
    """
    `name` as Iceberg makes it an Avro name: other characters become `_x<HEX>`, a leading digit gets a `_`.
    """
    first = f"_{name[0]}" if name[0].isdigit() and name[0].isascii() else _letter(name[0])
    return first + "".join(char if char.isdigit() and char.isascii() else _letter(char) for char in name[1:])


def _letter(char: str) -> str:
    return char if char == "_" or (char.isascii() and char.isalpha()) else f"_x{ord(char):X}"


def partition_value(value: Any, kind: IcebergType) -> Any:
    """
    A value of a partition tuple as Arrow takes it: a decimal's bytes as Decimal.
    """
    if isinstance(kind, DecimalType) and value is not None:
        return unscaled_to_decimal(int.from_bytes(value, "big", signed=True), kind.scale)
    return value


def folder(field: PartitionField, source: IcebergType, value: Any) -> str:
    """
    The folder of a partition value, a name without surprises; a decimal is given as Decimal.
    """
    try:
        text = field.transform.to_human_string(source, value)
    except (ValueError, OverflowError):
        text = str(value)  # a time that Python's calendar does not reach; readers ignore folder names
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:_PATH_CHARACTERS]
    return f"{folder_name(field.name)}={safe}"


def folder_name(name: str) -> str:
    """
    What the folders of a partition field begin with; cut, for a letter beyond ASCII takes five signs or more.
    """
    return compatible(name)[:_NAME_CHARACTERS]


class FieldSummary(NamedTuple):
    """
    What all tuples of a manifest have in one partition field; bounds are None when every value is null or NaN.

    `contains_nan` is None where a list does not say it.
    """

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


def summarise(kinds: Iterable[tuple[Physical, bool]], tuples: Iterable[tuple[Any, ...]]) -> list[FieldSummary]:
    """
    One summary per partition field; `kinds` says each field's Avro type and whether its bytes are a decimal.
    """
    listed = list(tuples)
    return [
        _summary([values[index] for values in listed], kind, decimal) for index, (kind, decimal) in enumerate(kinds)
    ]


def _summary(values: list[Any], kind: Physical, decimal: bool) -> FieldSummary:
    given = [value for value in values if value is not None]
    sound = {value for value in given if not (isinstance(value, float) and math.isnan(value))}
    has_nan = any(isinstance(value, float) and math.isnan(value) for value in given)
    lower = upper = None
    if sound:
        order, serialize = (_signed, _unscaled) if decimal else (None, _single_value)
        lower, upper = serialize(min(sound, key=order), kind), serialize(max(sound, key=order), kind)
    return FieldSummary(len(given) < len(values), has_nan, lower, upper)


def _signed(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _unscaled(value: bytes, kind: Physical) -> bytes:
    # A decimal's single value has the fewest bytes that hold it; in a partition tuple it has a fixed width.
    number = _signed(value)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _single_value(value: Any, kind: Physical) -> bytes:
    if isinstance(kind, str) and kind in _STRUCTS:
        return struct.pack(_STRUCTS[kind], value)
    return value.encode() if isinstance(value, str) else bytes(value)
