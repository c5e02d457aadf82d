"""
Whether this machine's clock is so far ahead of the storage's that the bookkeeper would reject what it publishes.

A named producer would learn it, for its rows are not committed; a request without a name is answered once its rows are
published, so nothing is published by such a clock. The bookkeeper compares with its own clock, which it holds against
the storage's; what is asked here leaves one small object beside the leases, which each look writes again.
"""

from datetime import datetime, timedelta
from functools import partial

from bookkeeper.config.units import format_duration
from bookkeeper.contract.marks import FUTURE_MS
from bookkeeper.errors import ClockAhead
from bookkeeper.leases.slot_lease import FOLDER
from bookkeeper.stores.store import Store
from writers.retries import retry
from writers.timing import Clock, Wait

#: the bookkeeper's clock and the storage's may differ by so much
_APART = timedelta(minutes=5)
MOST_AHEAD = timedelta(milliseconds=FUTURE_MS) - _APART
#: between two looks; a jump of the clock that is longer ends it, a shorter one is within _APART
EVERY = timedelta(minutes=1)


class StorageClock:
    """Of a run of the writer `name` that begins now, as its incarnation says."""

    def __init__(self, store: Store, name: str, clock: Clock, wait: Wait) -> None:
        self._store, self._key, self._clock, self._wait = store, f"{FOLDER}{name}.clock", clock, wait
        self._began = clock()
        self._looked_at: datetime | None = None

    def check(self) -> None:
        """
        Before a publish; looks once a minute. Raises ClockAhead, StorageUnavailable.
        """
        now = self._clock()
        if self._looked_at is not None and timedelta(0) <= now - self._looked_at < EVERY:
            return
        # Not `replace`: on a disk with least rights a writer cannot lock the folder. What is in it does not matter.
        retry(partial(self._store.upload, self._key, b"clock\n"), self._wait)
        ahead = max(now, self._began) - retry(partial(self._store.modified, self._key), self._wait)
        if ahead > MOST_AHEAD:
            error = f"this machine's clock is {format_duration(ahead)} ahead of the storage's"
            raise ClockAhead(f"{error}, so the bookkeeper would reject the rows", hint=_HINT)
        self._looked_at = now


_HINT = "Synchronise the clock of this instance (NTP). Send it again: another instance may take it."
