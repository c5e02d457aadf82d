"""
Pauses of folds: a job that rewrites data files of a keyed table for long keeps the bookkeeper from folding meanwhile.

A fold writes a position delete file for each data file with dead rows. A rewrite that began before did not apply it,
and is refused. Where rows are upserted all the time, so would be each long rewrite.

A pause is an empty object in `fold-pauses/` of the txlog folder. It holds for LASTS after it was written last, by the
storage's clock, and the job writes it again and again. A job that is killed leaves an object that holds no longer than
that; a later job deletes it. A pause saves work and is no part of any proof: rewrites and folds are checked when they
are committed, whether one was seen or not.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.errors import BookkeeperError
from bookkeeper.stores.store import Store
from bookkeeper.threads import repeating

log = logging.getLogger("bookkeeper")

PAUSES = "fold-pauses/"
LASTS = timedelta(minutes=2)
#: leftovers of killed jobs are deleted from this age on: this clock and the storage's may differ
_LEFT_FOR = timedelta(hours=1)


def paused(store: Store, now: datetime) -> bool:
    """
    Whether a job wants folds to pause; raises StorageUnavailable.
    """
    return any(abs(now - item.modified) < LASTS for item in store.list(PAUSES))


@contextmanager
def pausing(
    store: Store, name: str, now: datetime, lasts: timedelta = LASTS, lapses: Callable[[], bool] = lambda: False
) -> Iterator[bool]:
    """
    Pauses folds during the block, under a `name` that no other job has; gives False where storage does not allow it.

    Then folds go on, and may cost the job its work. Nothing is raised. If `lapses` at the end, the pause is left to
    end by itself: what the job published is to be committed first.
    """
    key = f"{PAUSES}{name}"
    written = _write(store, key)
    with suppress(BookkeeperError):
        old = [item.key for item in store.list(PAUSES) if now - item.modified > _LEFT_FOR]
        store.delete_many(old)
    try:
        with repeating(partial(_write, store, key), lasts.total_seconds() / 6, "fold pause"):
            yield written
    finally:
        if not lapses():
            with suppress(BookkeeperError):  # it ends by itself
                store.delete_many([key])


def _write(store: Store, key: str) -> bool:
    try:
        store.replace(key, b"")
    except BookkeeperError as error:
        about = {"action": "fold-pause", "cause": str(error), "hint": f"The job needs the right to create in {PAUSES}."}
        log.warning("folds are not paused", extra=about)
        return False
    return True
