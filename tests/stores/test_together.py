"""What is done together: all of it under way at once where that helps, and none of it when the call returns."""

import signal
import threading
from _thread import interrupt_main
from collections.abc import Iterator
from threading import Barrier, Event, Lock
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.memory import MemoryStore
from bookkeeper.stores.object_store import ObjectStore
from bookkeeper.stores.together import together
from tests.support.faults import Crash

SECONDS = 60


def fails(error: BaseException) -> Any:
    def task() -> None:
        raise error

    return task


def test_all_tasks_are_under_way_at_once() -> None:
    all_there = Barrier(4)
    together([lambda: all_there.wait(SECONDS)] * 4, 4)


def test_no_more_are_under_way_than_was_asked_for() -> None:
    lock, seen = Lock(), SimpleNamespace(now=0, most=0)
    all_there = Barrier(3)

    def task() -> None:
        with lock:
            seen.now += 1
            seen.most = max(seen.most, seen.now)
        all_there.wait(SECONDS)
        with lock:
            seen.now -= 1

    together([task] * 9, 3)
    assert (seen.most, seen.now) == (3, 0)


def test_on_a_disk_they_are_done_here_one_after_another_until_one_fails() -> None:
    done: list[Any] = []
    tasks = [lambda: done.append(threading.current_thread()), fails(StorageUnavailable()), lambda: done.append(None)]
    with pytest.raises(StorageUnavailable):
        together(tasks, 1)
    assert done == [threading.current_thread()]


def test_an_error_is_raised_when_no_task_is_under_way_any_more() -> None:
    failed, ended = Event(), Event()

    def slow() -> None:
        assert failed.wait(SECONDS)
        ended.set()

    def failing() -> None:
        failed.set()
        raise StorageUnavailable("first")

    with pytest.raises(StorageUnavailable, match="first"):
        together([slow, failing], 2)
    assert ended.is_set()


def test_of_several_errors_the_first_in_order_is_raised_whichever_came_first() -> None:
    second = Event()

    def first() -> None:
        assert second.wait(SECONDS)
        raise StorageUnavailable("first")

    def then() -> None:
        second.set()
        raise KeyError("second")

    with pytest.raises(StorageUnavailable, match="first"):
        together([first, then], 2)


def test_what_nothing_may_catch_comes_before_every_other_error() -> None:
    all_there = Barrier(2)

    def crashes() -> None:
        all_there.wait(SECONDS)
        raise Crash

    def fails_too() -> None:
        all_there.wait(SECONDS)
        raise StorageUnavailable

    with pytest.raises(Crash):
        together([fails_too, crashes], 2)


def test_after_an_error_no_further_task_is_begun() -> None:
    begun: list[int] = []
    failing: list[threading.Thread] = []
    both = Barrier(2)

    def first() -> None:
        failing.append(threading.current_thread())
        both.wait(SECONDS)
        raise StorageUnavailable

    def holds() -> None:
        both.wait(SECONDS)
        failing[0].join(SECONDS)  # it ends with the error

    with pytest.raises(StorageUnavailable):
        together([first, holds, *[lambda: begun.append(1)] * 50], 2)
    assert begun == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """An interrupt raises KeyboardInterrupt, whatever an earlier test has left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_ends_the_wait_and_the_process_need_not_wait_for_a_hanging_request() -> None:
    released, went_on = Event(), Event()

    def hangs() -> None:
        interrupt_main()
        released.wait(SECONDS)
        went_on.set()

    with pytest.raises(KeyboardInterrupt):
        together([hangs, lambda: None], 2)
    assert not went_on.is_set()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "request")
    released.set()
    assert went_on.wait(SECONDS)


def test_only_object_stores_are_worth_a_thread() -> None:
    assert (LocalStore.at_once, MemoryStore.at_once) == (1, 1)
    assert 4 <= ObjectStore.at_once <= 16
