"""
The loop: what it does with trouble, and how it ends.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import CatalogUnavailable, HistoryChanged
from reaper.cli.compaction import NICE, be_nice
from reaper.schedule import COMPACT, ON_SPARK, PACED, REAP, Round, run, scheduled

#: past, so that the scheduler, which has a clock of its own, never waits for it
NOW = datetime(2020, 1, 1, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def failing(*errors: Exception | None) -> Callable[[datetime], None]:
    """Raises these, one per run."""
    left: Iterator[Exception | None] = iter(errors)

    def act(now: datetime) -> None:
        error = next(left)
        if error:
            raise error

    return act


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.action, record.levelname) for record in caplog.records if record.name == "reaper.schedule"]


def test_the_same_trouble_is_said_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reaper")
    down, halted = CatalogUnavailable("down"), HistoryChanged("rolled back")
    item = Round("events", MINUTE, failing(down, down, halted, halted, halted, None, halted))
    for _ in range(7):
        item.run(NOW)
    assert logged(caplog) == [
        ("postpone", "WARNING"),
        ("halt", "ERROR"),
        ("recover", "INFO"),
        ("halt", "ERROR"),
    ]


def test_a_defect_ends_neither_the_loop_nor_the_other_tables(caplog: pytest.LogCaptureFixture) -> None:
    stop, seen = StopSignal(), []

    def other(now: datetime) -> None:
        seen.append(now)
        stop.request()

    broken = Round("broken", DAY, failing(ZeroDivisionError("ours")))
    run([broken, Round("events", DAY, other)], lambda: NOW, stop)
    assert seen == [NOW]
    assert ("defect", "ERROR") in logged(caplog)


def test_each_table_has_one_run_at_a_time_at_its_own_interval() -> None:
    scheduler = scheduled([Round("a", MINUTE, failing()), Round("b", 2 * MINUTE, failing())], lambda: NOW)
    jobs = {job.id: job for job in scheduler.get_jobs()}
    assert {name: job.trigger.interval for name, job in jobs.items()} == {"a": MINUTE, "b": 2 * MINUTE}
    assert all((job.max_instances, job.coalesce, job.misfire_grace_time) == (1, True, None) for job in jobs.values())


def test_compaction_has_a_thread_of_its_own_which_is_less_important_than_all_others() -> None:
    stop, seen = StopSignal(), list[tuple[str, int, int]]()

    def act(kind: str, now: datetime) -> None:
        thread = threading.get_native_id()
        seen.append((kind, thread, os.getpriority(os.PRIO_PROCESS, thread)))
        if len(seen) == 3:
            stop.request()

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    tables = [("a", COMPACT), ("b", COMPACT), ("a", REAP)]
    run([Round(name, DAY, partial(act, kind), kind) for name, kind in tables], lambda: NOW, stop, be_nice)
    compacted = {found[1:] for found in seen if found[0] == COMPACT}
    assert [nice for _, nice in compacted] == [max(NICE, before)]  # one thread
    ((thread, nice),) = [found[1:] for found in seen if found[0] == REAP]
    assert nice == before and thread not in dict(compacted)


def test_a_clock_that_is_put_back_makes_no_rest() -> None:
    first, second, back = threading.Event(), threading.Event(), timedelta(0)

    class Stop(StopSignal):
        def wait(self, seconds: float, *others: object) -> bool:  # type: ignore[override]
            nonlocal back
            if back:
                return second.wait(30) or True
            first.wait(30)
            back = DAY
            return False

    def clock() -> datetime:
        return datetime.now(UTC) - back

    def act(now: datetime) -> None:
        (second if first.is_set() else first).set()

    run([Round("events", MINUTE, act)], clock, Stop())
    assert second.is_set()


def test_a_stop_before_the_start_ends_it_at_once() -> None:
    stop = StopSignal()
    stop.request()
    run([Round("events", DAY, failing(None))], lambda: NOW, stop)


def test_what_waits_for_the_thread_does_not_begin_after_a_stop() -> None:
    stop, began = StopSignal(), list[str]()
    main = threading.current_thread()

    def act(name: str, now: datetime) -> None:
        began.append(name)
        stop.request()
        main.join(0.2)  # the others are queued behind this one meanwhile

    run([Round(name, DAY, partial(act, name), COMPACT) for name in "abcd"], lambda: NOW, stop)
    assert began == ["a"]


@pytest.mark.parametrize("thread", [PACED, ON_SPARK])
def test_a_table_that_takes_long_by_its_settings_does_not_keep_others_waiting(thread: str) -> None:
    stop, begun, done = StopSignal(), threading.Event(), threading.Event()
    waited = list[bool]()

    def act(now: datetime) -> None:
        begun.set()
        waited.append(done.wait(60))
        stop.request()

    def other(now: datetime) -> None:
        waited.append(begun.wait(60))
        done.set()

    rounds = [Round("slow", DAY, act, thread), Round("events", DAY, other, COMPACT)]
    run(rounds, lambda: NOW, stop)
    assert waited == [True, True]


def test_the_thread_of_requests_to_object_stores_stays_as_important_as_it_is() -> None:
    code = """
import os, threading
import fsspec.asyn
from reaper.cli.compaction import be_nice

def compacts():
    be_nice()
    fsspec.asyn.get_loop()

begun = threading.Thread(target=compacts)
begun.start()
begun.join()
print(os.getpriority(os.PRIO_PROCESS, fsspec.asyn.iothread[0].native_id) - os.getpriority(os.PRIO_PROCESS, 0))
"""
    # In a process of its own: in this one the thread may have begun long ago.
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "0\n"
