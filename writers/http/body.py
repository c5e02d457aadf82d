"""
The body of a request: bounded while it is read, unpacked, and cut into lines.
"""

import json
import zlib
from collections.abc import AsyncIterator, Callable

import pyarrow as pa  # type: ignore[import-untyped]

from writers.http.arrow_body import ARROW, arrow_rows
from writers.http.requests import Answer, Line, Partial, Refused, refused

NDJSON, JSON = ("application/x-ndjson", "application/ndjson", "application/jsonl"), "application/json"
ENCODINGS = ("", "identity", "gzip", "zstd")
#: gzip packs text some ten times; past the first bytes more than this is made to fill memory
MOST_RATIO, RATIO_FROM = 100, 2**20
#: of a request; each takes some ROW_BYTES beside its text
MOST_ROWS, ROW_BYTES = 200_000, 200
_SPACE, _PIECE = " \t\r\n", 2**16


class Unpacked:
    """What gzip unpacks to, piece by piece; raises Refused past `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._read, self._size = most, 0, 0
        self._unpack = zlib.decompressobj(31)

    def add(self, data: bytes) -> bytes:
        """The bytes that this piece brings."""
        self._read += len(data)
        if self._unpack.eof and data:
            raise Refused(refused(400, "there are bytes behind the end of the gzip body", "Send one gzip member."))
        allowed = _allowed(self._read, self._most)
        try:
            found = self._unpack.decompress(data, allowed - self._size + 1)
        except zlib.error as exc:
            raise Refused(refused(400, f"the body is not gzip: {exc}")) from exc
        self._size += len(found)
        if self._size > allowed:
            raise Refused(_unpacks_to_too_many(self._most))
        if self._unpack.unused_data:
            raise Refused(refused(400, "there are bytes behind the end of the gzip body", "Send one gzip member."))
        return found

    def end(self) -> None:
        """Raises Refused where the end is missing."""
        if not self._unpack.eof:
            raise Refused(refused(400, "the gzip body is cut off"))


def unpack_zstd(packed: bytes, most: int, reserve: Callable[[int], None]) -> bytes:
    """
    What the frames of a zstd body unpack to, at most `most` bytes; `reserve` as in `read_body`. Raises Refused.

    At once, when all of it is there: the window of a frame, 128 MiB at most, is then one request's at a time.
    """
    found, allowed = bytearray(), _allowed(len(packed), most)
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            while piece := stream.read(_PIECE):
                if len(found) + len(piece) > allowed:
                    raise Refused(_unpacks_to_too_many(most))
                reserve(len(piece))
                found += piece
    except (OSError, pa.ArrowException) as exc:
        raise Refused(refused(400, f"the body is not zstd, or cut off: {str(exc)[:200]}")) from exc
    return bytes(found)


def _allowed(packed: int, most: int) -> int:
    return min(most, max(RATIO_FROM, MOST_RATIO * packed))


def _unpacks_to_too_many(most: int) -> Answer:
    hint = f"A body has at most {most} bytes unpacked, {MOST_RATIO} for each packed one: send less."
    return refused(413, "the body unpacks to too many bytes", hint)


def announced(length: str | None) -> int:
    """
    The bytes that a Content-Length says, 0 where it says none.
    """
    return int(length[:19]) if length is not None and length.isascii() and length.isdigit() else 0


async def read_body(
    pieces: AsyncIterator[bytes], length: str | None, encoding: str, most: int, reserve: Callable[[int], None]
) -> bytes:
    """
    The whole body, unpacked; `reserve` is told of bytes that come, before they are kept. Raises Refused.
    """
    if announced(length) > most:
        raise Refused(_too_large(most))
    if encoding not in ENCODINGS:
        hint = "Send it as it is, or with gzip or zstd."
        raise Refused(refused(415, f"Content-Encoding {encoding[:40]!r} is not read here", hint))
    unpacked, found, got = Unpacked(most) if encoding == "gzip" else None, bytearray(), 0
    async for piece in pieces:
        got += len(piece)
        if got > most:
            raise Refused(_too_large(most))
        data = piece if unpacked is None else unpacked.add(piece)
        reserve(len(data))
        found += data
    if unpacked is not None:
        unpacked.end()
    return unpack_zstd(bytes(found), most, reserve) if encoding == "zstd" else bytes(found)


def _too_large(most: int) -> Answer:
    return refused(413, f"the body is larger than {most} bytes", "Send the rows in several requests.")


def _too_many() -> Answer:
    return refused(413, f"the body has more than {MOST_ROWS} rows", "Send the rows in several requests.")


def rows_of(body: bytes, content_type: str, partial: bool, reserve: Callable[[int], None]) -> list[Line]:
    """
    The rows of a body: lines of NDJSON, or elements of a JSON array (one object is one row), numbered from 1, and
    Partial ones where that is asked for; or ArrowRows. `reserve` as in `read_body`. Raises Refused.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind != ARROW:
        lines = _lines(body, kind, reserve)
        return Partial(lines) if partial else lines
    if partial:
        raise Refused(refused(400, "partial=1 is for lines", "An Arrow stream is taken as a whole, or not at all."))
    rows = arrow_rows(body, MOST_ROWS, reserve)
    reserve(rows.table.num_rows * ROW_BYTES)  # columns that it lacks, or that are wider in the table
    return rows


def _lines(body: bytes, kind: str, reserve: Callable[[int], None]) -> list[Line]:
    if kind == JSON:
        found = [(number, item) for number, item in enumerate(_elements(body), 1)]
        reserve(len(found) * ROW_BYTES)
    elif kind in NDJSON:
        rows = body.count(b"\n") + 1
        if rows > MOST_ROWS:
            raise Refused(_too_many())
        reserve(rows * ROW_BYTES)
        found = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    else:
        hint = f"Send NDJSON with Content-Type {NDJSON[0]}, an array with {JSON}, or {ARROW}."
        raise Refused(refused(415, f"Content-Type {kind[:40]!r} is not read here", hint))
    if not found:
        raise Refused(refused(400, "the body has no rows"))
    return found


def _elements(body: bytes) -> list[bytes]:
    """The texts of the elements; without line breaks, which JSON has between tokens only."""
    try:
        text = body.decode()
    except UnicodeDecodeError as exc:
        raise Refused(refused(400, f"the body is not UTF-8: {exc.reason} at byte {exc.start}")) from exc
    text, found, scan = text.strip(_SPACE), list[bytes](), json.JSONDecoder().raw_decode
    if not text.startswith("["):
        return [_flat(text)] if text else []
    at = _skip(text, 1)
    while at < len(text) and text[at] != "]":
        try:
            _, end = scan(text, at)
        except (ValueError, RecursionError) as exc:
            raise Refused(refused(400, f"row {len(found) + 1} is not JSON: {exc}", row=len(found) + 1)) from exc
        found.append(_flat(text[at:end]))
        if len(found) > MOST_ROWS:
            raise Refused(_too_many())
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] != "]":
                continue
        elif text[at : at + 1] == "]":
            break
        raise Refused(refused(400, f"behind row {len(found)} a comma and a row, or ], is expected"))
    if at != len(text) - 1:
        raise Refused(refused(400, "the array does not end where the body ends"))
    return found


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _flat(text: str) -> bytes:
    return text.replace("\n", " ").replace("\r", " ").encode()
