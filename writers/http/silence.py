"""
Producers of a slot that were silent for so long that they are forgotten: the table has room for others then.

A txlog without rows says it, in the chain of the slot: it is in the table or not, as any other, and what a crash leaves
is that. Whether a producer is silent, the older of two clocks says, this machine's and the bookkeeper's (of its last
commit); the day of an offset is the newer one's. So one clock that is wrong forgets no producer that sends.
"""

from collections.abc import Container
from datetime import UTC, date, datetime, timedelta
from itertools import islice

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.contract.offsets import FORGOTTEN, Offsets
from bookkeeper.contract.txlog_folder import Folder
from writers.http.sequences import day_of
from writers.publish.publisher import LATEST_MS
from writers.retries import retry
from writers.timing import Clock, Wait

#: between two looks at all producers; and so many are forgotten by one txlog
EVERY, MOST = timedelta(minutes=1), 100
DAY = timedelta(days=1)


class Silence:
    """Of one run of a slot; `keep`: how long a silent producer is remembered, None: for ever."""

    def __init__(self, folder: Folder, clock: Clock, wait: Wait, keep: timedelta | None) -> None:
        self._folder, self._clock, self._wait, self._keep = folder, clock, wait, keep
        self._looked_at: datetime | None = None
        #: by the bookkeeper's clock; and whether the producers were not looked at since
        self._committed_at, self._is_due = from_epoch_ms(0), False

    @property
    def day(self) -> date:
        """What an offset that is published now says; raises StorageUnavailable."""
        self._look()
        return max(self._clock(), self._committed_at).astimezone(UTC).date()

    def is_due(self) -> bool:
        """Whether producers are to be looked at; raises StorageUnavailable."""
        if self._keep is None:
            return False
        self._look()
        return self._is_due

    def forgotten(self, offsets: Offsets, busy: Container[str]) -> Offsets:
        """
        The producers of `offsets` that are to be forgotten now, none of them `busy`; raises StorageUnavailable.
        """
        if not self.is_due():
            return {}
        today = min(self._clock(), self._committed_at).astimezone(UTC).date()
        silent = (name for name, offset in offsets.items() if name not in busy and self._is_silent(offset, today))
        found = dict.fromkeys(islice(silent, MOST), FORGOTTEN)
        self._is_due = len(found) == MOST  # there may be more
        return found

    def _is_silent(self, offset: str, today: date) -> bool:
        """The producer may have sent something until the end of its day."""
        day = day_of(offset)
        return day is not None and self._keep is not None and today - day - DAY >= self._keep

    def _look(self) -> None:
        """Looks at the marks, at most once in a while."""
        now = self._clock()
        if self._looked_at is not None and timedelta(0) <= now - self._looked_at < EVERY:
            return
        copy = retry(self._folder.marks, self._wait)
        if copy is not None:
            newest = max(map(copy.marks.seen_ms, copy.marks.writers), default=0)
            self._committed_at = from_epoch_ms(min(newest, LATEST_MS))
        self._looked_at, self._is_due = now, True
