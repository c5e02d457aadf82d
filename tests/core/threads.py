"""Several threads that start at the same moment."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def at_once(acts: Sequence[Callable[[], T]]) -> list["T | BaseException"]:
    """
    What each act returned or raised; none begins before all are ready.
    """
    barrier = Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        barrier.wait()
        return act()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # else one thread would be through before the next one gets its turn
    try:
        with ThreadPoolExecutor(len(acts)) as pool:
            futures = [pool.submit(run, act) for act in acts]
    finally:
        sys.setswitchinterval(interval)
    return [future.exception() or future.result() for future in futures]
