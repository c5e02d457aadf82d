"""
Stdin as a source with a position, for input that can be sent again: from its begin, or from the position on.

The position is the byte behind the last line that was published. A run reads up to there without loading anything, and
refuses where the first bytes are not those that were read before; or it is told that the input begins there.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from bookkeeper.errors import NotPossible
from bookkeeper.format.input_files import BYTE_ORDER_MARK
from writers.sources.source import STDIN, Block, arriving, blocks_of

_HEAD_BYTES = 4096
_MOST_HEADER_BYTES = 2**20


class ReplayedStdin:
    """Reads what is behind the position; with `at` the input begins at that byte, which must be the position."""

    def __init__(self, position: bytes | None, at: int | None = None) -> None:
        found = _read(position)
        self.offset, self.line = found["offset"], found["line"]
        #: the first line, as far as it was passed over; bytes at the end that are no whole line
        self.first_line, self.unfinished = b"", 0
        self._known, self._known_bytes = found["head"], found["head_bytes"]
        self._begins_at = 0 if at is None else at
        self._head = b""
        if at is not None and at != self.offset:
            hint = "`writer position` prints it. The input must begin there."
            raise NotPossible(f"--at {at} is not the position, which is {self.offset}", hint=hint)

    def blocks(self, handle: int, pause_seconds: float) -> Iterator[Block | None]:
        """
        Whole lines as they arrive; None after each `pause_seconds` without input.

        Raises NotPossible where the input ends before the position, or is another one.
        """
        for block in blocks_of(self._behind(arriving(handle, pause_seconds)), self.offset, self.line):
            if block is not None and not block.cut and not block.data.endswith(b"\n"):
                self.unfinished = len(block.data)
                continue
            yield block

    def taken(self, block: Block) -> None:
        """Move the position behind a block."""
        self.offset, self.line = block.end, block.number + block.count

    def position(self) -> bytes:
        """What to publish with the rows of the blocks that were given."""
        known, count = self._known, self._known_bytes
        if self._begins_at == 0:
            count = min(self.offset, _HEAD_BYTES)
            known = _hash(self._head[:count])
        data = {"file": STDIN, "head": known, "head_bytes": count, "offset": self.offset, "line": self.line}
        return json.dumps(data, separators=(",", ":")).encode()

    def _behind(self, pieces: Iterable[bytes | None]) -> Iterator[bytes | None]:
        left = self.offset - self._begins_at
        for data in pieces:
            if data is None:
                yield None
                continue
            if self._begins_at == 0 and len(self._head) < _HEAD_BYTES:
                self._head += data[: _HEAD_BYTES - len(self._head)]
            passed, rest = data[:left], data[left:]
            if left and not self.first_line.endswith(b"\n") and len(self.first_line) < _MOST_HEADER_BYTES:
                line, end, _ = passed.partition(b"\n")
                self.first_line = (self.first_line + line + end).removeprefix(BYTE_ORDER_MARK)
            left -= len(passed)
            if passed and not left and _hash(self._head[: self._known_bytes]) != self._known:
                raise NotPossible("stdin does not begin as it did when it was read before", hint=_HINT)
            if rest:
                yield rest
        if left:
            read = self.offset - left
            raise NotPossible(f"stdin ends at byte {read}, the position is {self.offset}", hint=_HINT)


_HINT = (
    "Send the input again from its begin, or from the position on with --at; another source needs another --name. "
    "Nothing was published."
)


def _read(position: bytes | None) -> dict[str, Any]:
    if position is None:
        return {"head": _hash(b""), "head_bytes": 0, "offset": 0, "line": 0}
    try:
        data = json.loads(position)
        if data["file"] == STDIN:
            return {key: data[key] for key in ("head", "head_bytes", "offset", "line")}
    except (ValueError, KeyError, TypeError):
        pass
    hint = "This writer name belongs to another kind of source: use another --name."
    raise NotPossible(f"the committed position {position[:80]!r} is none of stdin", hint=hint)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def shown(position: bytes | None) -> dict[str, Any]:
    """
    A position for a person: of a file or stdin how far it was read, of another source its bytes as text.
    """
    if position is None:
        return {"source": "nothing was read", "bytes": 0, "lines": 0}
    try:
        data = json.loads(position)
        return {"source": str(data["file"]), "bytes": int(data["offset"]), "lines": int(data["line"])}
    except (ValueError, KeyError, TypeError):
        return {"source": "another program", "position": position.decode("utf-8", "backslashreplace")}
