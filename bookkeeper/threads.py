"""
The threads of a process: the one place that starts them. docs/maintain/threads.md names each, with locks and queues.

All are daemons: a storage or catalog that never answers must not keep a process from ending. What must have ended
before something else begins is waited for, by `join`, `result` or `shutdown`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from threading import Condition, Event, Thread, current_thread
from typing import Any, TypeVar

T = TypeVar("T")
#: an idle thread of an executor ends after this
IDLE_SECONDS = 20.0


def start(act: Callable[[], object], name: str) -> Thread:
    """
    Calls `act` in a new thread; an error that it raises is logged as a defect. Raises RuntimeError without a thread.
    """
    thread = Thread(target=act, name=name, daemon=True)
    thread.start()
    return thread


def begin(act: Callable[[], T], name: str) -> Future[T]:
    """
    The outcome of `act`, which is called in a new thread. Raises RuntimeError without a thread.
    """
    future = Future[T]()
    start(partial(_do, future, act), name)
    return future


@contextmanager
def repeating(act: Callable[[], object], seconds: float, name: str) -> Iterator[None]:
    """
    Calls `act` every so many seconds beside the block; the block ends when the thread has ended.
    """
    over = Event()

    def repeat() -> None:
        while not over.wait(seconds):
            act()

    thread = start(repeat, name)
    try:
        yield
    finally:
        over.set()
        thread.join()


class Threads(Executor):
    """
    An executor whose threads are daemons: at most `most` at once (None: one for each task that is under way).

    A thread is kept for IDLE_SECONDS, for the next task. Python's own executor makes a process wait for its threads.
    """

    def __init__(self, name: str, most: int | None = None) -> None:
        self.name, self.most = name, most
        self._changed = Condition()
        #: tasks that no thread has taken
        self._tasks = deque[tuple[Future[Any], Callable[[], Any]]]()
        self._threads, self._idle, self._closed = set[Thread](), 0, False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """The outcome of a call; raises RuntimeError after `shutdown`, and when no thread is left for it."""
        future = Future[T]()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self.name}: no task is taken after shutdown")
            if self._idle <= len(self._tasks) and (self.most is None or len(self._threads) < self.most):
                self._threads.add(start(self._work, self.name))
                self._idle += 1
            self._tasks.append((future, partial(fn, *args, **kwargs)))
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no further task; `wait`: until all that were taken have ended."""
        with self._changed:
            self._closed = True
            cancelled = [self._tasks.popleft() for _ in range(len(self._tasks) if cancel_futures else 0)]
            self._changed.notify_all()
            threads = list(self._threads)
        for future, _ in cancelled:
            future.cancel()
        for thread in threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            _do(*task)
            task = None  # what it returned is not kept while this thread waits
            with self._changed:
                self._idle += 1

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._closed, IDLE_SECONDS)
            self._idle -= 1
            if self._tasks:
                return self._tasks.popleft()
            self._threads.discard(current_thread())
            return None


def _do(future: Future[Any], act: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = act()
    except BaseException as error:  # noqa: BLE001  (it is raised again where the result is asked for)
        future.set_exception(error)
    else:
        future.set_result(result)
