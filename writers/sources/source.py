"""
Files of lines as a source with positions, and stdin as one without.

A position holds the file's path, a hash of its beginning, the offset up to which it was read, and a hash of the paths
before it on the command line. A file may grow, it must not change. Of a Parquet or Arrow file the offset is a row, and
the hash is that of its size and of pieces of all of it.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bookkeeper.console.readable import readable
from bookkeeper.errors import NotPossible
from bookkeeper.format.input_files import BYTE_ORDER_MARK, compression, opened, row_kind
from writers.sources.row_files import fingerprint

#: stands for stdin as the file of a bad line
STDIN = "-"
_HEAD_BYTES = 4096
_PATH_BYTES = 600
#: of a position's 1,024, as JSON
_TOLD_BYTES = 880
_CHUNK_BYTES = 2**20
#: a longer line is a bad line: no file may fill the memory
_MOST_LINE_BYTES = 2**27
_SHOWN_BYTES = 1000


@dataclass(frozen=True, slots=True)
class SourceLine:
    """
    A line with its number (from 1) and the offsets of its first byte and behind its last one. Not `exact`: `text` is
    cut, or shows what it cannot say.
    """

    number: int
    start: int
    end: int
    text: bytes
    exact: bool = True


@dataclass(frozen=True)
class Block:
    """
    Whole lines as their exact bytes, behind `number` lines and `start` bytes; the last need not end in a newline.

    A line that is too long is a block of its own, of which the last `cut` bytes are not in `data`. `on_disk`: how many
    bytes of the file were read for it, fewer than `end` where it is compressed.
    """

    number: int
    start: int
    data: bytes
    cut: int = 0
    on_disk: int = 0

    @cached_property
    def count(self) -> int:
        """How many lines it has."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.start + len(self.data) + self.cut

    def lines(self) -> Iterator[SourceLine]:
        """Its lines one by one, the first one of the source without a byte order mark."""
        offset, number = self.start, self.number
        for text in _split(self.data):
            plain = text.removeprefix(BYTE_ORDER_MARK) if number == 0 else text
            offset, number = offset + len(text), number + 1
            yield SourceLine(number, offset - len(text), offset, plain)

    def first_line(self) -> tuple[bytes, "Block"]:
        """The text of its first line, without a byte order mark, and the rest."""
        first, rest = self.split_at(self.data.find(b"\n") + 1 or len(self.data))
        return next(first.lines()).text, rest

    def split_at(self, offset: int) -> tuple["Block", "Block"]:
        """What is before an offset in `data`, which is behind a newline, and the rest."""
        first = Block(self.number, self.start, self.data[:offset])
        return first, Block(self.number + first.count, first.end, self.data[offset:])

    def halves(self) -> tuple["Block", "Block"]:
        """Two blocks of about the same size; only for one of several lines."""
        middle = self.data.find(b"\n", len(self.data) // 2, len(self.data) - 1)
        return self.split_at(1 + (self.data.rfind(b"\n", 0, len(self.data) // 2) if middle < 0 else middle))


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """
    How far files were read: the file number `index` up to `offset`, which is behind its line number `line`.

    In a Parquet or Arrow file both are the number of rows.
    """

    index: int = 0
    offset: int = 0
    line: int = 0


def position_of(files: Sequence[str], place: SourcePosition, began: bytes = b"") -> bytes:
    """
    `place` as the position to publish, in a file that had this `beginning` when it was opened.

    Raises NotPossible where another file has taken its name meanwhile (a log that was rotated): the next run would pass
    over as much of that.
    """
    name = files[place.index]
    if _is_short(name, place.offset) or not (now := beginning(name)).startswith(began):
        raise _another_file(name, place.offset)
    data = {
        "file": _told(name),
        "head": _head(name, now, place.offset),
        "offset": place.offset,
        "line": place.line,
        "before": _hash(os.fsencode("\n".join(map(_identity, files[: place.index])))),
    }
    return json.dumps(data, separators=(",", ":")).encode()


def place_of(files: Sequence[str], position: bytes | None) -> SourcePosition:
    """
    The place that a published position stands for; the start for None. Raises NotPossible when it is no place in these
    files as they are now.
    """
    if position is None:
        return SourcePosition()
    try:
        data = json.loads(position)
        data = {key: data[key] for key in ("file", "head", "offset", "line", "before")}
    except (ValueError, KeyError, TypeError) as exc:
        hint = "This writer name belongs to another kind of source: use another --name."
        raise NotPossible(f"the committed position {position[:80]!r} is none of a file of lines", hint=hint) from exc
    names = [_identity(name) for name in files]
    hint = _SAME_FILES
    index = next((at for at, name in enumerate(files) if data["file"] in (names[at], _told(name))), None)
    if index is None:
        raise NotPossible(f"this writer has read {data['file']} last, which is not among the files", hint=hint)
    if _hash(os.fsencode("\n".join(names[:index]))) != data["before"]:
        raise NotPossible(f"the files before {data['file']} are not those that were read before it", hint=hint)
    name, offset = files[index], data["offset"]
    if _is_short(name, offset) or _head(name, beginning(name), offset) != data["head"]:
        raise _another_file(name, offset)
    return SourcePosition(index, data["offset"], data["line"])


_SAME_FILES = "Give the same files in the same order (more may follow), or use another --name for another source."


def _another_file(name: str, offset: int) -> NotPossible:
    return NotPossible(f"{name} is not the file that was read up to byte {offset}", hint=_SAME_FILES)


def _identity(name: str) -> str:
    path = str(Path(name).resolve())
    return path if len(os.fsencode(path)) <= _PATH_BYTES else _digest(path)


def _told(name: str) -> str:
    """The identity as a position says it: JSON takes up to six bytes for one of a path."""
    path = _identity(name)
    return path if len(json.dumps(path)) <= _TOLD_BYTES else _digest(path)


def _digest(path: str) -> str:
    named = os.fsencode(path)  # a name on a disk need not be UTF-8
    return f"sha256:{hashlib.sha256(named).hexdigest()}"


def _is_short(name: str, offset: int) -> bool:
    plain = compression(name) is None and row_kind(name) is None
    return plain and os.path.getsize(name) < offset


def beginning(name: str) -> bytes:
    """
    What tells a file from another one of its name: its first bytes; of a Parquet or Arrow file its size and a
    hash of pieces of it.
    """
    if row_kind(name) is not None:
        return fingerprint(name)
    with opened(name) as (file, _):
        return bytes(file.read(_HEAD_BYTES))


def _head(name: str, began: bytes, offset: int) -> str:
    return _hash(began if row_kind(name) is not None else began[:offset])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def first_line(name: str) -> bytes:
    """
    The first line of a file, without a byte order mark.
    """
    block = next(file_blocks(name, SourcePosition()), None)
    return b"" if block is None else block.first_line()[0]


def is_within_line(name: str, offset: int) -> bool:
    """
    Whether a file goes on with more than a line break where it ended before, without one; never of compressed files.
    """
    if offset == 0 or compression(name) is not None:
        return False
    with open(name, "rb") as file:
        file.seek(offset - 1)
        before, after = file.read(1), file.read(2)
    return before != b"\n" and after not in (b"", b"\r", b"\r\n") and not after.startswith(b"\n")


def is_cut_json(text: bytes) -> bool:
    """
    Whether a line without a line break is no JSON, as the beginning of an object is none.
    """
    try:
        json.loads(text.removeprefix(BYTE_ORDER_MARK).strip() or b"{}")
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


def file_blocks(name: str, place: SourcePosition) -> Iterator[Block]:
    """
    The lines of a file from a place on, in blocks; raises NotPossible when the file ends before the place.
    """
    with opened(name) as (file, tell):
        if compression(name) is None:
            file.seek(place.offset)
        elif not _skipped(file, place.offset):
            raise _another_file(name, place.offset)
        for block in blocks_of(iter(lambda: file.read(_CHUNK_BYTES), b""), place.offset, place.line):
            yield replace(block, on_disk=tell())


def _skipped(file: Any, count: int) -> bool:
    while count:
        data = file.read(min(count, _CHUNK_BYTES))
        if not data:
            return False
        count -= len(data)
    return True


def bad_line_blocks(name: str, place: SourcePosition) -> Iterator[Block]:
    """
    A file of bad lines from a place on, with blanks for each record that it holds a second time.
    """
    seen: set[bytes] = set()
    for block in file_blocks(name, SourcePosition()):
        texts = _split(block.data)
        keys = [_place_of_bad_line(text) for text in texts]
        for index, key in enumerate(keys):
            if key in seen:
                texts[index] = b" " * (len(texts[index]) - 1) + b"\n"
            seen |= {key} if key else set()
        once = replace(block, data=b"".join(texts))
        if once.end > place.offset:
            yield once if once.start >= place.offset else once.split_at(place.offset - once.start)[1]


def source_of_bad_lines(name: str) -> list[str]:
    """
    The file that the first of these bad lines came from, if it says so.
    """
    try:
        return [str(json.loads(first_line(name))["file"])]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _place_of_bad_line(text: bytes) -> bytes | None:
    """
    Where a bad line came from and what it is, as a hash; None where it is no second one: of what is no record, and of
    stdin, whose offsets begin at 0 with each run and which no run reads again.
    """
    try:
        record = json.loads(text)
        where = [record["file"], record["offset"], record["text"]]
        return None if where[0] == STDIN else hashlib.sha256(json.dumps(where).encode()).digest()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def pipe_blocks(handle: int, pause_seconds: float) -> Iterator[Block | None]:
    """
    The lines of a pipe in blocks as they arrive, until it is closed.

    Yields None after each `pause_seconds` without input, so that the caller can publish meanwhile.
    """
    return blocks_of(arriving(handle, pause_seconds), 0, 0)


def arriving(handle: int, pause_seconds: float) -> Iterator[bytes | None]:
    """
    What arrives on a pipe until it is closed; None after each `pause_seconds` without input.
    """
    data = b" "
    while data:
        if not readable([handle], pause_seconds):
            yield None
            continue
        data = os.read(handle, _CHUNK_BYTES)
        if data:
            yield data


def blocks_of(pieces: Iterable[bytes | None], offset: int, number: int) -> Iterator[Any]:
    """
    What is read, in blocks cut behind newlines; None is passed on. A line is kept up to a bound, however long it is.
    """
    parts: list[bytes] = []  # of a line that has not ended; joined once, when it has
    kept = cut = 0
    for data in pieces:
        if data is None:
            yield None
            continue
        begin = 0
        if cut:
            begin = data.find(b"\n") + 1
            cut += begin or len(data)
            if not begin:
                continue
            yield (block := Block(number, offset, b"".join(parts), cut))
            parts, kept, cut, offset, number = [], 0, 0, block.end, number + 1
        end = data.rfind(b"\n") + 1
        if end > begin:
            yield (block := Block(number, offset, b"".join([*parts, data[begin:end]])))
            parts, kept, offset, number = [], 0, block.end, number + block.count
        if len(data) > end:
            parts.append(data[end:])
            kept += len(parts[-1])
        if kept > _MOST_LINE_BYTES:
            text = b"".join(parts)[:_SHOWN_BYTES]
            parts, kept, cut = [text], 0, kept - len(text)
    if parts:
        yield Block(number, offset, b"".join(parts), cut)


def _split(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return [text + b"\n" for text in whole] + ([rest] if rest else [])
