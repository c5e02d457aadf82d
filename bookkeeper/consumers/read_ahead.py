"""
Reads ahead in threads: where each step is a round trip, several are under way.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future
from typing import TypeVar

from bookkeeper.errors import BookkeeperError

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
READ_AHEAD = 16


def each_ahead(
    threads: Executor,
    items: Iterable[I],
    act: Callable[[I], T],
    weigh: Callable[[I], int] = lambda item: 0,
    most: int = 0,
) -> Generator[tuple[I, T], None, None]:
    """
    Each item with what `act` returns for it, in order; some are done ahead, in `threads`: 16 at most, and no further
    one while they `weigh` more than `most`.
    """
    waiting: deque[tuple[I, Future[T]]] = deque()
    error: BaseException | None = None
    source, weight = iter(items), 0
    try:
        while True:
            while error is None and len(waiting) < READ_AHEAD and (weight <= most or not waiting):
                try:
                    item = next(source)
                except StopIteration:
                    break
                except BookkeeperError as exc:
                    error = exc  # after what is before it
                    break
                weight += weigh(item)
                waiting.append((item, threads.submit(act, item)))
            if not waiting:
                break
            item, future = waiting.popleft()
            weight -= weigh(item)
            yield item, future.result()
        if error is not None:
            raise error
    finally:
        for _, future in waiting:
            future.cancel()
