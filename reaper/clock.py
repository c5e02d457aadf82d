"""
Nothing expires by a clock that may be wrong: it is compared with the storage's by a small object written for that,
with this machine's monotonic clock, and with the table's last update.
"""

from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.units import format_duration, millis
from bookkeeper.contract.steady_clock import SMALL, Steady, keeps_time
from bookkeeper.errors import ClockBehind, Halt, StorageUnavailable
from bookkeeper.stores.store import Store, is_full

KEY = "reaper/clock"
MOST = timedelta(minutes=5)
MOST_BEHIND_TABLE = timedelta(seconds=30)
EPOCH = datetime.fromtimestamp(0, UTC)


class ClockDiffers(Halt):
    """This machine's clock is more than 5 minutes behind the storage's, or more than 30 s ahead of it."""

    hint = "Synchronise the clock (NTP); the next run looks again."


class ClockJumped(Halt):
    """This machine's clock went more than 5 minutes further ahead than time passed."""

    hint = "Set the clock right (NTP). If it is right: restart the reaper."


def check_storage_clock(store: Store, now: datetime, steady: Steady | None = None) -> None:
    """
    Raises ClockDiffers when the storage's time of a new object is more than 5 minutes after `now` or 30 s before it;
    ClockJumped when our clock has jumped ahead and the storage's cannot prove it right.

    An expiry stamps the table with our time, and a bookkeeper whose clock is more than 30 s behind that stamp commits
    nothing. This machine's own disk proves nothing: there both clocks are the same. So where it is full, it is not
    asked: what the reaper deletes makes room.
    """
    try:
        store.replace(KEY, now.isoformat().encode() + b"\n")
        listed = [*store.list("reaper/")]
    except StorageUnavailable as exc:
        if keeps_time(store) or not is_full(exc):
            raise
        listed = []
    for item in listed:
        if item.key != KEY:
            continue
        difference = item.modified - now
        if not -SMALL <= difference <= MOST:
            raise ClockDiffers(
                f"it is {now.isoformat()} here and {item.modified.isoformat()} at {store.url} "
                f"({format_duration(abs(difference))} apart); nothing is expired"
            )
        if steady is not None and keeps_time(store) and abs(difference) <= SMALL:
            steady.trust()
    if steady is not None and (ahead := steady.ahead()) > MOST:
        raise ClockJumped(
            f"this machine's clock went {format_duration(ahead)} further ahead than time passed; nothing expires"
        )


def check_table_clock(metadata: TableMetadata, now: datetime) -> None:
    """
    Raises ClockBehind when `now` is more than 30 s before the table's last update.
    """
    behind = timedelta(milliseconds=metadata.last_updated_ms - millis(now - EPOCH))
    if behind > MOST_BEHIND_TABLE:
        raise ClockBehind(f"this clock is {format_duration(behind)} behind the table's last update; nothing is expired")
