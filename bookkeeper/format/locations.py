"""
The locations of the data files that a manifest names: every record is stepped through, none is kept.

Memory and time are bounded by the bytes and entries that are allowed, whatever the bytes are. A block is decompressed
piece by piece, and only the location of a record is decoded. It accepts all that a full decode accepts, and more.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro
from bookkeeper.format.avro import CODEC, CODECS, Cursor, Header, PackedBlock
from bookkeeper.format.decoder import RECORD_BYTES
from bookkeeper.format.layout import parse_layout

Step = Callable[[Cursor], None]
#: compressed bytes taken at a time; zlib copies the unused ones each time
_FED = 2**16
_FIXED = {"boolean": 1, "float": 4, "double": 8}
_NUMBER = rb"[\x80-\xff]{0,9}[\0-\x7f]"
#: up to 63 bytes and the length that stands before them
_SHORT = b"(?:" + b"|".join(re.escape(bytes([2 * size])) + b".{%d}" % size for size in range(64)) + b")"
#: arrays are stepped through many items at a time, each by one expression
_STRIDES = (4096, 64)


def locations(data: bytes, header: Header, most_bytes: int, most_entries: int) -> Iterator[str]:
    """
    The location of every data file that the manifest in `data` names, as it is written there.

    Raises TxlogTooLarge for more than `most_bytes` (also once decompressed) or `most_entries`, else TxlogCorrupt.
    """
    avro.check_size(data, most_bytes)
    codec = header.meta.get(CODEC, b"null")
    if codec not in CODECS:
        raise TxlogCorrupt(f"Avro codec {codec[:40]!r} is not supported; null and deflate are")
    location = _location(parse_layout(header.meta.get("avro.schema", b"")).schema)
    blocks = avro.packed_blocks(cast(bytes, memoryview(data)), header.end)  # a view copies no block
    count = sum(block.count for block in blocks)
    if count > most_entries:  # before any of them is decompressed
        raise TxlogTooLarge(f"{count} entries, at most {most_entries} are allowed")
    left = most_bytes
    for block in blocks:
        source = _Pieces(block, codec == b"deflate", left)
        yield from _of_block(source, block.count, location)
        left -= source.given


class _Pieces:
    """The records of a block, decompressed a piece at a time; `given` counts their bytes."""

    def __init__(self, block: PackedBlock, packed: bool, most_bytes: int) -> None:
        self._cursor, self._most = Cursor(block.packed), most_bytes
        self._inflate = zlib.decompressobj(-15) if packed else None
        self.given = 0

    def more(self) -> bytes:
        """The next piece, empty at the end; raises TxlogCorrupt, TxlogTooLarge."""
        piece = self._fed(RECORD_BYTES) if self._inflate is None else self._inflated(self._inflate)
        self.given += len(piece)
        if self.given > self._most:
            raise TxlogTooLarge(f"more than {self._most} bytes once decompressed")
        return piece

    def _fed(self, most: int) -> bytes:
        return bytes(self._cursor.take(min(most, len(self._cursor.data) - self._cursor.at)))

    def _inflated(self, inflate: Any) -> bytes:
        parts, size = list[bytes](), 0
        while size < RECORD_BYTES and not inflate.eof and (fed := inflate.unconsumed_tail or self._fed(_FED)):
            try:
                parts.append(inflate.decompress(fed, RECORD_BYTES - size))
            except zlib.error as exc:
                raise TxlogCorrupt(f"a block does not decompress: {exc}") from exc
            size += len(parts[-1])
        return b"".join(parts)


def _of_block(source: _Pieces, count: int, location: Callable[[Cursor], str]) -> Iterator[str]:
    cursor, ended = Cursor(b""), False
    for _ in range(count):
        if not ended and len(cursor.data) - cursor.at < RECORD_BYTES:  # a whole record must lie in it
            piece = source.more()
            cursor, ended = Cursor(cursor.data[cursor.at :] + piece), not piece
        start = cursor.at
        yield location(cursor)
        if cursor.at - start > RECORD_BYTES:
            raise TxlogCorrupt(f"a record of {cursor.at - start} bytes, at most {RECORD_BYTES} are allowed")
    if not cursor.done() or (not ended and source.more()):
        raise TxlogCorrupt("bytes behind the last record of a block")


def _location(schema: Any) -> Callable[[Cursor], str]:
    """A function that steps over a record of this schema and returns its location."""
    entry = schema["fields"]
    at = next(index for index, field in enumerate(entry) if field["name"] == "data_file")
    file = _inner(entry[at]["type"])["fields"]
    within = next(index for index, field in enumerate(file) if field["name"] == "file_path")
    before = _steps([*entry[:at], *file[:within]])
    after = _steps([*file[within + 1 :], *entry[at + 1 :]])
    optional = [isinstance(field["type"], list) for field in (entry[at], file[within])]
    if any(optional):
        raise TxlogCorrupt("data_file and file_path must not be optional")

    def location(cursor: Cursor) -> str:
        for step in before:
            step(cursor)
        path = cursor.text()
        for step in after:
            step(cursor)
        try:
            return path.decode()
        except UnicodeDecodeError as exc:
            raise TxlogCorrupt(f"the location {path[:40]!r} is not UTF-8") from exc

    return location


def _inner(kind: Any) -> Any:
    return kind[1] if isinstance(kind, list) else kind


def _steps(fields: list[Any]) -> list[Step]:
    return [_step(field["type"]) for field in fields]


def _step(kind: Any) -> Step:
    if isinstance(kind, list):
        return _optional(_step(kind[1]))
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "array":
        return _array(kind["items"])
    if name == "record":
        return _record(_steps(kind["fields"]))
    if name in ("int", "long"):
        return _number
    if name in ("string", "bytes"):
        return _text
    size = kind["size"] if name == "fixed" else _FIXED[name]
    return lambda cursor: _discard(cursor.take(size))


def _number(cursor: Cursor) -> None:
    cursor.long()


def _text(cursor: Cursor) -> None:
    cursor.text()


def _discard(part: bytes) -> None:
    return None


def _optional(step: Step) -> Step:
    def optional(cursor: Cursor) -> None:
        branch = cursor.long()
        if branch == 1:
            step(cursor)
        elif branch != 0:
            raise TxlogCorrupt(f"branch {branch} of an optional field")

    return optional


def _record(steps: list[Step]) -> Step:
    def record(cursor: Cursor) -> None:
        for step in steps:
            step(cursor)

    return record


def _array(items: Any) -> Step:
    step = _step(items)
    kinds = [field["type"] for field in items["fields"]] if isinstance(items, dict) else [items]
    short = b"".join(_SHORT if kind == "bytes" else _NUMBER for kind in kinds)
    strides = [(many, re.compile(b"(?:%s){%d}" % (short, many), re.DOTALL)) for many in _STRIDES]

    def array(cursor: Cursor) -> None:
        while count := cursor.long():
            if count < 0:
                count = -count
                cursor.long()  # its bytes
            for many, expression in strides:
                while count >= many and (found := expression.match(cursor.data, cursor.at)):
                    cursor.at, count = found.end(), count - many
            while count:
                step(cursor)
                count -= 1

    return array
