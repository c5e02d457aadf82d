"""
What a running writer sees of the txlog folder: how far behind the bookkeeper is, and whether it was fenced.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.core.folder import REJECTED, Folder
from bookkeeper.core.names import TxlogName
from bookkeeper.errors import Backpressure, Fenced
from writers.metrics import WriterMetrics
from writers.retry import Wait, retry

EVERY = timedelta(seconds=1)


class PendingMonitor:
    """
    Lists pending/ at most once a second.
    """

    def __init__(self, folder: Folder, clock: Callable[[], datetime], wait: Wait, figures: WriterMetrics) -> None:
        self._folder, self._clock, self._wait, self._figures = folder, clock, wait, figures
        self._looked: datetime | None = None
        self._pending = 0
        self._own: list[TxlogName] = []

    def published(self, name: TxlogName, chained: bool) -> None:
        """Take note of an own txlog; one with a position (`chained`) is followed until it is in."""
        self._pending += 1
        if chained:
            self._own.append(name)

    def admit(self, limit: int, patience: timedelta) -> None:
        """
        Return once fewer than `limit` txlogs are pending.

        Raises Backpressure after `patience` or when `wait` says True, Fenced, StorageUnavailable.
        """
        began = self._clock()
        self._look()
        while self._pending >= limit:
            waited = self._clock() - began
            self._figures.waits(self._pending)
            if waited >= patience or self._wait(EVERY.total_seconds()) is True:
                raise Backpressure(f"{self._pending} txlogs are pending, the table's pending limit is {limit}")
            self._look()
            self._figures.waits(self._pending, (self._clock() - began - waited).total_seconds())
        self._figures.goes_on(self._pending)

    def _look(self) -> None:
        now = self._clock()
        if self._looked is not None and timedelta(0) <= now - self._looked < EVERY:
            return
        found = {item.name for item in retry(self._folder.pending, self._wait)}
        self._looked, self._pending = now, len(found)
        if any(name not in found for name in self._own):
            self._follow(found)

    def _follow(self, found: set[TxlogName]) -> None:
        # Listed first, marks second: what is in neither was not committed but taken out of pending/.
        copy = retry(self._folder.marks, self._wait)
        self._own = [name for name in self._own if copy is None or not copy.marks.is_in(name)]
        for name in self._own:
            if name not in found and retry(partial(self._folder.exists, name, REJECTED), self._wait):
                why = self._folder.reason(name).get("reason", "no reason is written down")
                raise Fenced(f"{name} was rejected, so the chain of positions ends before it: {why}")
