"""
The brake on a clock that cannot be trusted: ours against the storage's, by a small object written for it.
"""

from datetime import datetime, timedelta

from bookkeeper.core.errors import Halt
from bookkeeper.core.store import Store
from bookkeeper.core.units import spoken

KEY = "reaper/clock"
MOST = timedelta(minutes=5)


class ClockDiffers(Halt):
    """This machine's clock and the storage's differ by more than 5 minutes."""

    hint = "Synchronise the clock (NTP); the next run looks again."


def compare(store: Store, now: datetime) -> None:
    """
    Raises ClockDiffers when the time the storage gives a new object is more than 5 minutes from `now`.

    Proves nothing on this machine's own disk: there both clocks are one.
    """
    store.replace(KEY, now.isoformat().encode() + b"\n")
    for item in store.list("reaper/"):
        if item.key == KEY and abs(item.modified - now) > MOST:
            raise ClockDiffers(
                f"it is {now.isoformat()} here and {item.modified.isoformat()} at {store.url} "
                f"({spoken(abs(item.modified - now))} apart); nothing is expired"
            )
