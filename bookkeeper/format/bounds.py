"""
Column metrics of data files (Iceberg spec, "Manifests" and "Appendix D: Single-value serialization").

Owns which columns get counts and bounds, and how a bound is cut and serialized. A bound that cannot be
exact is wider, or left out; it is never narrower.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, PrimitiveType, StructType

from bookkeeper.errors import ConfigInvalid

PREFIX = "write.metadata.metrics."
DEFAULT_MODE = "truncate(16)"
#: these types always get metrics: retention and time travel over partitions need them
ALWAYS = {"timestamp", "timestamptz", "date"}
CUT = {"string", "binary"}
#: Types that have no bounds, and no statistics in Parquet, of which Spark makes bounds. Iceberg Java compares the
#: halves of a UUID as signed numbers, and bounds are in the order of bytes: Spark passed over files with the rows it
#: looks for, and over equality deletes of rows, which it showed.
UNORDERED = {"uuid"}
_PACKED = {
    "boolean": struct.Struct("<?"),
    "int": struct.Struct("<i"),
    "date": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "time": struct.Struct("<q"),
    "timestamp": struct.Struct("<q"),
    "timestamptz": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
}
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Leaf:
    """
    A primitive column, in the order of Parquet's columns; `width` cuts bounds, in characters or bytes.

    Inside a list or map (`repeated`) a column has no bounds, like in Iceberg Java; nor has one of UUIDs anywhere.
    """

    field_id: int
    path: tuple[str, ...]
    kind: PrimitiveType
    repeated: bool
    counts: bool
    bounds: bool
    width: int | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one data file by field id, named like the fields of DataFile."""

    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] | None = None


def leaves(schema: Schema, modes: Mapping[str, str]) -> tuple[Leaf, ...]:
    """
    Every primitive column with its metrics mode; raises ConfigInvalid.

    `modes` holds `default` and `column.<name>`, with or without Iceberg's prefix `write.metadata.metrics.`.
    """
    modes = {key.removeprefix(PREFIX): mode for key, mode in modes.items()}
    return tuple(_leaf(schema, modes, *found) for found in _walk(schema.as_struct(), (), False))


def _walk(kind: StructType, path: tuple[str, ...], repeated: bool) -> Iterator[tuple[Any, ...]]:
    for child in kind.fields:
        yield from _below(child.field_id, child.field_type, (*path, child.name), repeated)


def _below(number: int, kind: IcebergType, path: tuple[str, ...], repeated: bool) -> Iterator[tuple[Any, ...]]:
    if isinstance(kind, StructType):
        yield from _walk(kind, path, repeated)
    elif isinstance(kind, ListType):
        yield from _below(kind.element_id, kind.element_type, (*path, "element"), True)
    elif isinstance(kind, MapType):
        yield from _below(kind.key_id, kind.key_type, (*path, "key"), True)
        yield from _below(kind.value_id, kind.value_type, (*path, "value"), True)
    else:
        yield number, path, kind, repeated


def _leaf(
    schema: Schema,
    modes: Mapping[str, str],
    number: int,
    path: tuple[str, ...],
    kind: PrimitiveType,
    repeated: bool,
) -> Leaf:
    name = schema.find_column_name(number)
    mode = modes.get(f"column.{name}") or modes.get("default") or DEFAULT_MODE
    counts, bounds, width = _parse_mode(mode)
    if str(kind) in ALWAYS:
        counts = bounds = True
    cut = width if str(kind) in CUT else None
    return Leaf(number, path, kind, repeated, counts, bounds and not repeated and str(kind) not in UNORDERED, cut)


def _parse_mode(text: str) -> tuple[bool, bool, int | None]:
    plain = text.strip().lower()
    cut = re.fullmatch(r"truncate\((\d+)\)", plain)
    if cut and int(cut[1]) > 0:
        return True, True, int(cut[1])
    known = {"none": (False, False, None), "counts": (True, False, None), "full": (True, True, None)}
    if plain not in known:
        raise ConfigInvalid(f"metrics mode {text!r}: none, counts, truncate(N) or full is allowed")
    return known[plain]


def lower_bound(leaf: Leaf, value: Any) -> bytes:
    """
    The serialized lower bound for a least value (physical: int, float, bool, Decimal or bytes).
    """
    if leaf.width is None:
        return serialized(leaf.kind, -0.0 if isinstance(value, float) and value == 0 else value)
    if str(leaf.kind) == "string":
        return bytes(value.decode()[: leaf.width].encode())
    return bytes(value[: leaf.width])


def upper_bound(leaf: Leaf, value: Any) -> bytes | None:
    """
    The serialized upper bound for a greatest value, or None when a cut one cannot be raised.
    """
    if leaf.width is None:
        return serialized(leaf.kind, 0.0 if isinstance(value, float) and value == 0 else value)
    if str(leaf.kind) == "string":
        text = value.decode()
        raised = text if len(text) <= leaf.width else _raised_text(text[: leaf.width])
        return None if raised is None else raised.encode()
    return bytes(value) if len(value) <= leaf.width else _raised_bytes(bytes(value[: leaf.width]))


def _raised_text(text: str) -> str | None:
    for end in range(len(text), 0, -1):
        code = ord(text[end - 1]) + 1
        code = _SURROGATES.stop if code in _SURROGATES else code
        if code <= 0x10FFFF:
            return text[: end - 1] + chr(code)
    return None


def _raised_bytes(value: bytes) -> bytes | None:
    kept = value.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def serialized(kind: IcebergType, value: Any) -> bytes:
    """
    A physical value in Iceberg's single-value form; a decimal as Decimal, unscaled int or big-endian bytes.
    """
    if isinstance(kind, DecimalType):
        return _decimal(value, kind.scale)
    packed = _PACKED.get(str(kind))
    return bytes(value) if packed is None else packed.pack(value)


def _decimal(value: Any, scale: int) -> bytes:
    if isinstance(value, Decimal):
        value = unscaled(value, scale)
    elif isinstance(value, bytes):
        value = int.from_bytes(value, "big", signed=True)
    magnitude = value if value >= 0 else ~value
    return int(value).to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def unscaled(value: Decimal, scale: int) -> int:
    """
    The integer that a decimal of this scale is stored as.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0") * 10 ** (exponent + scale)
    return -int(number) if sign else int(number)
