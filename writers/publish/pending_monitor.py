"""
Backpressure and fencing: how many txlogs of the table are pending, and whether one of this run was rejected.
"""

from datetime import datetime, timedelta
from functools import partial

from bookkeeper.core.folder import REJECTED, Folder
from bookkeeper.core.names import TxlogName
from bookkeeper.errors import Backpressure, Fenced
from writers.metrics import WriterMetrics
from writers.timing import Clock, Wait, retry

EVERY = timedelta(seconds=1)


class PendingMonitor:
    """
    Lists pending/ at most once a second.
    """

    def __init__(self, folder: Folder, clock: Clock, wait: Wait, metrics: WriterMetrics) -> None:
        self._folder, self._clock, self._wait, self._metrics = folder, clock, wait, metrics
        self._listed_at: datetime | None = None
        self._pending = 0
        self._own: list[TxlogName] = []

    def published(self, name: TxlogName, chained: bool) -> None:
        """Count a txlog of this run; one with a position (`chained`) is checked until it is committed."""
        self._pending += 1
        if chained:
            self._own.append(name)

    def admit(self, limit: int, patience: timedelta) -> None:
        """
        Return once fewer than `limit` txlogs are pending.

        Raises Backpressure after `patience` or when `wait` returns True, Fenced, StorageUnavailable.
        """
        began = self._clock()
        self._list()
        while self._pending >= limit:
            waited = self._clock() - began
            self._metrics.waits(self._pending)
            if waited >= patience or self._wait(EVERY.total_seconds()) is True:
                raise Backpressure(f"{self._pending} txlogs are pending, the table's pending limit is {limit}")
            self._list()
            self._metrics.waits(self._pending, (self._clock() - began - waited).total_seconds())
        self._metrics.goes_on(self._pending)

    def _list(self) -> None:
        now = self._clock()
        if self._listed_at is not None and timedelta(0) <= now - self._listed_at < EVERY:
            return
        found = {item.name for item in retry(self._folder.pending, self._wait)}
        self._listed_at, self._pending = now, len(found)
        if any(name not in found for name in self._own):
            self._check_own(found)

    def _check_own(self, found: set[TxlogName]) -> None:
        # Listed first, marks read second: a txlog in neither was taken out of pending/ without a commit.
        copy = retry(self._folder.marks, self._wait)
        self._own = [name for name in self._own if copy is None or not copy.marks.is_in(name)]
        for name in self._own:
            if name not in found and retry(partial(self._folder.exists, name, REJECTED), self._wait):
                why = self._folder.reason(name).get("reason", "no reason is recorded")
                raise Fenced(f"{name} was rejected, so the chain of positions ends before it: {why}")
