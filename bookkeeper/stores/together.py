"""
Requests that do not depend on each other, sent at once.

Stores are synchronous, so each call waits in a thread. On a disk nothing is gained by that: the calls are made one
after another, in the caller's thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Thread

from bookkeeper.threads import start

#: read at once: so many objects, of so many bytes together
READ_AT_ONCE, BYTES_AT_ONCE = 64, 2**26


def together(tasks: Sequence[Callable[[], object]], at_once: int) -> None:
    """
    Does all tasks, `at_once` of them at a time; returns when none is under way any more.

    Raises the first error in the order of `tasks`; after an error no further task is begun. So what a caller does
    next never runs beside one of them. Only an exception in the calling thread itself (a signal's) ends the wait
    early: that process is about to end, and its requests are those of a crash.
    """
    if at_once < 2 or len(tasks) < 2:
        for task in tasks:
            task()
        return
    waiting, errors = deque(enumerate(tasks)), dict[int, BaseException]()

    def work() -> None:
        while waiting and not errors:
            try:
                number, task = waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                task()
            except BaseException as error:  # noqa: BLE001  (it is raised again, in the calling thread)
                errors[number] = error

    begun: list[Thread] = []
    try:
        for _ in range(min(at_once, len(tasks))):
            begun.append(start(work, "request"))
    finally:
        for thread in begun:
            thread.join()
    if errors:
        # What must not be caught comes first.
        raise errors[min(errors, key=lambda number: (isinstance(errors[number], Exception), number))]


def in_parts(
    sizes: Iterable[tuple[str, int]], most_bytes: int = BYTES_AT_ONCE, most_names: int | None = None
) -> Iterator[dict[str, int]]:
    """
    What is read together, each with its size: `most_names` (READ_AT_ONCE), and `most_bytes` unless one alone has more.
    """
    part, size = dict[str, int](), 0
    for name, bytes_there in sizes:
        if part and (len(part) == (most_names or READ_AT_ONCE) or size + bytes_there > most_bytes):
            yield part
            part, size = {}, 0
        part[name] = bytes_there
        size += bytes_there
    if part:
        yield part
