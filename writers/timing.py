"""
This machine's clock and its sleep, for programs that bring none of their own; storage calls at once.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from bookkeeper.threads import start

T = TypeVar("T")
Clock = Callable[[], datetime]
#: waits so many seconds; returns True when the caller should not wait any longer (a stop was requested)
Wait = Callable[[float], object]
Act = Callable[[], Any]
#: does several storage calls at once, like `at_once`
AtOnce = Callable[[Sequence[Act]], list[Any]]

#: of a writer, for a bookkeeper that is behind
PATIENCE = timedelta(minutes=5)


class Waited:
    """How long a wait has taken until now, called; a clock that is put back meanwhile makes it no longer."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._at, self._so_far = clock, clock(), timedelta(0)

    def __call__(self) -> timedelta:
        before, self._at = self._at, self._clock()
        self._so_far += max(self._at - before, timedelta(0))
        return self._so_far


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


def at_once(acts: Sequence[Act]) -> list[Any]:
    """
    The results of `acts`, which do not depend on each other; they go at the same time, the last one in this thread.

    Returns when all have ended, or raises the error of the first that failed: nothing is under way then. Only an
    interrupt of this thread does not wait for the others.
    """
    results: list[Any] = [None] * len(acts)
    errors: dict[int, BaseException] = {}

    def do(index: int) -> None:
        try:
            results[index] = acts[index]()
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors[index] = error

    # Daemons: after an interrupt a storage that does not answer must not keep the process alive.
    threads = [start(partial(do, index), "at once") for index in range(len(acts) - 1)]
    try:
        results[-1:] = [act() for act in acts[-1:]]
    except Exception as error:  # noqa: BLE001 - raised below
        errors[len(acts)] = error
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return results
