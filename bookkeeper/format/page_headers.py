"""
The headers of a Parquet column's pages (thrift, compact protocol): how large pages are, and how they are encoded.

A footer says both too, but pyarrow goes by the headers: it makes the room for a page that its header says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bookkeeper.errors import CannotRead
from bookkeeper.format.sparse_file import Content

#: of one column in one row group: a header costs about 10 microseconds
MOST_PAGES = 100_000
#: encodings
_DICTIONARIES, _DELTA_BYTE_ARRAY = {2, 8}, 7
#: page types
_DICTIONARY_PAGE = 2
#: bytes of the header of a dictionary page, at most
MOST_DICTIONARY_HEADER = 100
#: structs inside structs
_MOST_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Pages:
    """All pages of one column in one row group: their bytes uncompressed, and the encodings that are among them."""

    bytes: int
    dictionary: bool
    delta: bool


def pages(data: Content, begin: int, size: int) -> Pages:
    """The pages in these bytes of a file; raises CannotRead for other bytes."""
    total, kinds, encodings = 0, set[Any](), set[Any]()
    try:
        for count, header in enumerate(_headers(data, begin, size)):
            if count >= MOST_PAGES:
                raise CannotRead(f"a column has more than {MOST_PAGES} pages in a row group")
            total += max(header[2], header[3])
            kinds.add(header[1])
            # of a data page of version 1, and of version 2
            encodings |= {header.get(5, {}).get(2), header.get(8, {}).get(4)}
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as exc:
        raise CannotRead(f"the header of a page cannot be read: {exc}") from exc
    return Pages(total, _DICTIONARY_PAGE in kinds or bool(encodings & _DICTIONARIES), _DELTA_BYTE_ARRAY in encodings)


def mean_of_dictionary(head: bytes) -> int:
    """
    The mean size of the values in a dictionary page that begins with these bytes; 0 where it is none.
    """
    try:
        header, _ = _struct(head, 0)
        return int(header[2]) // max(1, header[7][1]) if header[1] == _DICTIONARY_PAGE else 0
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        return 0


def _headers(data: Content, begin: int, size: int) -> Iterator[dict[int, Any]]:
    """The headers as {field id: value}; `data` from `begin` has `size` bytes of pages."""
    at, end = begin, begin + size
    if not 0 < begin < end <= len(data):
        raise ValueError("it lies outside of the file")
    while at < end:
        header, at = _struct(data, at)
        if not (0 <= header[2] < 2**31 and 0 <= header[3] < 2**31):
            raise ValueError("a negative size")
        yield header
        at += header[3]


def _struct(data: Content, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    if depth > _MOST_DEPTH:
        raise ValueError("too deep")
    found, number = dict[int, Any](), 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        found[number], at = _value(data, at, head & 15, depth)
    return found, at + 1


def _value(data: Content, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false
        return kind == 1, at
    if kind in (4, 5, 6):  # integers
        return _integer(data, at)
    if kind == 8:  # bytes
        size, at = _varint(data, at)
        return None, at + size
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise ValueError(f"a value of type {kind}")  # a page's header has no others


def _integer(data: Content, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _varint(data: Content, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number of more than 64 bits")
