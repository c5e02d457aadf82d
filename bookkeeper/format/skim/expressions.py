"""
Regular expressions that match manifest records: exactly the bytes that a full decoder accepts, for one kind of
record (which columns its statistics name, in which order).

Spec: "Manifests", fields 0-4 and 100-143; Avro 1.11, "Binary encoding".
"""

import re
from collections.abc import Iterable, Mapping, Sized

from bookkeeper.format.avro import encode_long
from bookkeeper.format.entries import Entry
from bookkeeper.format.layout import Physical

#: a varint of at most 63 bits; the second form is one that is not negative (its zigzag code is even)
_VARINT = rb"[\x80-\xff]{0,8}+[\x00-\x7f]"
_VARINT_64 = rb"(?:[\x80-\xff]{0,8}+[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01])"
_VARINT_32 = rb"(?:[\x80-\xff]{0,3}+[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"
_EVEN = b"(?=[" + b"".join(re.escape(bytes([byte])) for byte in range(0, 0x100, 2)) + b"])"
_NATURAL = _EVEN + _VARINT
#: a count in statistics; a record with a count of more than six bytes is decoded in full
_COUNT = _EVEN + rb"[\x80-\xff]{0,5}+[\x00-\x7f]"
#: the largest count in six bytes, without the sign
MOST_COUNT = 2**41 - 1
_OPTIONAL_LONG = rb"(?:\x00|\x02" + _VARINT_64 + rb")"
_PREFIX = rb"[\x00\x02\x04]" + _OPTIONAL_LONG * 3
#: status, snapshot id, sequence number, file sequence number
PREFIX = re.compile(_PREFIX, re.DOTALL)
#: those, then content, which is data, and the length of the path
HEAD = re.compile(rb"(" + _PREFIX + rb")\x00(" + _NATURAL + b")", re.DOTALL)

Kinds = tuple[tuple[int, Physical], ...]
COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")
NULLS, UPPER = COUNTS[2], BOUNDS[1]
_FIXED = {"boolean": 1, "float": 4, "double": 8}
_TRUNCATED = 16  # bytes of a truncated bound
_MOST_SHORT = 64
_MOST_OFFSETS = 8
#: a file format whose length is one byte, which no path of plain characters holds
_WORD = re.compile(r"[A-Za-z]{3,8}")


def expression_for(
    entry: Entry, partition: Kinds, rigid: Mapping[int, int], column: int | None = None
) -> re.Pattern[bytes]:
    """
    Matches what follows the path of records like `entry`: same columns in the same order, any values.

    Groups: file format, one per partition field, record count, size, null count and upper bound of `column` (empty
    where there is none), sort order id. Bounds of a column in `rigid` have that many bytes, others up to 16 or what
    this record has.
    """
    file = entry.data_file
    parts = [
        b"(" + _short(rb"[A-Za-z]{%d}", range(3, 9)) + b")",
        *(b"(" + _partition_pattern(kind) + b")" for _, kind in partition),
        b"(" + _NATURAL + b")(" + _NATURAL + b")",
        *(_counts(getattr(file, name), _COUNT, column if name == NULLS else None) for name in COUNTS),
        b"" if column in file.null_value_counts else b"()",
        *(_bounds(getattr(file, name), rigid, column if name == UPPER else None) for name in BOUNDS),
        b"" if column in file.upper_bounds else b"()",
        rb"\x00" + _offsets() + rb"\x00(?:\x00|\x02(" + _VARINT_32 + rb"))\x00",
    ]
    return re.compile(b"".join(parts), re.DOTALL)


def run_expression_for(entry: Entry, partition: Kinds, rigid: Mapping[int, int]) -> re.Pattern[bytes] | None:
    """
    Matches a whole record of those that `expression_for` matches, also one with negative counts, or else all the rest,
    so that nothing is searched: `split` tells a run of records apart. None for a file format that is no word.

    Groups: status, snapshot id, length of the path, path, size; none of the rest. The path ends where the format
    begins: it still has to be compared with its length. Without the signs of counts it takes half the time.
    """
    file = entry.data_file
    if not _WORD.fullmatch(file.file_format):
        return None
    length = encode_long(len(file.file_format))
    parts = [
        rb"([\x00\x02\x04])(" + _OPTIONAL_LONG + b")" + _OPTIONAL_LONG * 2 + rb"\x00(" + _VARINT + b")",
        b"([^" + length + b"]*+)" + length + file.file_format.encode(),
        *(b"(?:" + _partition_pattern(kind) + b")" for _, kind in partition),
        _VARINT + b"(" + _VARINT + b")",
        *(_counts(getattr(file, name), _VARINT) for name in COUNTS),
        *(_bounds(getattr(file, name), rigid) for name in BOUNDS),
        rb"\x00" + _offsets() + rb"\x00(?:\x00|\x02" + _VARINT_32 + rb")\x00|.+",
    ]
    return re.compile(b"".join(parts), re.DOTALL)


def _counts(values: Mapping[int, int], count: bytes, asked: int | None = None) -> bytes:
    return _map(values, [_key(number) + _group(count, number == asked) for number in values])


def _bounds(values: Mapping[int, bytes], rigid: Mapping[int, int], asked: int | None = None) -> bytes:
    widths = {number: len(value) for number, value in values.items()}
    return _map(values, [_key(n) + _group(_bound(width, rigid.get(n)), n == asked) for n, width in widths.items()])


def _group(pattern: bytes, asked: bool) -> bytes:
    return b"(" + pattern + b")" if asked else pattern


def _map(values: Sized, pairs: list[bytes]) -> bytes:
    if not values:
        return rb"(?:\x00|\x02\x00)"
    return rb"\x02" + _key(len(values)) + b"".join(pairs) + rb"\x00"


def _key(number: int) -> bytes:
    return re.escape(encode_long(number))


def _bound(size: int, rigid: int | None) -> bytes:
    if rigid == size:
        return _key(size) + b".{%d}" % size
    return _short(b".{%d}", [size, *(other for other in range(_TRUNCATED, -1, -1) if other != size)])


def _short(pattern: bytes, sizes: Iterable[int]) -> bytes:
    return b"(?:" + b"|".join(_key(size) + pattern % size for size in sizes) + b")"


def _offsets() -> bytes:
    lists = b"|".join(_key(count) + _VARINT * count for count in range(1, _MOST_OFFSETS + 1))
    return rb"(?:\x00|\x02(?:" + lists + rb")\x00)"


def _partition_pattern(kind: Physical) -> bytes:
    if isinstance(kind, tuple):
        value = b".{%d}" % kind[1]
    elif kind in ("int", "long"):
        value = _VARINT_32 if kind == "int" else _VARINT_64
    elif kind in _FIXED:
        value = b".{%d}" % _FIXED[kind]
    else:
        value = _short(b".{%d}", range(_MOST_SHORT + 1))
    return rb"\x00|\x02" + value
