"""
Reads Thrift's compact protocol, as far as a Parquet footer needs it (parquet.thrift, "compact protocol").

What is read is hostile: any value costs a part of a budget, whatever the bytes say.
"""

from collections.abc import Collection
from typing import Any

from bookkeeper.errors import CannotRead

#: values that are read of one footer: a column of its schema is some 15
MOST_VALUES = 5_000
_MOST_DEPTH = 8
_TRUE, _FALSE, _I8, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)


class Reader:
    """Values from the beginning of `data`; raises CannotRead where they are damaged, or go on behind it."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._left = data, 0, MOST_VALUES

    def struct(self, until: Collection[int] = (), depth: int = 0) -> dict[int, Any]:
        """Fields by their ids: integers, booleans, bytes, lists and structs; no more once all of `until` are read."""
        found, number = dict[int, Any](), 0
        while not (until and found.keys() >= {*until}):
            head = self._byte()
            if head == 0:
                break
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MOST_DEPTH:
            raise CannotRead("its footer has more values than any delete file's")
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth=depth)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind in (_TRUE, _FALSE):  # of a list
            return self._byte() == _TRUE
        if kind == _I8:
            return self._byte()
        if kind in (_BINARY, _DOUBLE):
            return self._bytes(self._varint() if kind == _BINARY else 8)
        raise CannotRead(f"its footer has a value of kind {kind}, which no Parquet footer has")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size = self._varint() if head >> 4 == 15 else head >> 4
        return [self._value(head & 15, depth + 1) for _ in range(size)]

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise CannotRead("its footer ends in the middle of a value")
        part, self._at = self._data[self._at : end], end
        return part

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise CannotRead("its footer has a number of more than 64 bits")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
