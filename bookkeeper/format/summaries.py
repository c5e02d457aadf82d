"""
Partition summaries of a manifest (Iceberg spec, "Manifest Lists": `field_summary`, ids 507-511).

Values are physical Avro values; bounds are single-value serialized (spec, Appendix D).
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bookkeeper.format.layout import Physical

_PACKED = {"int": "<i", "long": "<q", "float": "<f", "double": "<d", "boolean": "<?"}


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """What all tuples of a manifest have in one partition field; bounds are None when every value is null or NaN."""

    contains_null: bool
    contains_nan: bool
    lower: bytes | None
    upper: bytes | None


def summarise(kinds: Iterable[tuple[Physical, bool]], tuples: Iterable[tuple[Any, ...]]) -> list[FieldSummary]:
    """
    One summary per partition field; `kinds` says each field's Avro type and whether its bytes are a decimal.
    """
    listed = list(tuples)
    return [_field([values[index] for values in listed], kind, decimal) for index, (kind, decimal) in enumerate(kinds)]


def _field(values: list[Any], kind: Physical, decimal: bool) -> FieldSummary:
    numbers = [value for value in values if value is not None]
    sound = {value for value in numbers if not (isinstance(value, float) and math.isnan(value))}
    has_nan = any(isinstance(value, float) and math.isnan(value) for value in numbers)
    bounds = [(_unscaled if decimal else _serialized)(found, kind) for found in _extremes(sound, decimal)]
    return FieldSummary(len(numbers) < len(values), has_nan, *(bounds or (None, None)))


def _extremes(sound: set[Any], decimal: bool) -> tuple[Any, ...]:
    order = _signed if decimal else None
    return (min(sound, key=order), max(sound, key=order)) if sound else ()


def _signed(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _unscaled(value: bytes, kind: Physical) -> bytes:
    # A decimal's single value has the fewest bytes that hold it; in a partition tuple it has a fixed width.
    number = _signed(value)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _serialized(value: Any, kind: Physical) -> bytes:
    if isinstance(kind, str) and kind in _PACKED:
        return struct.pack(_PACKED[kind], value)
    return value.encode() if isinstance(value, str) else bytes(value)
