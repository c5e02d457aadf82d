"""
Columns of texts as columns of a table's types by Arrow's kernels, with the same result as `format.csv_json_types`.

Each kernel is used only for texts for which it cannot be laxer than that; for others the answer is None, and the
converter decides. Arrow's own laxness (pyarrow 26): decimals beyond 128 bits wrap around, the year 0 is a date, `0x1F`
is a whole number, 12 is a time of day, and blanks around one are cut.
"""

from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.types import DecimalType, IcebergType

from bookkeeper.format.csv_json_types import CLOCK, TIMES
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
    if name == "time":
        return lambda texts: _clock(texts, target)
    if name in TIMES:
        return lambda texts: _time(texts, target)
    if name in ("int", "long"):
        return lambda texts: _matching(texts, r"^-?[0-9]{1,19}$", target)
    if isinstance(kind, DecimalType):
        return lambda texts: _decimal(kind, texts, target, convert)
    return lambda texts: _each(texts, convert, target)


def _clock(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Read as a time of 1970-01-01: the kernel for times is laxer at its end."""
    if not _all_match(texts, f"^{CLOCK.pattern}$"):
        return None
    days = pc.binary_join_element_wise(pa.scalar("1970-01-01T", _TEXT), texts, pa.scalar("", _TEXT))
    found = _cast(days, pa.timestamp("us"))
    return None if found is None else found.cast(pa.int64()).cast(target)


def _time(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    found = _cast(texts, target)
    if found is None:
        return None
    of_days = pa.types.is_date(target)
    least = pc.min(found.cast(pa.int32() if of_days else pa.int64())).as_py()
    return found if least is None or least >= (_FIRST_DAY if of_days else _FIRST_MICROSECOND) else None


def _decimal(kind: DecimalType, texts: pa.Array, target: pa.DataType, convert: Convert) -> pa.Array | None:
    found = _matching(texts, f"^-?{decimal_digits(kind)}$", target)
    return _each(texts, convert, target) if found is None else found


def decimal_digits(kind: DecimalType) -> str:
    """A regular expression for unsigned numbers that surely fit: the kernel does not see that one is too big."""
    whole = kind.precision - kind.scale
    digits = f"[0-9]{{1,{whole}}}" if whole else "0"
    return digits + (rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else "")


def _matching(texts: pa.Array, pattern: str, target: pa.DataType) -> pa.Array | None:
    return _cast(texts, target) if _all_match(texts, pattern) else None


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py()) or texts.null_count == len(texts)


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
