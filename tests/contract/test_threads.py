"""An executor of daemon threads: so many at once, each kept for the next task, and none that keeps a process alive."""

import subprocess
import sys
import threading
from concurrent.futures import CancelledError, wait
from typing import Any

import pytest

from bookkeeper import threads as module
from bookkeeper.threads import Threads, begin, repeating

SECONDS = 60


def test_what_a_task_returns_or_raises_is_its_outcome() -> None:
    threads = Threads("x")
    assert threads.submit(divmod, 7, 2).result(SECONDS) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(SECONDS)
    with pytest.raises(ZeroDivisionError):
        begin(lambda: 1 // 0, "x").result(SECONDS)


def test_so_many_are_under_way_at_once_and_the_others_wait() -> None:
    threads, go, begun = Threads("x", 2), threading.Event(), threading.Semaphore(0)

    def task() -> str:
        begun.release()
        assert go.wait(SECONDS)
        return threading.current_thread().name

    outcomes = [threads.submit(task) for _ in range(5)]
    assert begun.acquire(timeout=SECONDS) and begun.acquire(timeout=SECONDS)
    assert not begun.acquire(timeout=0.05)
    go.set()
    assert [outcome.result(SECONDS) for outcome in outcomes] == ["x"] * 5


def test_without_a_bound_no_task_waits_for_another() -> None:
    threads, all_there = Threads("x"), threading.Barrier(20)
    wait([threads.submit(all_there.wait, SECONDS) for _ in range(20)], SECONDS)
    assert not all_there.broken


def test_a_thread_is_used_again_and_ends_when_it_has_been_idle() -> None:
    threads = Threads("x")
    first = threads.submit(threading.current_thread).result(SECONDS)
    while threads._idle == 0:  # its thread is about to wait
        pass
    assert threads.submit(threading.current_thread).result(SECONDS) is first


def test_an_idle_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    threads = Threads("x")
    for _ in range(20):
        thread = threads.submit(threading.current_thread).result(SECONDS)
        thread.join(SECONDS)
        assert not thread.is_alive() and (threads._idle, threads._threads) == (0, set())


def test_after_shutdown_none_is_left_and_what_had_not_begun_is_cancelled() -> None:
    threads, go, begun = Threads("x", 1), threading.Event(), threading.Event()

    def task() -> threading.Thread:
        begun.set()
        assert go.wait(SECONDS)
        return threading.current_thread()

    under_way, waiting = threads.submit(task), threads.submit(task)
    assert begun.wait(SECONDS)
    threads.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waiting.result(SECONDS)
    with pytest.raises(RuntimeError, match="shutdown"):
        threads.submit(task)
    go.set()
    threads.shutdown()
    assert not under_way.result(SECONDS).is_alive()


def test_a_thread_that_cannot_be_started_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads("x")
    with monkeypatch.context() as broken, pytest.raises(RuntimeError):
        broken.setattr(threading.Thread, "start", fails)
        threads.submit(print)
    assert threads.submit(int).result(SECONDS) == 0


def test_what_is_repeated_ends_with_its_block() -> None:
    done = threading.Semaphore(0)
    with repeating(done.release, 0.001, "again"):
        assert done.acquire(timeout=SECONDS) and done.acquire(timeout=SECONDS)
    assert all(thread.name != "again" for thread in threading.enumerate())


def test_no_thread_of_it_keeps_a_process_alive() -> None:
    code = (
        "import threading\nfrom bookkeeper.threads import Threads, begin, start\n"
        "for run in (Threads('x').submit, lambda act: begin(act, 'x'), lambda act: start(act, 'x')):\n"
        "    run(threading.Event().wait)\nprint('end')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "end\n")
