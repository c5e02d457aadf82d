"""
A time limit for calls that may never return: a frozen server keeps the connection, and its client waits for ever.

After the limit the call goes on in its own thread, which is left behind. So only calls that may still take effect
later belong here.
"""

from collections.abc import Callable
from concurrent.futures import wait
from datetime import timedelta
from typing import TypeVar

from bookkeeper.threads import begin

T = TypeVar("T")


def within(patience: timedelta, act: Callable[[], T]) -> T:
    """
    Returns or raises what `act` does; raises TimeoutError when it takes longer than `patience`.
    """
    outcome = begin(act, "bounded call")
    wait([outcome], patience.total_seconds())
    if not outcome.done():
        raise TimeoutError(f"no answer within {patience.total_seconds():g} s")
    return outcome.result()
