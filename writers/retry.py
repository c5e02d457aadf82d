"""
Bounded retries of storage calls that may be sent more than once.
"""

from collections.abc import Callable
from typing import TypeVar

from bookkeeper.errors import StorageUnavailable

T = TypeVar("T")
Wait = Callable[[float], object]

ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0  # some 16 s in all


def retry(act: Callable[[], T], wait: Wait) -> T:
    """
    What `act` returns, after at most ATTEMPTS tries with growing pauses; `wait` says True to try only once more.

    Raises the last StorageUnavailable.
    """
    pause = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        try:
            return act()
        except StorageUnavailable:
            if wait(pause) is True:
                break
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    return act()
