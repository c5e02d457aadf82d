"""
The thread of one writer: requests come by its queue, are written and published together, and are answered.

No other thread touches its writer. What a crash leaves is what a crash of any writer leaves: data files that no txlog
names, which the reaper sweeps, and txlogs, which are committed.
"""

import logging
import random
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, Queue
from threading import Event

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.contract.offsets import Offsets
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Backpressure, BookkeeperError, ClockAhead, NotPossible, SchemaRefused
from writers.http.requests import Answer, Ask, Post, Refused, refused
from writers.http.rows import RowReader
from writers.http.storage_clock import StorageClock
from writers.metrics import WriterMetrics
from writers.newer_card import NewerCard
from writers.opener import Opener
from writers.publish.card_follower import KeysChanged
from writers.timing import Clock
from writers.writer import Writer

log = logging.getLogger(__name__)

#: requests are published together that come within this, up to so many bytes
LINGER, BATCH_BYTES = timedelta(milliseconds=100), 2**24
_IDLE_SECONDS, _PAUSE_SECONDS, _SLICE_SECONDS = 0.5, 0.5, 0.02


@dataclass
class Table:
    """
    A table that takes rows, as its lanes see it. Each value of `figures` is put by the thread of its writer.
    """

    name: str
    source: str
    opener: Opener
    clock: Clock
    over: Event
    slots: int = 4
    #: at which other instances reach this one
    address: str = ""
    #: how long a silent producer is remembered, at least a day; None: for ever
    keep: timedelta | None = None
    figures: dict[str, WriterMetrics] = field(default_factory=dict)


def later(base: int = 1) -> int:
    """
    Seconds after which a client may try again; clients that were refused together do not come back together.
    """
    return random.randint(base, 3 * base)


