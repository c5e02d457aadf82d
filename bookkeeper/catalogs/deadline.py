"""
A bound on calls that may never return: a frozen server still holds the connection, and its client waits for ever.

The call goes on in a thread of its own, which is left behind. So only what may still happen later belongs here.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")


def within(patience: timedelta, act: Callable[[], T]) -> T:
    """
    What `act` returns or raises; raises TimeoutError when it takes longer than `patience`.
    """
    done, outcome = threading.Event(), list[Any]()

    def run() -> None:
        try:
            outcome[:] = [act(), None]
        except BaseException as error:  # noqa: BLE001  (it is raised again, in the thread that asked)
            outcome[:] = [None, error]
        finally:
            done.set()

    threading.Thread(target=run, name="bounded call", daemon=True).start()
    if not done.wait(patience.total_seconds()):
        raise TimeoutError(f"no answer within {patience.total_seconds():g} s")
    result, error = outcome
    if error is not None:
        raise error
    returned: T = result
    return returned
