"""
Columns of texts as columns of a table's types by Arrow's kernels, with the same result as text_converter.

Each kernel is used only for texts for which it cannot be laxer than the converter; for others the answer is None, and
the converter decides. Arrow's own laxness (pyarrow 26): decimals beyond 128 bits wrap around, the year 0 is a date,
`0x1F` is a whole number, blanks around a time are cut.
"""

from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.types import DecimalType, IcebergType

from writers.values.json_values import Convert

#: days from 0001-01-01 to 1970-01-01: Python has no earlier date; a zone can move a time by a day
_FIRST_DAY = -719_162
_FIRST_MICROSECOND = (_FIRST_DAY + 2) * 86_400_000_000
_TEXT = pa.large_string()

FromTexts = Callable[[pa.Array], pa.Array | None]


def from_texts(kind: IcebergType, target: pa.DataType, convert: Convert) -> FromTexts:
    """
    A function that turns an array of texts into one of `target`; None when some text is not surely of `kind`.

    `convert` is the exact conversion of one text, for the types that no kernel reads.
    """
    name = str(kind)
    if name == "string":
        return lambda texts: texts
    if name in _TIMES:
        return lambda texts: _time(name, texts, target)
    if name in ("int", "long"):
        return lambda texts: _matching(texts, r"^-?[0-9]{1,19}$", target)
    if isinstance(kind, DecimalType):
        return lambda texts: _decimal(kind, texts, target, convert)
    return lambda texts: _each(texts, convert, target)


_TIMES = ("date", "time", "timestamp", "timestamptz")


def _time(name: str, texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """A time of day is read as one of 1970-01-01: the kernel for times is laxer at its end."""
    kind = pa.timestamp("us") if name == "time" else target
    if name == "time":
        texts = pc.binary_join_element_wise(pa.scalar("1970-01-01T", _TEXT), texts, pa.scalar("", _TEXT))
    found = _cast(texts, kind)
    if found is None or name == "time":
        return found if found is None else found.cast(pa.int64()).cast(target)
    least = pc.min(found.cast(pa.int32() if name == "date" else pa.int64())).as_py()
    first = _FIRST_DAY if name == "date" else _FIRST_MICROSECOND
    return found if least is None or least >= first else None


def _decimal(kind: DecimalType, texts: pa.Array, target: pa.DataType, convert: Convert) -> pa.Array | None:
    found = _matching(texts, f"^-?{decimal_digits(kind)}$", target)
    return _each(texts, convert, target) if found is None else found


def decimal_digits(kind: DecimalType) -> str:
    """A regular expression for unsigned numbers that surely fit: the kernel does not see that one is too big."""
    whole = kind.precision - kind.scale
    digits = f"[0-9]{{1,{whole}}}" if whole else "0"
    return digits + (rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else "")


def _matching(texts: pa.Array, pattern: str, target: pa.DataType) -> pa.Array | None:
    if not pc.all(pc.match_substring_regex(texts, pattern)).as_py() and texts.null_count < len(texts):
        return None
    return _cast(texts, target)


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        return None


def _each(texts: pa.Array, convert: Convert, target: pa.DataType) -> pa.Array | None:
    try:
        return pa.array([None if text is None else convert(text) for text in texts.to_pylist()], target)
    except (ValueError, OverflowError, RecursionError):
        return None
