"""
Storage calls tried again, and the growing pauses between two tries.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from bookkeeper.errors import StorageUnavailable
from writers.timing import Wait

T = TypeVar("T")
ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0  # some 16 s in all


def backoff(first: float, longest: float) -> Iterator[float]:
    """
    Pauses without end, in seconds: each twice the one before, up to the longest.
    """
    seconds = first
    while True:
        yield seconds
        seconds = min(seconds * 2, longest)


def retry(act: Callable[[], T], wait: Wait, attempts: int = ATTEMPTS) -> T:
    """
    The result of `act`, a call that may be sent more than once, after at most so many tries with growing pauses, none
    shorter than the `pause` of the error.

    When `wait` returns True, only one more try follows. Raises the last StorageUnavailable.
    """
    pauses = backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    for _ in range(attempts - 1):
        try:
            return act()
        except StorageUnavailable as exc:
            if wait(max(next(pauses), exc.pause.total_seconds() if exc.pause else 0.0)) is True:
                break
    return act()
