"""Several threads at the same moment."""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Barrier, Event
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # else one thread would be through before the next one gets its turn
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield pool
    finally:
        sys.setswitchinterval(interval)


def at_once(acts: Sequence[Callable[[], T]]) -> list["T | BaseException"]:
    """
    What each act returned or raised; none begins before all are ready.
    """
    barrier = Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        barrier.wait()
        return act()

    with _pool(len(acts)) as pool:
        futures = [pool.submit(run, act) for act in acts]
    return [future.exception() or future.result() for future in futures]


@contextmanager
def beside(act: Callable[[Event], object]) -> Iterator[None]:
    """
    Runs `act` in a thread; the event is set when the block ends, and `act` then has to. What it raised is raised then.
    """
    over = Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(act, over)
        try:
            yield
        finally:
            over.set()
    future.result()


def again_and_again(act: Callable[[], object], seconds: float) -> AbstractContextManager[None]:
    """
    Calls `act` in a thread until the block ends, with a pause of so many seconds before each call.
    """

    def repeat(over: Event) -> None:
        while not over.wait(seconds):
            act()

    return beside(repeat)


def meanwhile(again: Callable[[int], object], acts: Sequence[Callable[[], T]]) -> list[T]:
    """
    What each act returned, while `again` was called with 0, 1, 2 and so on until all were through.
    """
    with _pool(len(acts)) as pool:
        futures = [pool.submit(act) for act in acts]
        number = 0
        while not all(future.done() for future in futures):
            again(number)
            number += 1
    return [future.result() for future in futures]
