"""
A file of dead letters, which `bookkeeper rejected-rows --export` writes and `writer kafka-replay` reads.

Lines of JSON. The first one says of which table and snapshot it is, and which positions the replays had there that are
in that snapshot; each line behind it is a letter, with its value and key in base64; the last one has the number of
letters and the SHA-256 of all lines before it.
"""

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from bookkeeper.config.dead_letters import KEY
from bookkeeper.errors import NotPossible
from bookkeeper.format import json_text

#: of one line: a message of Kafka's largest size that is set anywhere, in base64
MOST_LINE_BYTES = 2**28
_VERSION = 1
_AGAIN = "Export the letters again: `bookkeeper rejected-rows --export FILE`."
_REPLAY = "-replay"


def replay_name(source: str) -> str:
    """
    The writer that replays the dead letters of a source, in both tables.
    """
    return f"{source}{_REPLAY}"


def is_replay(writer: str) -> bool:
    """
    Whether a writer is named as one that replays dead letters.
    """
    return writer.endswith(_REPLAY)


@dataclass(frozen=True, slots=True)
class Letter:
    """
    A dead letter; has the methods of a message of Kafka that are read of one. `millis`: None where it has no timestamp.
    """

    source: str
    channel: str
    at: int
    of: str
    number: int
    millis: int | None
    data: bytes | None
    its_key: bytes | None
    pairs: Sequence[tuple[str, bytes | None]] | None

    def topic(self) -> str:
        """The name of its topic."""
        return self.of

    def partition(self) -> int:
        """The number of its partition."""
        return self.number

    def offset(self) -> int:
        """Its offset."""
        return self.at

    def timestamp(self) -> tuple[int, int]:
        """Whether it has one, and milliseconds since 1970."""
        return (0, 0) if self.millis is None else (1, self.millis)

    def key(self) -> bytes | None:
        """Its key."""
        return self.its_key

    def value(self) -> bytes | None:
        """Its value."""
        return self.data

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Its headers; bytes that were no UTF-8 as the text that the letter has of them."""
        return self.pairs

    def __len__(self) -> int:
        return len(self.data or b"") + len(self.its_key or b"")


def write(path: str, head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> int:
    """
    Writes an export in one go, and returns how many letters it has; raises NotPossible. `head` has `table`,
    `table_uuid`, `snapshot` and `replayed` (writer: position).
    """
    fresh, count, digest = f"{path}.{os.getpid()}.tmp", 0, hashlib.sha256()
    try:
        try:
            with open(fresh, "xb") as file:
                _put(file, {"dead_letters": _VERSION, **head}, digest)
                for row in rows:
                    _put(file, _record(row), digest)
                    count += 1
                _put(file, {"letters": count, "sha256": digest.hexdigest()}, digest)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise
    except OSError as exc:
        hint = "Name a file in a folder that is there and may be written."
        raise NotPossible(f"--export {path} cannot be written: {exc.strerror}", hint=hint) from exc
    return count


def _put(file: IO[bytes], record: Mapping[str, Any], digest: Any) -> None:
    line = json.dumps(record).encode() + b"\n"
    digest.update(line)
    file.write(line)


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    def millis(at: datetime | int | None) -> int | None:
        return round(at.timestamp() * 1000) if isinstance(at, datetime) else at

    plain = {name: row[name] for name in (*KEY, "topic", "partition", "headers", "reason")}
    rejected_at = row["rejected_at"] and row["rejected_at"].isoformat()
    packed = {"key": text(row["key"]), "value": text(row["value"])}
    return {**plain, "timestamp": millis(row["timestamp"]), "rejected_at": rejected_at, **packed}


@dataclass(frozen=True)
class Export:
    """
    An export on this disk that was checked whole when it was opened.
    """

    path: str
    table: str
    table_uuid: str
    #: positions of the writers that replay, in the snapshot of the export
    replayed: Mapping[str, str]
    count: int
    digest: str
    stat: tuple[int, int, int]

    def letters(self, first: int = 0) -> Iterator[Letter]:
        """The letters from the one of this number on, in the order of the file; raises NotPossible."""
        try:
            with open(self.path, "rb") as file:
                _line(file, self.path)
                for number in range(self.count):
                    line = _line(file, self.path)
                    if _stat(file) != self.stat:
                        raise _wrong(self.path, "it was changed while it was read")
                    if number >= first:
                        yield _letter(self.path, number, line)
        except OSError as exc:
            raise NotPossible(f"{self.path} is not readable: {exc.strerror}") from exc


def opened(path: str) -> Export:
    """
    Checks that the file is an export as it was written; raises NotPossible.
    """
    digest, count, last = hashlib.sha256(), 0, b""
    try:
        with open(path, "rb") as file:
            first, stat = _line(file, path), _stat(file)
            head = _object(path, first)
            while line := _line(file, path):
                digest.update(last or first)
                last, count = line, count + 1
            if _stat(file) != stat:
                raise _wrong(path, "it was changed while it was read")
    except OSError as exc:
        raise NotPossible(f"{path} is not readable: {exc.strerror}") from exc
    if head.get("dead_letters") != _VERSION:
        raise _wrong(path, "its first line is not that of an export")
    end = _object(path, last)
    if end.get("letters") != count - 1 or end.get("sha256") != digest.hexdigest():
        raise _wrong(path, "it was changed, or its end is missing")
    table, uuid, replayed = head.get("table"), head.get("table_uuid"), head.get("replayed")
    texts = [table, uuid, *replayed, *replayed.values()] if isinstance(replayed, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _wrong(path, "its first line is not that of an export")
    return Export(path, str(table), str(uuid), dict(replayed), count - 1, digest.hexdigest(), stat)  # type: ignore[arg-type]


def _stat(file: IO[bytes]) -> tuple[int, int, int]:
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns


def _line(file: IO[bytes], path: str) -> bytes:
    line = file.readline(MOST_LINE_BYTES + 1)
    if len(line) > MOST_LINE_BYTES:
        raise _wrong(path, f"it has a line of more than {MOST_LINE_BYTES} bytes")
    return line


def _object(path: str, line: bytes) -> dict[str, Any]:
    try:
        found = json_text.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _wrong(path, "it has a line that is no JSON object")
    return found


def _letter(path: str, number: int, line: bytes) -> Letter:
    found = _object(path, line)
    try:
        return Letter(
            _of(str, found["source"]),
            _of(str, found["channel"]),
            _number(found["offset"], 2**63),
            _of(str, found["topic"]),
            _number(found["partition"], 2**31),
            None if found["timestamp"] is None else _of(int, found["timestamp"]),
            _bytes(found["value"]),
            _bytes(found["key"]),
            _pairs(found["headers"]),
        )
    except (LookupError, ValueError, TypeError) as exc:
        raise _wrong(path, f"letter {number + 1} is none: {exc!r:.200}") from exc


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _number(value: Any, bound: int) -> int:
    if not 0 <= _of(int, value) < bound:
        raise ValueError(f"{value} is out of range")
    return int(value)


def _bytes(value: Any) -> bytes | None:
    try:
        return None if value is None else base64.b64decode(_of(str, value), validate=True)
    except binascii.Error as exc:
        raise ValueError(f"{value!r:.40} is no base64") from exc


def _pairs(value: Any) -> Sequence[tuple[str, bytes | None]] | None:
    if value is None:
        return None
    pairs = [(_of(str, name), data) for name, data in json_text.loads(_of(str, value))]
    return [(name, None if data is None else _of(str, data).encode()) for name, data in pairs]


def _wrong(path: str, why: str) -> NotPossible:
    return NotPossible(f"{path} is no export of dead letters: {why}", hint=_AGAIN)
