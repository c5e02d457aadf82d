"""
Files of lines as a source with positions, and stdin as one without.

A position holds the file's path, a hash of its beginning, the offset up to which it was read, and a hash of the paths
before it on the command line. A file may grow, it must not change.
"""

import hashlib
import json
import os
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.errors import NotPossible

_HEAD_BYTES = 4096
_PATH_BYTES = 600
_CHUNK_BYTES = 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line with its number (from 1) and the offsets of its first byte and behind its last one."""

    number: int
    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far files were read: the file number `index` up to `offset`, which is behind its line number `line`."""

    index: int = 0
    offset: int = 0
    line: int = 0


def position_of(files: Sequence[str], place: SourcePosition) -> bytes:
    """
    `place` as the position to publish.
    """
    name = files[place.index]
    data = {
        "file": _identity(name),
        "head": _head(name, place.offset),
        "offset": place.offset,
        "line": place.line,
        "before": _hash("\n".join(map(_identity, files[: place.index])).encode()),
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
    hint = "Give the same files in the same order (more may follow), or use another --name for another source."
    if data["file"] not in names:
        raise NotPossible(f"this writer has read {data['file']} last, which is not among the files", hint=hint)
    index = names.index(data["file"])
    if _hash("\n".join(names[:index]).encode()) != data["before"]:
        raise NotPossible(f"the files before {data['file']} are not those that were read before it", hint=hint)
    if os.path.getsize(files[index]) < data["offset"] or _head(files[index], data["offset"]) != data["head"]:
        raise NotPossible(f"{files[index]} is not the file that was read up to byte {data['offset']}", hint=hint)
    return SourcePosition(index, data["offset"], data["line"])


def _identity(name: str) -> str:
    path = str(Path(name).resolve())
    return path if len(path.encode()) <= _PATH_BYTES else f"sha256:{hashlib.sha256(path.encode()).hexdigest()}"


def _head(name: str, offset: int) -> str:
    with open(name, "rb") as file:
        return _hash(file.read(min(offset, _HEAD_BYTES)))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def first_line(name: str) -> bytes:
    """
    The first line of a file, without a byte order mark.
    """
    with open(name, "rb") as file:
        return file.readline().removeprefix(_BYTE_ORDER_MARK)


def file_lines(name: str, place: SourcePosition) -> Iterator[list[SourceLine]]:
    """
    The lines of a file from a place on, in pieces; the last line need not end in a newline.
    """
    with open(name, "rb") as file:
        file.seek(place.offset)
        offset, number = place.offset, place.line
        while texts := file.readlines(_CHUNK_BYTES):
            lines = list(_numbered(texts, offset, number))
            offset, number = lines[-1].end, lines[-1].number
            yield lines


def pipe_lines(handle: int, pause_seconds: float) -> Iterator[list[SourceLine]]:
    """
    Yields the lines of a pipe as they arrive, until it is closed; the last line need not end in a newline.

    Yields an empty list after each `pause_seconds` without input, so that the caller can publish meanwhile.
    """
    unfinished: list[bytes] = []
    offset = number = 0
    data = b" "
    while data:
        if not select.select([handle], [], [], pause_seconds)[0]:
            yield []
            continue
        data = os.read(handle, _CHUNK_BYTES)
        whole, newline, rest = data.rpartition(b"\n")
        # Parts of a line longer than one read wait in `unfinished`, and are joined once, when the line is complete.
        texts = _split([*unfinished, whole, newline]) if newline or not data else []
        unfinished = [rest] if newline else [*unfinished, rest]
        lines = list(_numbered(texts, offset, number))
        if lines:
            offset, number = lines[-1].end, lines[-1].number
        yield lines


def _split(parts: Sequence[bytes]) -> list[bytes]:
    *whole, rest = b"".join(parts).split(b"\n")
    return [text + b"\n" for text in whole] + ([rest] if rest else [])


def _numbered(texts: Sequence[bytes], offset: int, number: int) -> Iterator[SourceLine]:
    for index, text in enumerate(texts):
        plain = text.removeprefix(_BYTE_ORDER_MARK) if number + index == 0 else text
        yield SourceLine(number + index + 1, offset, offset + len(text), plain)
        offset += len(text)
