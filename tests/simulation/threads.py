"""
Threads of the product as actors: what stands in for `threading`, `start` and executors in its modules. A thread that
was started runs at the events of its actor; who joins it before that runs it, or waits until that actor has ended it.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from tests.simulation.schedule import Crash, Scheduler


class Thread:
    """One thread of a process; its name says which actor runs it."""

    def __init__(self, threads: "Threads", act: Callable[[], Any], name: str) -> None:
        self.threads, self.act, self.name = threads, act, name
        self.started = self.begun = self.done = False

    def start(self) -> None:
        self.started = True
        self.threads.waiting.append(self)

    def is_alive(self) -> bool:
        return self.started and not self.done

    def run(self) -> None:
        self.begun = True
        self.act()
        scheduler = self.threads.scheduler
        # A thread may catch whatever ends its process.
        if scheduler.current is not None and scheduler.current.dead:
            raise Crash("in a thread")
        self.done = True

    def join(self) -> None:
        if not self.begun:
            self.run()
        while not self.done:
            self.threads.scheduler.leave()


class Outcome(Future[Any]):
    """Of a task that an executor was given: who waits for it joins its thread."""

    def __init__(self, threads: "Threads", act: Callable[[], Any], name: str) -> None:
        super().__init__()
        self.thread = Thread(threads, partial(self._act, act), name)
        self.thread.start()

    def _act(self, act: Callable[[], Any]) -> None:
        try:
            self.set_result(act())
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            self.set_exception(error)

    def done(self) -> bool:
        return not self.thread.is_alive()

    def result(self, timeout: float | None = None) -> Any:
        self.thread.join()
        return super().result(timeout)


class Event:
    """`threading.Event`, of which nothing waits for long."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._set = scheduler, False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        if not self._set:
            self._scheduler.leave()
        return self._set


class Threads:
    """The threads of one process; `step` runs the one that was started first."""

    Lock = threading.Lock

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.waiting = scheduler, deque[Thread]()

    def start(self, act: Callable[[], Any], name: str) -> None:
        Thread(self, act, name).start()

    def submit(self, act: Callable[..., Any], *given: Any) -> Outcome:
        return Outcome(self, partial(act, *given), "task")

    def Event(self) -> Event:
        return Event(self.scheduler)

    def step(self) -> None:
        while self.waiting:
            thread = self.waiting.popleft()
            if not thread.begun:
                thread.run()
                return

    def forget(self) -> None:
        """Its process has died."""
        self.waiting.clear()


class OfProcess:
    """Stands in for `threading`: each process has threads of its own, told by the actor that asks."""

    def __init__(self) -> None:
        self.of = dict[str, Threads]()
        self.acting: Callable[[], str] = lambda: ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of[self.acting()], name)
