"""
Requests of named producers: each is a channel of a slot, its sequence the channel's offset.

What was taken before is known by the chain of txlogs alone: a run begins with the committed offsets and the pending
txlogs behind them, and a request that they name is recognised, after any crash and by any instance. Where another run
goes ahead, all requests that wait are answered 503, and the next run reads the chain anew.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from queue import Empty

from bookkeeper.contract.offsets import Offsets, slot_name
from bookkeeper.errors import Fenced, StorageUnavailable
from bookkeeper.leases.lease import Lease
from bookkeeper.leases.slot_lease import owner_of, slot_lease
from writers.http.chain import Chain, OtherSource, check_source
from writers.http.lane import Lane, Table, later
from writers.http.requests import Answer, Ask, Post, refused
from writers.http.sequences import number_of, offset_of
from writers.http.silence import Silence
from writers.publish.suspects import Suspects
from writers.writer import Writer

log = logging.getLogger(__name__)

#: a request that came before its turn waits so long for those before it, at most so many of a producer
AHEAD, MOST_AHEAD = timedelta(seconds=5), 64
#: between two tries for a lease that another instance has while requests come, and while none does
LEASE_SECONDS, STANDBY_SECONDS = 1.0, 30.0
#: between two looks at the marks while requests wait for a commit
LOOK_SECONDS = 0.1


class Slot(Lane):
    """One slot; its thread holds the lease."""

    def __init__(self, table: Table, number: int) -> None:
        super().__init__(table, slot_name(table.source, number))
        self._suspects = Suspects(table.clock)
        self._lease: Lease | None = None
        #: by producer those that came before their turn, with the time; and all that are published
        self._ahead = dict[str, list[tuple[datetime, Post]]]()
        self._waiting, self._asks = list[Post](), list[Ask]()
        self._chain: Chain | None = None
        self._silence: Silence
        self._settled_at = table.clock()

    def __call__(self) -> None:
        """Serves until the process ends, and gives the lease back."""
        try:
            super().__call__()
        finally:
            if self._lease is not None:
                with suppress(StorageUnavailable):  # then it ends by itself
                    self._lease.release()

    def _turn(self) -> None:
        folder = self.table.opener.folder()
        if self._lease is None:
            self._lease = slot_lease(folder.store, self.name, self.table.address)
        if not self._lease.hold(self.table.clock()):
            self._pass_on(owner_of(folder.store, self.name))
            return
        with self._open(folder) as writer:
            check_source(folder, self.table, self.name, writer.offsets)
            opener = self.table.opener
            self._chain, self._silence = Chain(writer), Silence(folder, opener.clock, opener.wait, self.table.keep)
            while not self.table.over.is_set():
                if not self._lease.hold(self.table.clock()):
                    raise Fenced(f"the lease of {self.name} is another instance's")
                self._step(writer)

    def _pass_on(self, owner: str) -> None:
        """Until the lease is asked for again, requests are the owner's; a first request after a while asks for it."""
        if (figures := self.table.figures.get(self.name)) is not None:
            figures.goes_on()  # else the alert of a writer that waits would stay
        answer = refused(503, f"another instance serves {self.name}", "Send it again after Retry-After.", later())
        if owner != self.table.address:
            answer = replace(answer, owner=owner)
        began, is_idle = self.table.clock(), True
        while not self.table.over.is_set():
            self._drain()
            is_idle = is_idle and not (self._batch or self._asks)
            self._answer_all(answer)
            passed = self.table.clock() - began
            if not timedelta(0) <= passed < timedelta(seconds=STANDBY_SECONDS if is_idle else LEASE_SECONDS):
                return
            with suppress(Empty):
                self._came(self.queue.get(timeout=LOOK_SECONDS))
                if is_idle and passed >= timedelta(seconds=LEASE_SECONDS):
                    return  # it waits for the lease: the owner may be another one by now

    def _step(self, writer: Writer) -> None:
        if self._waiting or self._ahead:
            self._gather(LOOK_SECONDS)
        else:
            self._gather()
        self._forget(writer)
        if not (self._batch or self._ahead or self._waiting or self._asks):
            return
        ready, behind = self._ready(writer.offsets), list[Post]()
        for group in self._groups(writer, ready):
            posts = [post for producer in group for post in ready[producer]]
            taken = self._write(writer, posts)
            if taken:
                writer.publish()
            self._waiting += taken
            behind += [post for post in posts if post not in taken and not post.answered]
        self._batch = behind  # a request of the same producer before them was refused
        self._settle()

    def _forget(self, writer: Writer) -> None:
        """Publishes that producers which were silent for long are forgotten; those of a request are not."""
        if not (writer.may_forget and self._silence.is_due()):
            return
        busy = {post.producer for post in (*self._batch, *self._waiting)} | self._ahead.keys()
        if found := self._silence.forgotten(writer.offsets, busy):
            writer.publish(offsets=found, alone=True)
            facts = {"action": "forget", "writer": self.name, "count": len(found), "first": min(found)}
            log.info("producers forgotten: they sent nothing for --producer-keep", extra=facts)

    def _offsets(self, posts: Sequence[Post]) -> Offsets:
        day = self._silence.day
        return {post.producer: offset_of(post.sequence, day) for post in posts}

    def _glance(self) -> None:
        """Requests that wait for a commit do not wait for a batch of others, too."""
        since = self.table.clock() - self._settled_at
        if self._waiting and not timedelta(0) <= since < timedelta(seconds=LOOK_SECONDS):
            self._settle()

    def _came(self, item: Post | Ask) -> None:
        if isinstance(item, Ask):
            self._asks.append(item)
        else:
            self._batch.append(item)

    def _ready(self, reached: Offsets) -> dict[str, list[Post]]:
        """By producer the requests that are next in its chain; all others wait, or are answered."""
        now, by_producer = self.table.clock(), dict[str, list[tuple[datetime, Post]]]()
        came = [item for items in self._ahead.values() for item in items] + [(now, post) for post in self._batch]
        for since, post in came:
            if not post.answered:
                by_producer.setdefault(post.producer, []).append((since, post))
        self._ahead, self._batch = {}, []
        ready = {name: self._in_order(name, reached.get(name), items, now) for name, items in by_producer.items()}
        self._batch = [post for posts in ready.values() for post in posts]
        return {name: posts for name, posts in ready.items() if posts}

    def _in_order(
        self, producer: str, offset: str | None, items: list[tuple[datetime, Post]], now: datetime
    ) -> list[Post]:
        assert self._chain is not None
        reached, found = number_of(offset), list[Post]()
        is_forgetting = offset is None and producer in self._chain.seen
        for since, post in sorted(items, key=lambda item: item[1].sequence):
            if is_forgetting:  # its former sequence would be taken for this one's
                post.answer(refused(503, f"{producer} is being forgotten", "Send it again after Retry-After.", later()))
            elif reached is None:
                forget = f"bookkeeper forget {self.name} --channel {producer}"
                hint = f"Another program has written it: use another producer, or `{forget}`."
                post.answer(refused(409, f"the offset of {producer} is no sequence", hint))
            elif post.sequence <= reached:
                post.is_duplicate = True
                self._waiting.append(post)
            elif post.sequence == reached + 1:
                reached = post.sequence
                found.append(post)
            elif now - since < AHEAD and len(self._ahead.get(producer, ())) < MOST_AHEAD:
                self._ahead.setdefault(producer, []).append((since, post))
            else:
                hint = f"Sequences rise by one: go on from {reached + 1}."
                error = f"sequence {post.sequence} of {producer} comes behind a gap"
                post.answer(refused(409, error, hint, next=reached + 1))
        return found

    def _groups(self, writer: Writer, ready: Mapping[str, list[Post]]) -> list[list[str]]:
        """Producers, each group for a txlog of its own; the requests of those that rest are answered."""
        if not ready:
            return []
        suspected = any(self._suspects.is_suspect(name) for name in ready)
        groups = self._suspects.groups(sorted(ready), writer.committed_offsets() if suspected else {})
        for name in ready.keys() - {name for group in groups for name in group}:
            hint = "`bookkeeper rejected` says why. It is tried again now and then."
            for post in ready[name]:
                post.answer(refused(503, f"a txlog with rows of {name} was rejected", hint, later(30)))
        return groups

    def _settle(self) -> None:
        """Answers what is in the table, or published for those that wait for no more; raises Fenced."""
        assert self._chain is not None
        self._settled_at = self.table.clock()
        committed, published = self._chain.committed(), self._chain.published
        waiting = [post for post in self._waiting if not post.answered]
        self._waiting = []
        for post in waiting:
            if (number_of(committed.get(post.producer)) or 0) >= post.sequence:
                post.answer(Answer(200, {**_state(post.producer, published, committed), **_about(post)}))
            else:
                self._waiting.append(post)
        self._chain.look(committed)
        for ask in self._asks:
            ask.answer(Answer(200, _state(ask.producer, published, committed)))
        for post in self._waiting:
            if (number_of(published.get(post.producer)) or 0) < post.sequence:
                hint = "Send it again with the same Sequence."
                post.answer(refused(503, "a request that came with it took its turn, and was refused", hint, later()))
            elif post.until_published:
                post.answer(Answer(202, {**_state(post.producer, published, committed), **_about(post)}))
        self._asks, self._waiting = [], [post for post in self._waiting if not post.answered]

    def _answer_all(self, answer: Answer) -> None:
        for post in (*self._waiting, *(post for items in self._ahead.values() for _, post in items)):
            post.answer(answer)
        for ask in self._asks:
            ask.answer(answer)
        self._waiting, self._ahead, self._asks = [], {}, []
        super()._answer_all(answer)

    def _unavailable(self, exc: Exception) -> Answer:
        if isinstance(exc, OtherSource):
            return refused(503, str(exc), exc.hint, later(30))
        if isinstance(exc, Fenced):
            self._suspects.fenced(exc)
        hint = "Send it again with the same Sequence: what was taken is recognised."
        return refused(503, "it is not known yet whether the rows were taken", hint, later())


def _about(post: Post) -> dict[str, object]:
    return {"sequence": post.sequence, **({"duplicate": True} if post.is_duplicate else {})}


def _state(producer: str, published: Offsets, committed: Offsets) -> dict[str, object]:
    return {
        "producer": producer,
        "published": number_of(published.get(producer)) or 0,
        "committed": number_of(committed.get(producer)) or 0,
    }
