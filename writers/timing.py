"""
This machine's clock and its sleep, for programs that bring none of their own, and bounded retries of storage calls.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from bookkeeper.errors import StorageUnavailable

T = TypeVar("T")
Clock = Callable[[], datetime]
#: waits so many seconds; returns True when the caller should not wait any longer (a stop was requested)
Wait = Callable[[float], object]

ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0  # some 16 s in all


def utc_now() -> datetime:
    """
    The time of this machine.
    """
    return datetime.now(UTC)  # noqa: TID251 the default of an argument


def pause(seconds: float) -> None:
    """
    Sleep.
    """
    time.sleep(seconds)  # noqa: TID251 the default of an argument


def millis(at: datetime) -> int:
    """
    Milliseconds since 1970.
    """
    return round(at.timestamp() * 1000)


def retry(act: Callable[[], T], wait: Wait) -> T:
    """
    The result of `act`, a call that may be sent more than once, after at most ATTEMPTS tries with growing pauses.

    When `wait` returns True, only one more try follows. Raises the last StorageUnavailable.
    """
    seconds = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        try:
            return act()
        except StorageUnavailable:
            if wait(seconds) is True:
                break
            seconds = min(seconds * 2, LONGEST_PAUSE_SECONDS)
    return act()
