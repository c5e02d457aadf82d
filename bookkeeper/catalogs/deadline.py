"""
A time limit for calls that may never return: a frozen server keeps the connection, and its client waits for ever.

After the limit the call goes on in its own thread, which is left behind. So only calls that may still take effect
later belong here.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")


def within(patience: timedelta, act: Callable[[], T]) -> T:
    """
    Returns or raises what `act` does; raises TimeoutError when it takes longer than `patience`.
    """
    done, outcome = threading.Event(), list[Any]()

    def run() -> None:
        try:
            outcome[:] = [act(), None]
        except BaseException as error:  # noqa: BLE001  (it is raised again, in the calling thread)
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
