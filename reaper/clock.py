"""
The brake on a clock that cannot be trusted: ours against the storage's, by a small object written for it, and
against the monotonic clock of this machine.
"""

from datetime import datetime, timedelta

from bookkeeper.config.units import format_duration
from bookkeeper.core.clock import SMALL, Steady, keeps_time
from bookkeeper.errors import Halt
from bookkeeper.stores.store import Store

KEY = "reaper/clock"
MOST = timedelta(minutes=5)


class ClockDiffers(Halt):
    """This machine's clock is more than 5 minutes behind the storage's, or more than 30 s ahead of it."""

    hint = "Synchronise the clock (NTP); the next run looks again."


class ClockJumped(Halt):
    """This machine's clock went more than 5 minutes further ahead than time passed."""

    hint = "Set the clock right (NTP). If it is right: restart the reaper."


def compare(store: Store, now: datetime, steady: Steady | None = None) -> None:
    """
    Raises ClockDiffers when the time the storage gives a new object is more than 5 minutes after `now`, or 30 s before
    it; ClockJumped when our clock has jumped ahead and the storage's cannot prove it right.

    An expiry stamps the table with our time, and no bookkeeper commits that finds itself more than 30 s behind it.

    This machine's own disk proves nothing: there both clocks are one.
    """
    store.replace(KEY, now.isoformat().encode() + b"\n")
    for item in store.list("reaper/"):
        if item.key == KEY and not -SMALL <= item.modified - now <= MOST:
            raise ClockDiffers(
                f"it is {now.isoformat()} here and {item.modified.isoformat()} at {store.url} "
                f"({format_duration(abs(item.modified - now))} apart); nothing is expired"
            )
        if item.key == KEY and steady is not None and keeps_time(store) and abs(item.modified - now) <= SMALL:
            steady.trust()
    if steady is not None and (ahead := steady.ahead()) > MOST:
        raise ClockJumped(
            f"this machine's clock went {format_duration(ahead)} further ahead than time passed; nothing expires"
        )
