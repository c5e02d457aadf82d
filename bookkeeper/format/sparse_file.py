"""
A file of which only some ranges are in memory, for pyarrow to read.

A byte that is not there is never made up: a read of it is an error, and `lacking` notes the range.
"""

import io
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.errors import CannotRead

#: begin and end
Span = tuple[int, int]


class SparseFile:
    """A file of `size` bytes; `parts` are those of it that are there."""

    def __init__(self, size: int) -> None:
        self._size, self._parts = size, list[tuple[int, bytes]]()
        #: ranges that were asked for and are not there
        self.lacking: list[Span] = []

    def add(self, begin: int, data: bytes) -> None:
        self._parts.insert(0, (begin, data))  # what came last is asked for next

    def copy(self) -> "SparseFile":
        """Another one with the same parts, so that what is added to one lives no longer than it."""
        made = SparseFile(self._size)
        made._parts = [*self._parts]
        return made

    @property
    def held(self) -> int:
        """Bytes that are there."""
        return sum(len(data) for _, data in self._parts)

    def content(self) -> "Content":
        """All of it as bytes, if it is there: pyarrow reads them faster."""
        return next((data for _, data in self._parts if len(data) == self._size), self)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: int) -> int:
        if at >= self._size:
            raise IndexError(at)
        return self.read(at, at + 1)[0]

    def read(self, begin: int, end: int) -> memoryview:
        """These bytes, up to the end of the file."""
        end = min(end, self._size)
        if not 0 <= begin < end:
            return memoryview(b"")
        for first, data in self._parts:
            if first <= begin and end <= first + len(data):
                return memoryview(data)[begin - first : end - first]
        self.lacking.append((begin, end))
        raise CannotRead(f"bytes {begin} to {end} of it were not read")


class _Handle(io.RawIOBase):
    """A position in it. `probing`: what is not there is noted without an error of ours, which costs 0.4 ms."""

    def __init__(self, file: SparseFile, probing: bool) -> None:
        self._file, self._probing, self._at = file, probing, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._file)}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = len(self._file) if size < 0 else self._at + size
        try:
            found = self._file.read(self._at, end)
        except CannotRead:
            if not self._probing:
                raise
            return b""  # too few, which pyarrow refuses
        self._at += len(found)
        return found  # type: ignore[return-value]  # pyarrow takes any buffer, and copies none


#: the content of a file, whole or in part
Content = bytes | SparseFile


def content_file(content: Content, probing: bool = False) -> pa.NativeFile:
    """
    The file for pyarrow; `probing`: only for what it notes in `lacking`.
    """
    return pa.BufferReader(content) if isinstance(content, bytes) else pa.PythonFile(_Handle(content, probing), "r")


def joined(spans: Iterable[Span], gap: int, most: int) -> Sequence[Span]:
    """
    Ranges that cover these, at most `most` of them: those with no more than `gap` between them are one.
    """
    apart = list[Span]()
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1] + gap:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((begin, end))
    # Of too many, the widest gaps stay.
    gaps = sorted(((later[0] - earlier[1], later[0]) for earlier, later in pairwise(apart)), reverse=True)
    begins = {begin for _, begin in gaps[: most - 1]}
    few = apart[:1]
    for begin, end in apart[1:]:
        if begin in begins:
            few.append((begin, end))
        else:
            few[-1] = few[-1][0], end
    return few
