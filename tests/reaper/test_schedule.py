"""
The loop: what it does with trouble, and how it ends.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import CatalogUnavailable, HistoryChanged
from reaper.schedule import Round, run, scheduled

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


def test_a_stop_before_the_start_ends_it_at_once() -> None:
    stop = StopSignal()
    stop.request()
    run([Round("events", DAY, failing(None))], lambda: NOW, stop)