class Lane:
    """One writer with its queue; `name` is the writer's."""

    def __init__(self, table: Table, name: str) -> None:
        self.table, self.name = table, name
        self.queue = Queue[Post | Ask]()
        self._reader: RowReader | None = None
        self._newer_card: NewerCard | None = None
        self._storage_clock: StorageClock | None = None
        #: what this turn has taken from the queue and not answered
        self._batch = list[Post]()
        self._has_run = False
        self._gathered_at = table.clock()

    def __call__(self) -> None:
        """Serves until the process ends."""
        while not self.table.over.is_set():
            self._has_run = False
            try:
                self._turn()
            except Backpressure as exc:
                hint = "Send it again after Retry-After. Is the bookkeeper running?"
                self._trouble(exc, refused(429, "the bookkeeper is behind: too many txlogs are pending", hint, later()))
            except ClockAhead as exc:
                self._trouble(exc, refused(503, str(exc), exc.hint, later(30)))
            except BookkeeperError as exc:
                self._trouble(exc, self._unavailable(exc))
            except Exception as exc:
                log.exception("request failed", extra={"action": "defect", "writer": self.name})
                self._trouble(exc, self._unavailable(exc))
            self._reader = None

    def drop(self, item: Post | Ask) -> None:
        """A request that waits no longer, and that the thread has not come to, takes no memory; for any thread."""
        if not item.given:
            with self.queue.mutex, suppress(ValueError):
                self.queue.queue.remove(item)

    def _turn(self) -> None:
        raise NotImplementedError

    def _unavailable(self, exc: Exception) -> Answer:
        raise NotImplementedError

    def _open(self, folder: Folder) -> "closing[Writer]":
        """A new run of the writer, closed and not published at its end."""
        opener = self.table.opener
        self._storage_clock = StorageClock(folder.store, self.name, opener.clock, opener.wait)
        writer = opener.writer(self.name, folder)
        self._newer_card = NewerCard(writer, self.table.clock)
        if (before := self.table.figures.get(self.name)) is not None:
            writer.figures.continues(before)
        self.table.figures[self.name] = writer.figures
        return closing(writer)

    def _trouble(self, exc: Exception, answer: Answer) -> None:
        """
        A run has ended: each request that it had is answered, and may be sent again. Where none could begin, each
        request of the queue is answered too: else those of a long outage would pile up.
        """
        if not self._has_run:
            self._drain()
        log.warning("writer begins anew", extra={"action": "again", "writer": self.name, "cause": str(exc)})
        self._answer_all(answer)
        self.table.over.wait(_PAUSE_SECONDS)

    def _answer_all(self, answer: Answer) -> None:
        for post in self._batch:
            post.answer(answer)
        self._batch = []

    def _drain(self) -> None:
        """Takes all that waits in the queue."""
        while True:
            try:
                self._take(self.queue.get_nowait())
            except Empty:
                return

    def _take(self, item: Post | Ask) -> None:
        if not item.answered:  # its client may have sent it again
            self._came(item)

    def _came(self, item: Post | Ask) -> None:
        assert isinstance(item, Post)
        self._batch.append(item)

    def _gather(self, seconds: float = _IDLE_SECONDS) -> None:
        """
        Takes what comes; waits so many seconds for a first request, and for more until LINGER is over since then, or
        since the last turn where it came in that.
        """
        self._has_run = True
        began, size = self._gathered_at, self._take_all(BATCH_BYTES)
        if size is None:
            try:
                item = self.queue.get(timeout=seconds)
            except Empty:
                self._gathered_at = self.table.clock()
                return
            self._take(item)
            began, size = self.table.clock(), item.size
        while size < BATCH_BYTES and timedelta(0) < (left := LINGER - (self.table.clock() - began)) <= LINGER:
            # Not woken by each request: the loop that takes them would wait for this thread each time.
            self.table.over.wait(min(left.total_seconds(), _SLICE_SECONDS))
            size += self._take_all(BATCH_BYTES - size) or 0
            self._glance()
        self._gathered_at = self.table.clock()

    def _take_all(self, most: int) -> int | None:
        """Takes what is in the queue, until that has so many bytes; returns how many it has, None where none is."""
        size = None
        while size is None or size < most:
            try:
                item = self.queue.get_nowait()
            except Empty:
                break
            self._take(item)
            size = (size or 0) + item.size
        return size

    def _glance(self) -> None:
        """What is worth looking at now and then while requests are gathered."""

    def _write(self, writer: Writer, posts: Sequence[Post]) -> list[Post]:
        """
        Writes the rows of these requests; returns those that were taken. The others are answered; behind one of a
        producer nothing of it is taken.
        """
        assert self._storage_clock is not None
        if posts:
            self._storage_clock.check()
        reader = self._reader_of(writer)
        together = reader.block([line for post in posts for line in post.lines]) if len(posts) > 1 else None
        if together is not None:
            try:
                self._put(writer, together, self._offsets(posts))
                return [*posts]
            except (SchemaRefused, NotPossible):
                pass  # of one of them: it has taken none of the rows
        taken, stopped = list[Post](), set[str]()
        for post in posts:
            if post.producer and post.producer in stopped:
                continue
            try:
                self._put(writer, self._table(writer, post), self._offsets([post]))
                taken.append(post)
            except KeysChanged:
                raise
            except Refused as exc:
                post.answer(exc.answer)
                stopped.add(post.producer)
            except SchemaRefused as exc:
                post.answer(refused(422, f"the rows do not fit the table: {exc}", exc.hint))
                stopped.add(post.producer)
            except NotPossible as exc:
                post.answer(refused(409, str(exc), exc.hint))
                stopped.add(post.producer)
        return taken

    def _put(self, writer: Writer, table: pa.Table, offsets: Offsets | None) -> None:
        (writer.upsert if writer.keys else writer.write)(table, offsets=offsets)

    def _offsets(self, posts: Sequence[Post]) -> Offsets | None:
        """What is said with the rows of these."""
        return None

    def _table(self, writer: Writer, post: Post) -> pa.Table:
        try:
            return self._reader_of(writer).rows(post.lines)
        except Refused:
            # an unknown column may be one that the table has by now
            if self._newer_card is None or not self._newer_card.ask():
                raise
            return self._reader_of(writer).rows(post.lines)

    def _reader_of(self, writer: Writer) -> RowReader:
        if self._reader is None or self._reader.card is not writer.card:
            assert self._newer_card is not None
            self._reader = RowReader(writer, self._newer_card)
        return self._reader


class Unnamed(Lane):
    """Requests without a producer: answered once their txlog is published."""

    def _turn(self) -> None:
        with self._open(self.table.opener.folder()) as writer:
            if writer.keys:
                self._refuse_keyed()
            while not self.table.over.is_set():
                self._gather()
                if taken := self._write(writer, self._batch):
                    name = writer.publish()
                    for post in taken:
                        post.answer(Answer(200, {"rows": post.rows, "txlog": str(name)}))
                self._batch = []

    def _refuse_keyed(self) -> None:
        """In a keyed table the order of requests decides which row stays, and only sequences say it."""
        while not self.table.over.is_set():
            self._gather()
            hint = "Send the headers Producer and Sequence."
            self._answer_all(refused(409, f"{self.table.name} is keyed: it takes rows of named producers only", hint))

    def _unavailable(self, exc: Exception) -> Answer:
        hint = "Send it again. Its rows may then be in the table twice: with Producer and Sequence they are not."
        return refused(503, "it is not known whether the rows were published", hint, later())
