"""The loop sleeps until a hint comes; a hint that no tick would take does not keep it awake."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from bookkeeper.config.settings import Daemon
from bookkeeper.console.readable import readable
from bookkeeper.console.signals import StopSignal
from bookkeeper.discover.discovery import LOOK
from bookkeeper.errors import StorageUnavailable
from bookkeeper.leases.lease import NoLease
from bookkeeper.serve.loop import TableLoop, _paced, repeat
from bookkeeper.tick.tick import Commit, TickResult
from tests.discover.pending import Told

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = Daemon(every=timedelta(seconds=1), hint_pause=timedelta(seconds=0.2))
COMMITTED = TickResult(commit=Commit(1, 1, 1, 1, 1))


class Book:
    """A bookkeeper whose ticks end as it is told, over a discovery."""

    def __init__(self, answer: TickResult | Exception, discovery: Any) -> None:
        self.answer, self.ticks = answer, 0
        self.inbox = SimpleNamespace(discovery=discovery)
        self.lease: Any = NoLease()
        self.result = TickResult()

    def tick(self, now: datetime) -> TickResult:
        self.ticks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def pauses(
    answer: TickResult | Exception, lease: Any = None, tick_seconds: float = 0, commits: int = 3, ahead: float = 0
) -> list[tuple[float, bool]]:
    """
    The pauses of one round of the loop over a table that is hinted: seconds, and whether a hint would end each.

    `commits`: so many followed one another, the one of this round included; `ahead`: by so many seconds the clock was
    ahead at those before.
    """
    book, seen = Book(answer, Told(LOOK)), []
    book.lease = lease or book.lease
    paced_to = None
    for _ in range(commits - 1):
        paced_to = _paced(paced_to, NOW + timedelta(seconds=ahead), SETTINGS)

    def wait(seconds: float, wakes: Callable[[], Any] = tuple, woken: Callable[[], bool] = lambda: False) -> bool:
        if seconds:
            seen.append((round(seconds, 3), bool(wakes()) and woken()))
        return sum(pause for pause, _ in seen) > 0.99

    def clock() -> datetime:
        return NOW + book.ticks * timedelta(seconds=tick_seconds)

    slot = TableLoop("events", lambda: book, paced_to=paced_to)  # type: ignore[arg-type,return-value]
    repeat(slot, SETTINGS, clock, wait)
    return seen


def test_a_hint_ends_the_pause() -> None:
    assert pauses(TickResult()) == [(1.0, True)]


def test_after_a_few_commits_a_hint_waits_a_little_so_that_a_busy_table_gets_few_snapshots() -> None:
    assert pauses(COMMITTED) == [(0.2, False), (0.8, True)]
    assert pauses(COMMITTED, commits=100) == [(0.2, False), (0.8, True)]


def test_a_hint_after_a_quiet_time_does_not_wait_though_there_was_a_commit_just_before() -> None:
    assert pauses(COMMITTED, commits=1) == pauses(COMMITTED, commits=2) == [(1.0, True)]


def test_a_clock_that_was_set_back_delays_no_hint_for_longer_than_a_few_pauses() -> None:
    assert pauses(COMMITTED, ahead=86_400, tick_seconds=0.4) == [(1.0, True)]


def test_the_time_of_the_tick_that_committed_counts() -> None:
    assert pauses(COMMITTED, tick_seconds=0.15) == [(0.05, False), (0.95, True)]
    assert pauses(COMMITTED, tick_seconds=5) == [(1.0, True)]


def test_a_table_that_fails_is_not_woken_by_its_hints() -> None:
    assert pauses(StorageUnavailable("down")) == [(1.0, False)]


def test_a_table_that_stands_by_is_not_woken_by_its_hints() -> None:
    class Taken(NoLease):
        def hold(self, now: datetime) -> bool:
            return False

    assert pauses(TickResult(), Taken()) == [(1.0, False)]


def test_the_wait_of_the_daemon_ends_at_once_when_something_wakes_it() -> None:
    stop, (reader, writer) = StopSignal(), os.pipe()
    heard: list[bytes] = []

    def woken() -> bool:
        return bool(heard) or (readable([reader], 0) and bool(heard.append(os.read(reader, 1)) or True))

    waiting = threading.Thread(target=stop.wait, args=(3600, lambda: (reader,), woken), daemon=True)
    waiting.start()
    os.write(writer, b"x")
    waiting.join(60)
    assert not waiting.is_alive() and heard == [b"x"] and not stop.requested
    os.close(reader)
    os.close(writer)


def test_a_wake_that_tells_nothing_new_does_not_end_the_wait() -> None:
    stop, (reader, writer) = StopSignal(), os.pipe()
    os.write(writer, b"temporary")
    asked: list[bytes] = []

    def woken() -> bool:
        asked.extend([os.read(reader, 99)] if readable([reader], 0) else [])
        return False

    began = time.monotonic()
    assert not stop.wait(0.2, lambda: (reader,), woken)
    assert time.monotonic() - began >= 0.2
    assert asked == [b"temporary"]
    os.close(reader)
    os.close(writer)


def test_a_stop_ends_the_wait_for_hints_too() -> None:
    stop = StopSignal()
    threading.Timer(0.05, stop.request).start()
    assert stop.wait(30, tuple, lambda: False)
