"""
Headers of many Avro files that are nearly alike: the headers of a table's txlogs share their beginning and their keys.

Learned expressions read such a header without taking it apart. Without them a drain of 1,000 txlogs (one file of 3
columns each) takes 30 % more CPU; with shared beginnings but no expression, 14 to 24 %. Any writer's header may be
learned, so what is kept is bounded. The result is always that of reading the whole header.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from bookkeeper.format import avro
from bookkeeper.format.avro import Cursor, Header, encode_bytes

K = TypeVar("K")

_MOST_KNOWN = 64
#: a writer may pad a header; a longer beginning is not kept
_KNOWN_BYTES = 2**18
#: txlogs with and without positions, from a few versions of writers
_MOST_ENDINGS = 4
_ENDING_KEYS, _ENDING_BYTES = 16, 1024


class Alike(NamedTuple, Generic[K]):
    """A header of a known `kind`: its last values, in the order of the kind's keys, and the byte behind it."""

    kind: K
    values: tuple[bytes, ...]
    end: int


#: from the values before the last keys, and those keys: the kind of header they make; None when they make none
Common = Callable[[Mapping[str, bytes], Sequence[str]], K | None]


@dataclass(slots=True)
class Beginning(Generic[K]):
    """The values in the beginning of a header, how many keys follow, and the endings seen so far."""

    meta: Mapping[str, bytes]
    left: int
    endings: "list[tuple[Ending, K | None]]" = field(default_factory=list)

    def rest(self, data: bytes, at: int, common: Common[K]) -> Header | Alike[K]:
        """The whole header, of which `at` bytes are known."""
        for ending, kind in self.endings:
            found = ending.values(data, at)
            if found is not None and kind is not None:
                return Alike(kind, *found)
            if found is not None:
                return Header({**self.meta, **dict(zip(ending.keys, found[0], strict=True))}, found[1])
        header = avro.read_keys(Cursor(data, at), dict(self.meta), self.left)
        keys = [*header.meta][len(self.meta) :]
        usual = len(keys) == self.left <= _ENDING_KEYS and sum(map(len, keys)) <= _ENDING_BYTES
        known = any(ending.keys == keys for ending, _ in self.endings)  # its values are longer than an expression takes
        if usual and not known and len(self.endings) < _MOST_ENDINGS:
            self.endings.append((Ending(keys), common(self.meta, keys)))
        return header


class Ending:
    """
    The last keys of a header and short values for them, read by one expression: 3 us instead of 9.

    A match counts only if each value has the length that stands before it, as when they are read one by one.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        behind = [re.escape(encode_bytes(key.encode())) for key in keys[1:]] + [rb"\0"]
        # Atomic: a writer must not be able to make it try the ends of all values with each other.
        parts = [rb"([\0-\x7e])(?>(.{0,63}?)" + text + b")" for text in behind]
        self._expression = re.compile(re.escape(encode_bytes(keys[0].encode())) + b"".join(parts), re.DOTALL)

    def values(self, data: bytes, at: int) -> tuple[tuple[bytes, ...], int] | None:
        """The value of each key and the byte behind them; None when the bytes do not match."""
        found = self._expression.match(data, at)
        if found is None:
            return None
        groups = found.groups()
        values = groups[1::2]
        if b"".join(groups[::2]) != bytes([2 * len(value) for value in values]):
            return None
        return values, found.end()


class Headers(Generic[K]):
    """
    Reads headers, and keeps what comes before the first key that begins with `own`.

    The schemas there are most of a small txlog. Comparing them takes 1 us, parsing them 40.
    """

    def __init__(self, own: str, common: Common[K]) -> None:
        self._own = own.encode()
        self._common = common
        self.known: dict[bytes, Beginning[K]] = {}
        self._adding = threading.Lock()

    def read(self, data: bytes) -> Header | Alike[K]:
        """The header of the Avro file in `data`, whatever comes behind it; raises TxlogCorrupt."""
        for start, beginning in [*self.known.items()]:  # the thread of another table may add one meanwhile
            if data.startswith(start):
                return beginning.rest(data, len(start), self._common)
        return self._first(data)

    def _first(self, data: bytes) -> Header:
        cursor, meta = avro.open_header(data), dict[str, bytes]()
        count = cursor.long()
        if count <= 0:
            return avro.read_header(data)
        avro.check_keys(count)
        for left in range(count, 0, -1):
            at, name = cursor.at, cursor.text()
            if name.startswith(self._own):
                self._keep(data[:at], Beginning(dict(meta), left))
                cursor.at = at
                return avro.read_keys(cursor, meta, left)
            meta[avro.key(name)] = cursor.text()
        return avro.read_keys(cursor, meta, 0)

    def _keep(self, start: bytes, what: Beginning[K]) -> None:
        if len(start) > _KNOWN_BYTES:
            return
        with self._adding:
            if len(self.known) >= _MOST_KNOWN:
                self.known.pop(next(iter(self.known)))
            self.known[start] = what
