"""
Takes the objects below a prefix, batch by batch: read, plan, publish, see the commit, delete.

What a crash leaves at each step, and what cleans it up:

    lease, claim, probe   `_bookkeeper/watch.json`, a lease that ends, a probe that the next start writes again
    read, write           data files that no txlog names: the reaper's orphan sweep. An object that is no rows may lie
                          here and in `_rejected/`: it is moved again, to the same name
    plan                  a plan that no txlog names. It stays until a plan of its number is done: another run that
                          was stopped may still publish it
    publish               a pending txlog: the next run waits for it. A rejected one breaks the chain: all is read again
    commit                the plan's objects: the next run deletes them first, each by its tag
    delete                some of them; the same
    done                  earlier plans: the next plan deletes them

A batch is read only after all objects of the plans before it are gone, but for a few that may not be deleted: each
plan has them again, so that no run takes them twice. Its txlog names the position that this was seen at as its previous
one: of two runs that read the same objects, one gets in.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.errors import (
    Backpressure,
    BookkeeperError,
    Fenced,
    Halt,
    NotPossible,
    Retry,
    SchemaRefused,
    StorageUnavailable,
    UnknownOutcome,
)
from bookkeeper.leases.lease import Lease
from bookkeeper.stores.store import Listed, ObjectVersion
from bookkeeper.stores.together import in_parts
from writers.metrics import WriterMetrics
from writers.newer_card import NewerCard
from writers.opener import Opener
from writers.publish.publisher import resume
from writers.retries import backoff
from writers.timing import Waited
from writers.watch.events import Dropped, Receive, receive
from writers.watch.halves import Halves
from writers.watch.metrics import EMPTY, LOADED, REJECTED, WatchFigures
from writers.watch.plan import MOST_OBJECTS, NO_POSITION, Plan, Planned, WatchPosition
from writers.watch.prefix import Prefix, Undeletable
from writers.watch.rows import NoRows, ObjectReader
from writers.watch.waiting import BATCH_BYTES, Waiting, Wanted
from writers.writer import Writer

log = logging.getLogger(__name__)

#: between two looks at the marks, and how long one run waits for a commit
LOOK_SECONDS, PATIENCE = 0.2, timedelta(minutes=1)
#: at least so often the lease is kept; and longer than one lasts without its holder
HOLD_SECONDS, _LEASE_ENDS = 5.0, timedelta(seconds=30)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: an object at which the program failed so often is rejected
_MOST_FAILURES = 2


class Watcher:
    """One prefix; to be used by one thread."""

    def __init__(
        self, wanted: Wanted, opener: Opener, prefix: Prefix, lease: Lease, receive: Receive = receive
    ) -> None:
        self._wanted, self._opener, self._prefix, self._lease = wanted, opener, prefix, lease
        self._receive = receive
        self._clock, self._wait = opener.clock, opener.wait
        self.figures = WatchFigures(wanted.name, "", opener.clock)
        self.writer_figures: WriterMetrics | None = None
        #: what becomes of objects whose txlog was rejected
        self._suspects = Halves(opener.clock)
        self._waiting = Waiting(prefix, wanted, self._suspects, self.figures, opener.clock)
        #: what this run has published, and not seen committed
        self._published: Plan | None = None
        #: the key of the object whose rows are being written, and how often this failed, by key
        self._doing, self._failures = "", dict[str, int]()
        self._reader: ObjectReader
        #: for how long nothing was seen to get in
        self._still = Waited(opener.clock)
        #: before runs that begin anew, in seconds; they grow until something gets in
        self._pauses = backoff(_FIRST_PAUSE, _LONGEST_PAUSE)

    @property
    def left(self) -> list[str]:
        """Keys of objects that are not taken now, some of them where they are many."""
        return self._waiting.left

    def run(self) -> None:
        """
        Returns when a stop is requested or, with `once`, all is in. Raises NotPossible, also with `once` where another
        instance works here, and ConfigInvalid. With `once` also Backpressure and StorageUnavailable, where for the
        patience of the writers bookkeeper or storage let nothing in.
        """
        waited = self._still = Waited(self._clock)
        try:
            while True:
                try:
                    if self._turn():
                        return
                    seconds = _FIRST_PAUSE
                    self._check_alone(waited)
                except (Backpressure, Fenced, Halt, Retry, SchemaRefused, UnknownOutcome) as exc:
                    if self._gives_up(exc):
                        raise
                    self._report(exc)
                    seconds = next(self._pauses)
                except Exception as exc:
                    if isinstance(exc, BookkeeperError) or not self._doing:
                        raise
                    self._failures[self._doing] = self._failures.get(self._doing, 0) + 1
                    log.exception("object failed", extra={"action": "defect", "object": self._doing})
                    seconds = _FIRST_PAUSE
                if self._wait(seconds) is True:
                    return
        finally:
            with suppress(StorageUnavailable):  # then it ends by itself
                self._lease.release()

    def _check_alone(self, waited: Waited) -> None:
        """The lease of a dead instance would be free by now."""
        if self._wanted.once and waited() >= _LEASE_ENDS:
            hint = "It loads what lies there; or end it, and start this again."
            raise NotPossible(f"another instance watches {self._prefix.store.url}", hint=hint)

    def _gives_up(self, exc: BookkeeperError) -> bool:
        is_waiting = isinstance(exc, Backpressure | StorageUnavailable)
        return self._wanted.once and is_waiting and self._still() >= self._opener.patience

    def _report(self, exc: BookkeeperError) -> None:
        if isinstance(exc, Fenced) and self._published is not None:
            self._suspects.rejected(exc.rejected, [item.key for item in self._loaded(self._published)])
        facts = {"action": "again", "writer": self._wanted.name, "cause": str(exc)}
        log.warning("watcher begins anew", extra=facts)

    def _turn(self) -> bool:
        """One run of the writer; True when a stop was requested, or all is in. False: the lease is another's."""
        self._published = None
        if not self._lease.hold(self._clock()):
            self.figures.away()
            if self.writer_figures is not None:
                self.writer_figures.goes_on()
            return False
        with ExitStack() as stack:
            writer = stack.enter_context(self._opened())
            self._prefix.begin(self._wanted.name, writer.card.table_uuid, self._wanted.backfill)
            if self._until_committed(writer):
                return True
            number = self._settle(writer)
            self._waiting.forget()
            newer = NewerCard(writer, self._clock)
            events = self._events(stack)
            while True:
                self._hold()
                self._prefix.finish_stuck()
                batch = self._waiting.batch()
                if not batch and (self._waiting.over or self._pause(events)):
                    self._check_gone()
                    return True
                taken = self._taken(writer, newer, batch)
                if taken:
                    number += 1
                    keys = {item.key for item in taken}
                    stuck = [item for key, item in self._prefix.stuck.items() if key not in keys]
                    if self._load(writer, Plan(number, writer.incarnation, [*taken, *stuck])):
                        return True

    @contextmanager
    def _opened(self) -> Iterator[Writer]:
        with closing(self._opener.writer(self._wanted.name)) as writer:
            if self.writer_figures is not None:
                writer.figures.continues(self.writer_figures)
            self.writer_figures, self.figures.table = writer.figures, writer.card.table
            yield writer

    def _hold(self) -> None:
        if not self._lease.hold(self._clock()):
            raise Fenced("another instance watches the prefix")

    def _events(self, stack: ExitStack) -> Dropped | None:
        """Only the instance that works receives: a queue gives each message to one."""
        if not self._wanted.queue:
            return None
        return stack.enter_context(closing(self._receive(self._prefix.store, self._wanted.queue)))

    def _check_gone(self) -> None:
        """With `once` all that is in must be gone at the end."""
        if self._waiting.over and self._prefix.stuck:
            raise Undeletable(f"objects are in the table and cannot be deleted, such as {min(self._prefix.stuck)}")

    def _pause(self, events: Dropped | None) -> bool:
        """Keeps the lease until the next listing; True when a stop was requested."""
        seconds = self._waiting.seconds
        while seconds > 0:
            step = min(seconds, HOLD_SECONDS if events is None else LOOK_SECONDS)
            if self._wait(step) is True:
                return True
            self._hold()
            seconds -= step
            if events is not None and events.take():
                self._waiting.list_soon()
                seconds = min(seconds, self._waiting.seconds)
        return False

    def _settle(self, writer: Writer) -> int:
        """The number of the last plan, whose objects are gone then."""
        last = WatchPosition.parse(writer.position, writer.name)
        try:
            number = self._prefix.settle(last, self._wanted.go_on == str(last or NO_POSITION))
        except NotPossible:
            # A run that lost its lease without knowing may have gone ahead meanwhile.
            if resume(self._opener.folder(), writer.card, writer.name, 0).position != writer.position:
                raise Fenced("another run of this writer has gone ahead") from None
            raise
        return number

    def _until_committed(self, writer: Writer) -> bool:
        """
        Waits until all that was published is in; True when a stop was requested. Raises Fenced where it was rejected,
        Backpressure where it is not in for long: a new run then looks where the chain ends.
        """
        began, has_waited = self._clock(), False
        while True:
            writer.look()
            if writer.all_committed:
                if has_waited:
                    self._still = Waited(self._clock)
                return False
            if not timedelta(0) <= self._clock() - began < PATIENCE:
                raise Backpressure(
                    f"a txlog of {writer.name} is published in {self._opener.url}, and not in the table yet",
                    hint="Is the bookkeeper running? The objects stay until it is in; the same command goes on.",
                )
            has_waited = True
            self._hold()
            if self._wait(LOOK_SECONDS) is True:
                return True

    def _taken(self, writer: Writer, newer: NewerCard, batch: Sequence[Listed]) -> list[Planned]:
        """
        Reads these objects and writes their rows; those that have some, by the version that was read.

        One that may not be read stays, and stops no other; but of a keyed table, where a newer row must not get in
        before it. Where none can be read, the storage is away: raises StorageUnavailable.
        """
        taken, size, unread = list[Planned](), 0, dict[str, StorageUnavailable]()
        batch = batch[: MOST_OBJECTS - len(self._prefix.stuck)]  # the others are listed again
        self._reader = ObjectReader(writer, self._wanted.reading)
        for part in in_parts((item.key, item.size) for item in batch):
            if size >= BATCH_BYTES:
                return taken  # the others are listed again
            self._hold()
            found = self._prefix.store.read_versions(dict.fromkeys(part, ""), part)
            for key in part:
                version = found[key]
                if isinstance(version, StorageUnavailable):
                    if writer.keys:
                        raise version
                    unread[key] = version
                if not isinstance(version, ObjectVersion):
                    self._waiting.not_read(key, version)
                    continue
                item = Planned(key, version.tag, len(version.data))
                if item == self._prefix.stuck.get(key):
                    self._waiting.not_read(key, Undeletable("it is in the table, and cannot be deleted"))
                    continue
                rows = self._rows(writer, newer, item, version.data)
                if rows is not None:
                    taken.append(item)
                    size += rows
        if unread and len(unread) == len(batch):
            raise next(iter(unread.values()))
        return taken

    def _rows(self, writer: Writer, newer: NewerCard, item: Planned, data: bytes) -> int | None:
        """Writes the rows of an object, and returns their bytes; None where it has none: it is gone then, or left."""
        try:
            rows = self._rows_of(writer, newer, item, data)
        except Undeletable as exc:
            self._waiting.not_read(item.key, exc)
            return None
        self._waiting.moves_on(item.key)
        return rows

    def _rows_of(self, writer: Writer, newer: NewerCard, item: Planned, data: bytes) -> int | None:
        if self._failures.get(item.key, 0) >= _MOST_FAILURES:
            self._set_aside(item, data, "the program failed at it: its log says more")
            return None
        try:
            rows = self._read(writer, item.key, data)
        except (NoRows, SchemaRefused):
            newer.ask()
            self._reader.ask(item.key, data)
            try:
                rows = self._read(writer, item.key, data)
            except (NoRows, SchemaRefused) as exc:
                self._set_aside(item, data, str(exc))
                return None
        if not rows.num_rows:
            self._prefix.drop_empty(item)
            self.figures.count(EMPTY)
            return None
        return int(rows.nbytes)

    def _read(self, writer: Writer, key: str, data: bytes) -> pa.Table:
        if self._reader.card is not writer.card:
            self._reader = self._reader.again()
        self._doing = key
        rows = self._reader.rows(key, data)
        if rows.num_rows:
            (writer.upsert if writer.keys else writer.write)(rows)
        self._doing = ""
        return rows

    def _set_aside(self, item: Planned, data: bytes, reason: str) -> None:
        self._doing = ""
        if self._prefix.may_come(item):
            raise Undeletable(f"a run before may yet publish its rows, until others are in ({reason[:500]})")
        to = self._prefix.set_aside(item, data, reason)
        self.figures.count(REJECTED)
        self._failures.pop(item.key, None)
        facts = {"action": "reject", "writer": self._wanted.name, "object": item.key, "to": to, "cause": reason[:500]}
        log.error("object rejected: it is no rows of the table", extra=facts)

    def _load(self, writer: Writer, plan: Plan) -> bool:
        """Publishes what was written, and deletes its objects once it is in; True when a stop was requested."""
        self._prefix.write(plan)
        self._hold()  # behind the plan: the next holder sees what may be published yet
        self._published = plan
        writer.publish(position=plan.position.encoded())
        if self._until_committed(writer):
            return True
        self._published, self._still, loaded = None, Waited(self._clock), self._loaded(plan)
        self._pauses = backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._prefix.finish(plan)
        self.figures.count(LOADED, len(loaded))
        for item in loaded:
            self._suspects.clear(item.key)
            self._failures.pop(item.key, None)
        return False

    def _loaded(self, plan: Plan) -> list[Planned]:
        """The objects whose rows are in the plan's txlog."""
        return [item for item in plan.objects if item != self._prefix.stuck.get(item.key)]
