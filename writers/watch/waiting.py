"""
Which objects of a listing the next batch holds.

A listing is only a hint: what it shows may be gone, or be another version, and what it does not show is taken later.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest

from bookkeeper.errors import Missing, NotAFile, StorageUnavailable
from bookkeeper.stores.store import Listed, is_key
from writers.timing import Clock
from writers.watch.halves import Halves
from writers.watch.metrics import WatchFigures
from writers.watch.plan import MOST_KEY_BYTES, MOST_NAME_BYTES, MOST_OBJECTS
from writers.watch.prefix import Prefix, Undeletable
from writers.watch.rows import Reading

log = logging.getLogger(__name__)

#: of one batch, as it is stored
BATCH_BYTES = 2**28
#: between two listings, where events say that there is something
SOON = timedelta(seconds=1)
#: of one listing, the oldest; keys that are remembered because they are not taken
MOST_LISTED, _MOST_LEFT = 100_000, 1000


@dataclass(frozen=True)
class Wanted:
    """What is watched, and how; `once`: until all that lies there is in the table; `queue`: it reports new objects."""

    name: str
    reading: Reading
    every: timedelta = timedelta(seconds=10)
    settle: timedelta = timedelta(seconds=2)
    once: bool = False
    backfill: bool = False
    go_on: str = ""
    queue: str = ""


class Waiting:
    """Objects that were listed and not taken, the oldest first."""

    def __init__(self, prefix: Prefix, wanted: Wanted, suspects: Halves, figures: WatchFigures, clock: Clock) -> None:
        self._prefix, self._wanted, self._suspects = prefix, wanted, suspects
        self._figures, self._clock = figures, clock
        self._listed = dict[str, Listed]()
        self._listed_at: datetime | None = None
        #: keys that are not taken, of the last listing; and those of which the log has said so
        self._left, self._said = set[str](), set[str]()
        #: objects of the last listing that are dated ahead of this clock, and since when they are listed so
        self._ahead = dict[Listed, datetime]()
        #: keys that may not be read, which are tried behind all others
        self._unread = set[str]()
        #: whether an event came since the last listing
        self._soon = False
        #: whether younger objects than may be taken were listed; whether the listing had more than it gave; whether
        #: anything came of it
        self._young = self._cut = self._moved = False
        #: whether the last batch was one of objects whose txlog was rejected: others take turns with them
        self._last_apart = False

    @property
    def left(self) -> list[str]:
        """Keys of objects that are not taken, some of them where they are many."""
        return sorted(self._left | self._suspects.resting())

    @property
    def over(self) -> bool:
        """With `once`: whether the last listing had nothing that may be taken now or soon."""
        return self._wanted.once and not self._young

    @property
    def seconds(self) -> float:
        """Until the next listing."""
        if self._wanted.once or self._listed_at is None:
            return max(0.1, self._wanted.settle.total_seconds())
        left = self._every() - (self._clock() - self._listed_at)
        return max(0.1, min(left, self._every()).total_seconds())

    def list_soon(self) -> None:
        """An event came: the next listing is soon, and shows what is there."""
        self._soon = True

    def _every(self) -> timedelta:
        """Between two listings; the object of an event may be too young at first, and then no other event comes."""
        is_soon = self._soon or (self._wanted.queue and self._young)
        return min(self._wanted.every, max(self._wanted.settle, SOON)) if is_soon else self._wanted.every

    def forget(self) -> None:
        """A run begins: it lists anew."""
        self._listed, self._listed_at = {}, None

    def moves_on(self, key: str) -> None:
        """An object was read."""
        self._moved = True
        self._unread.discard(key)

    def not_read(self, key: str, why: object) -> None:
        """An object was gone, no file, or refused when it was read; the next listing shows what it is."""
        if isinstance(why, NotAFile | StorageUnavailable):
            self._leave(key, str(why))
        if isinstance(why, Missing):
            self._suspects.clear(key)
            self._unread.discard(key)
        elif isinstance(why, StorageUnavailable) and not isinstance(why, Undeletable):
            self._unread |= {key} if len(self._unread) < MOST_LISTED else set()

    def batch(self) -> list[Listed]:
        """The next batch; empty where nothing is to be taken now. Raises StorageUnavailable."""
        if not self._listed and self._may_list():
            self._list()
        resting, apart = self._suspects.resting(), self._suspects.apart()
        self._figures.left = len(self._left | resting)
        batch = _first(item for item in self._listed.values() if item.key not in apart)
        if apart and not (batch and self._last_apart):
            batch = _first(self._listed[key] for key in self._suspects.next(self._listed)) or batch
        self._last_apart = bool(batch) and batch[0].key in apart
        if not batch:
            self._listed = {}  # what is left of it rests
        for item in batch:
            del self._listed[item.key]
        return batch

    def _may_list(self) -> bool:
        if self._wanted.once:
            return self._listed_at is None or self._moved or self._young
        due = self._listed_at is None or not timedelta(0) <= self._clock() - self._listed_at < self._every()
        return due or (self._cut and self._moved)

    def _list(self) -> None:
        self._young = self._cut = self._moved = self._soon = False
        self._figures.waiting, self._figures.oldest = 0, None
        self._left, now = set(), self._clock()
        order = lambda item: (item.key in self._unread, item.modified, item.key)  # noqa: E731
        found = nsmallest(MOST_LISTED, self._fit(now), key=order)
        self._cut = len(found) == MOST_LISTED
        self._listed, self._listed_at = {item.key: item for item in found}, now

    def _fit(self, now: datetime) -> Iterator[Listed]:
        """Those that may be taken."""
        figures, before, self._ahead = self._figures, self._ahead, {}
        for item in self._prefix.objects():
            figures.waiting += 1
            figures.oldest = min(figures.oldest or item.modified, item.modified)
            if why := self._unfit(item):
                self._leave(item.key, why)
            elif self._wanted.settle and now - self._since(item, before, now) < self._wanted.settle:
                self._young = True
            else:
                yield item

    def _since(self, item: Listed, before: Mapping[Listed, datetime], now: datetime) -> datetime:
        """When it was written; of what is dated ahead of this clock, since when it is listed so."""
        if item.modified <= now:
            return item.modified
        since = before.get(item, now)
        if len(self._ahead) < MOST_LISTED:
            self._ahead[item] = since
        return since

    def _unfit(self, item: Listed) -> str:
        if not is_key(item.key):
            return "its key has an empty folder"
        name = item.key.rpartition("/")[2]
        if _bytes(item.key) > MOST_KEY_BYTES or _bytes(name) > MOST_NAME_BYTES:
            return f"its name has more than {MOST_NAME_BYTES} bytes, or its path more than {MOST_KEY_BYTES}"
        if item.size > self._wanted.reading.most:
            return f"it has {item.size} bytes, and at most {self._wanted.reading.most} are taken (--max-object)"
        return ""

    def _leave(self, key: str, why: str) -> None:
        if len(self._left) < _MOST_LEFT:
            self._left.add(key)
        if key not in self._said and len(self._said) < _MOST_LEFT:
            self._said.add(key)
            facts = {"action": "leave", "writer": self._wanted.name, "object": key[:MOST_KEY_BYTES], "cause": why}
            log.error("object is not taken", extra=facts)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _first(items: Iterator[Listed]) -> list[Listed]:
    """As many as a batch may hold."""
    batch, size = list[Listed](), 0
    for item in items:
        if batch and (len(batch) == MOST_OBJECTS or size + item.size > BATCH_BYTES):
            break
        batch.append(item)
        size += item.size
    return batch
