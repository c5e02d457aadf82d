"""
Backpressure and fencing: how many txlogs of the table are pending, whether one of this run was rejected, and on a keyed
table whether a later run of this writer has published: behind that nothing of this run gets in.

`look` goes beside the uploads of a publish, `admit` waits for what it found.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.contract.marks import FUTURE_MS, Marks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.names import IncarnationKey, TxlogName, started_ms
from bookkeeper.contract.offsets import FORGOTTEN, Offsets
from bookkeeper.contract.txlog import Txlog
from bookkeeper.contract.txlog_folder import REJECTED, Folder, Found
from bookkeeper.errors import Backpressure, Fenced
from writers.metrics import WriterMetrics
from writers.retries import retry
from writers.timing import AtOnce, Clock, Wait, Waited, millis

EVERY = timedelta(seconds=1)


class PendingMonitor:
    """
    Lists pending/ at most once a second.
    """

    def __init__(
        self,
        folder: Folder,
        clock: Clock,
        wait: Wait,
        at_once: AtOnce,
        metrics: WriterMetrics,
        ordered: IncarnationKey | None = None,
        earlier: Sequence[Txlog] = (),
    ) -> None:
        """
        `ordered`: this run, on a keyed table; `earlier`: the pending txlogs of earlier runs that it goes on from, in
        their order.
        """
        self._folder, self._clock, self._wait, self._at_once = folder, clock, wait, at_once
        self._metrics, self._ordered = metrics, ordered
        self._listed_at: datetime | None = None
        self._pending = 0
        #: what this run publishes comes behind these: its own, and those of earlier runs
        self._own = {item.name: _with_rows(item.offsets) for item in earlier}
        #: the position that the last of these reaches
        self._end = earlier[-1].position if earlier else None
        #: the last of these where the marks pass over all of them and do not have its position
        self._apart: TxlogName | None = None

    def published(self, name: TxlogName, position: bytes | None, offsets: Offsets | None = None) -> None:
        """Count a txlog of this run; one with a position is checked until it is committed."""
        self._pending += 1
        if position is not None:
            self._own[name], self._end = _with_rows(offsets or {}), position

    def full(self, limit: int) -> bool:
        """Whether `limit` txlogs were pending when pending/ was listed last."""
        return self._pending >= limit

    @property
    def all_committed(self) -> bool:
        """Whether the last look found all in the marks that it has to look for."""
        return not self._own

    def look(self) -> None:
        """
        List pending/, unless that was done within the last second. Raises Fenced, StorageUnavailable.
        """
        now = self._clock()
        if self._listed_at is not None and timedelta(0) <= now - self._listed_at < EVERY:
            return
        with_marks = self._own or self._ordered is not None
        reads = [self._folder.marks, self._folder.pending] if with_marks else [self._folder.pending]
        *copies, pending = self._at_once([partial(retry, read, self._wait) for read in reads])
        found = {item.name for item in pending}
        self._listed_at, self._pending = now, len(found)
        for copy in copies:
            self._check_own(found, copy)
            self._check_later(pending, copy)

    def check_end(self) -> None:
        """
        Raises Fenced where the last look found that the table does not have the position of what was published: the
        marks pass over a txlog that was given up (`bookkeeper discard`), too.
        """
        if self._apart is not None:
            raise Fenced(f"{self._apart} was given up, or another run has gone ahead: the table is not where it ends")

    def admit(self, limit: int, patience: timedelta) -> None:
        """
        Return once fewer than `limit` txlogs are pending, as far as `look` knows.

        Raises Backpressure after `patience` or when `wait` returns True, Fenced, StorageUnavailable.
        """
        waited, before = Waited(self._clock), timedelta(0)
        while self.full(limit):
            self._metrics.waits()
            if before >= patience or self._wait(EVERY.total_seconds()) is True:
                raise Backpressure(f"{self._pending} txlogs are pending, the table's pending limit is {limit}")
            self.look()
            now = waited()
            self._metrics.waits((now - before).total_seconds())
            before = now
        self._metrics.goes_on()

    def _check_own(self, found: set[TxlogName], copy: MarksCopy | None) -> None:
        # The marks may be older than the listing, for both are read at once: a txlog in neither may be committed. Only
        # its copy in rejected/ says that it is not.
        if copy is not None and self._own:
            last = [*self._own][-1]
            self._own = {name: channels for name, channels in self._own.items() if not copy.marks.is_in(name)}
            if not self._own:
                self._apart = None if copy.marks.writer(last.writer).position == self._end else last
        for name, channels in [*self._own.items()]:
            if name in found:
                continue
            if retry(partial(self._folder.exists, name, REJECTED), self._wait):
                reason = self._folder.reason(name)
                why = reason.get("reason", "no reason is recorded")
                fenced = Fenced(f"{name} was rejected, so the chain of positions ends before it: {why}")
                fenced.rejected, fenced.channels = str(reason.get("error", "")), channels
                raise fenced
            if copy is not None and self._was_pruned(name, copy.marks):
                del self._own[name]

    def _was_pruned(self, name: TxlogName, marks: Marks) -> bool:
        """Whether a txlog that is nowhere was committed, and its mark pruned before this run looked: it was idle."""
        may_be = marks.mark(name) is None and started_ms(name.incarnation) < marks.pruned_before_ms
        return may_be and marks.writer(name.writer).position == self._end

    def _check_later(self, pending: Sequence[Found], copy: MarksCopy | None) -> None:
        """One writer is one order on a keyed table: what this run publishes behind a later one is rejected."""
        if self._ordered is None:
            return
        writer, own = self._ordered
        runs = {name.incarnation for name in sound(pending, millis(self._clock())) if name.writer == writer}
        if copy is not None:
            runs |= copy.marks.writer(writer).incarnations.keys()
        later = max(runs, default=own)
        if later > own:
            raise Fenced(
                f"a later run of {writer} has published ({later}): nothing more of this run gets into a keyed table",
                hint="Stop this run, and give its unpublished rows to the other one. Runs that go on side by side need "
                "names of their own, and keys of their own.",
            )


def sound(found: Iterable[Found], now_ms: int) -> list[TxlogName]:
    """
    Names of runs that began no later than an hour from now, by this clock or the storage's.

    What says it began later is refused by the bookkeeper: a run that came behind it would be refused, too.
    """
    return [
        item.name
        for item in found
        if started_ms(item.name.incarnation) <= max(now_ms, millis(item.modified)) + FUTURE_MS
    ]


def _with_rows(offsets: Offsets) -> frozenset[str]:
    """The channels of a txlog that may have rows in it."""
    return frozenset(channel for channel, offset in offsets.items() if offset != FORGOTTEN)
