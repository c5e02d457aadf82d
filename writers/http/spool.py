"""
Requests of one producer that wait on its disk, and which of their rows go as which sequence.

A file of rows is durable before the program goes on. `next.json` says which files are sent as one request, under which
sequence, and is durable before that request is sent for the first time: after a crash the same rows go under the same
sequence. A crash leaves at most files that `next.json` says are done, which the next look deletes. A file that was
refused may be put back among the rows: the next look gives it a number behind all others.
"""

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from threading import Lock

from bookkeeper.errors import AlreadyExists, Missing, NotPossible, StorageUnavailable
from bookkeeper.stores.spare import Spare
from bookkeeper.stores.store import Store

_ROWS, _REFUSED, _NEXT = "rows/", "refused/", "next.json"
#: room for `next.json` on a disk that is full: else what waits there could not be sent, and would keep it full
_SPARE_BYTES = 2**14
_NAME = re.compile(r"([0-9]{12})\.ndjson")
_NEXT_BYTES = 1000


@dataclass(frozen=True)
class Request:
    """The files `first` to `last` go as the request `sequence`; none yet where `last` is below `first`."""

    first: int
    last: int
    sequence: int

    @property
    def done(self) -> "Request":
        """What is behind it, once its rows are taken."""
        return Request(self.last + 1, self.last, self.sequence + 1)

    @property
    def passed_over(self) -> "Request":
        """What is behind it where its rows are refused: the next ones go as its sequence."""
        return replace(self.done, sequence=self.sequence)

    @property
    def half(self) -> "Request":
        """Its first half, of one file or more."""
        return replace(self, last=(self.first + self.last) // 2)


class Spool:
    """
    `most` in bytes, of all that waits. `put` may be called by any thread, all else by one. Every method raises
    StorageUnavailable.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most, self._lock = store, most, Lock()
        self._next = self._noted()
        self._sizes = dict[int, int]()
        found = [*store.list("")]
        store.delete_many([item.key for item in found if item.key.endswith(".tmp")])  # writes that were cut off
        sizes = {number: item.size for item in found if (number := _number(_ROWS, item.key))}
        aside = {_number(_REFUSED, item.key) for item in found}
        self._last = max([0 if self._next is None else self._next.first - 1, *sizes, *aside])
        for number in [*sizes]:
            if self._is_put_back(number):
                self._last += 1
                self._store.move(_key(_ROWS, number), _key(_ROWS, self._last))
                sizes[self._last] = sizes.pop(number)
        self._tidy(sizes)
        self._spare = Spare(store, "spare", _SPARE_BYTES)
        self._spare.keep()

    def _is_put_back(self, number: int) -> bool:
        """Whether a file of rows that is done is one that was refused, mended and put back: a crash leaves its copy."""
        if self._next is None or number >= self._next.first:
            return False
        found = {**self._store.read_many([*_aside(number), _key(_ROWS, number)])}
        aside, why, rows = (found[key] for key in (*_aside(number), _key(_ROWS, number)))
        return isinstance(why, bytes) and isinstance(rows, bytes) and (isinstance(aside, Missing) or aside != rows)

    @property
    def files(self) -> int:
        """How many files of rows wait."""
        return len(self._sizes)

    @property
    def is_new(self) -> bool:
        """Whether no sequence is known: `begin` has to say it."""
        return self._next is None

    @property
    def is_under_way(self) -> bool:
        """Whether a request is noted, which may have been sent."""
        return self._next is not None and self._next.first <= self._next.last

    def begin(self, sequence: int) -> None:
        """The next request has this sequence, whatever was noted."""
        first = min(self._sizes, default=self._last + 1)
        self._note(Request(first, first - 1, sequence))

    def put(self, rows: bytes) -> None:
        """Adds a file of rows. Raises also NotPossible where there is no room; what raises has taken nothing."""
        with self._lock:
            if sum([*self._sizes.values()]) + len(rows) > self._most:
                raise NotPossible(f"{self._store.url}: more than {self._most} bytes of rows wait there", hint=_FULL)
            number = self._last + 1
            try:
                self._store.replace(_key(_ROWS, number), rows)  # what a call before left there, which failed
            except StorageUnavailable:
                with suppress(StorageUnavailable):  # else the next call replaces it, if there is one
                    self._store.delete_many([_key(_ROWS, number)])
                raise
            self._sizes[number], self._last = len(rows), number

    def request(self, most: int) -> tuple[Request, bytes] | None:
        """
        What is to be sent now, the same until it is taken, refused or narrowed: one file or more, of at most `most`
        bytes together.
        """
        found = self._next
        assert found is not None
        if found.last < found.first:
            with self._lock:
                first = min(self._sizes, default=found.first)  # a file before it may have been taken away
                last = self._until(first, most)
            if last < first:
                return None
            self._note(found := replace(found, first=first, last=last))
        return found, b"".join(map(self._rows, _numbers(found)))

    def taken(self, found: Request) -> None:
        """The rows of a request are in the table, also those that a process laid aside which then ended."""
        self._store.delete_many([key for number in _numbers(found) for key in _aside(number)])
        self._settle(found.done)

    def refuse(self, found: Request, why: str) -> None:
        """Lays the rows of a request aside, with the reason, and lets the next ones have its sequence."""
        for number in _numbers(found):
            for key, data in (
                (_key(_REFUSED, number), self._rows(number)),
                (f"{_REFUSED}{number:012}.txt", why.encode()),
            ):
                with suppress(AlreadyExists):  # by a process that ended right behind this
                    self._store.create(key, data)
        self._settle(found.passed_over)

    def narrow(self, found: Request) -> None:
        """Sends the first half of a request alone, under its sequence."""
        self._note(found.half)

    def _rows(self, number: int) -> bytes:
        try:
            return self._store.read(_key(_ROWS, number))
        except Missing as exc:
            raise NotPossible(f"{self._store.url}: rows that were not sent are gone: {exc}", hint=_DAMAGED) from exc

    def _settle(self, behind: Request) -> None:
        self._note(behind)
        self._tidy(dict(self._sizes))
        self._spare.keep()

    def _until(self, first: int, most: int) -> int:
        size, last = 0, first - 1
        while (number := last + 1) in self._sizes and (last < first or size + self._sizes[number] <= most):
            size, last = size + self._sizes[number], number
        return last

    def _noted(self) -> Request | None:
        try:
            found = json.loads(self._store.read(_NEXT, _NEXT_BYTES))
            return Request(*(int(found[name]) for name in ("first", "last", "sequence")))
        except Missing:
            return None
        except (ValueError, KeyError, TypeError) as exc:
            raise NotPossible(f"{self._store.url}/{_NEXT} is damaged: {exc}", hint=_DAMAGED) from exc

    def _note(self, request: Request) -> None:
        self._spare.use(partial(self._store.replace, _NEXT, json.dumps(asdict(request)).encode()))
        self._next = request

    def _tidy(self, sizes: dict[int, int]) -> None:
        """Deletes the files that are done."""
        first = 0 if self._next is None else self._next.first
        done = [number for number in sizes if number < first]
        self._store.delete_many([_key(_ROWS, number) for number in done])
        with self._lock:
            for number in done:
                self._sizes.pop(number, None)
            self._sizes.update({number: size for number, size in sizes.items() if number >= first})


_FULL = "flush() it, and look whether the server answers; or give it more room with most_spooled."
_DAMAGED = "Without it sequences are not known. Move the directory away; look in the table which of its rows are there."


def _key(folder: str, number: int) -> str:
    return f"{folder}{number:012}.ndjson"


def _aside(number: int) -> tuple[str, str]:
    return _key(_REFUSED, number), f"{_REFUSED}{number:012}.txt"


def _number(folder: str, key: str) -> int:
    """The number of a file of rows in this folder; 0 of any other."""
    found = _NAME.fullmatch(key.removeprefix(folder)) if key.startswith(folder) else None
    return int(found[1]) if found else 0


def _numbers(request: Request) -> range:
    return range(request.first, request.last + 1)
