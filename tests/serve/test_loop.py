"""The loop: every table on its own, failures with backoff, said once, until told to stop."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.discover.discovery import Listing
from bookkeeper.errors import CatalogUnavailable, HistoryChanged, StorageUnavailable
from bookkeeper.leases.lease import NoLease
from bookkeeper.serve.loop import TableLoop, backoff, repeat, tick_once
from bookkeeper.tick.tick import Commit, TickResult

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SETTINGS = Daemon(every=SECOND, backoff_most=timedelta(seconds=8), not_ready_after=3)


class Book:
    """A bookkeeper that does, tick by tick, what it was given: a result, or an error."""

    def __init__(self, *answers: TickResult | Exception) -> None:
        self.answers = list(answers)
        self.ticks: list[datetime] = []
        self.lease: Any = NoLease()
        self.result = TickResult()
        self.inbox = SimpleNamespace(discovery=Listing(), consumed=SimpleNamespace(wait=lambda: None))

    def tick(self, now: datetime) -> TickResult:
        self.ticks.append(now)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def slot(*answers: TickResult | Exception, table: str = "events") -> TableLoop:
    book = Book(*answers)
    return TableLoop(table, lambda: book)  # type: ignore[arg-type,return-value]


def ticked(one: TableLoop, seconds: int) -> list[int]:
    """In which of the next seconds it really ticked."""
    done = []
    for second in range(seconds):
        before = one.failures, one.ticks
        tick_once(one, SETTINGS, NOW + second * SECOND)
        done += [second] if (one.failures, one.ticks) != before else []
    return done


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(getattr(record, "action", ""), record.levelname) for record in caplog.records]


def test_backoff_doubles_up_to_its_most() -> None:
    assert [backoff(failures, SETTINGS).total_seconds() for failures in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 8, 8]


def test_a_failing_table_is_tried_again_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    one = slot(CatalogUnavailable("down"))
    assert ticked(one, 24) == [0, 1, 3, 7, 15, 23]
    assert said(caplog) == [("postpone", "ERROR"), ("not-ready", "ERROR")]


def test_a_table_is_not_ready_after_some_failures_and_ready_again_after_one_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    one = slot(*[StorageUnavailable("down")] * 3, TickResult())
    ready = []
    for second in (0, 1, 3, 7):
        tick_once(one, SETTINGS, NOW + second * SECOND)
        ready.append(one.ready(SETTINGS))
    assert ready == [True, True, False, True]
    assert said(caplog)[-1] == ("recover", "INFO")
    assert (one.failures, one.next_at, one.last_success) == (0, None, NOW + 7 * SECOND)


def test_a_halt_is_said_once_and_looked_at_rarely(caplog: pytest.LogCaptureFixture) -> None:
    one = slot(HistoryChanged("rolled back"))
    assert ticked(one, 25) == [0, 8, 16, 24]
    assert said(caplog)[0] == ("halt", "ERROR")
    assert [action for action, _ in said(caplog)].count("halt") == 1
    assert caplog.records[0].hint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "reopened"), [(HistoryChanged("x"), 3), (KeyError("x"), 3), (StorageUnavailable("x"), 1)]
)
def test_what_a_person_may_mend_is_opened_anew(error: Exception, reopened: int) -> None:
    books: list[Book] = []

    def opened() -> Any:
        books.append(Book(error))
        return books[-1]

    one = TableLoop("events", opened)
    for second in (0, 10, 20):
        tick_once(one, SETTINGS, NOW + second * SECOND)
    assert len(books) == reopened


def test_the_lease_is_given_back_before_the_table_is_opened_anew() -> None:
    class Counted(NoLease):
        released = 0

        def release(self) -> None:
            Counted.released += 1

    one = slot(HistoryChanged("x"))
    one.open().lease = Counted()
    tick_once(one, SETTINGS, NOW)
    assert (Counted.released, one.book) == (1, None)


def test_a_table_that_cannot_be_opened_is_tried_again() -> None:
    attempts: list[int] = []

    def opened() -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise CatalogUnavailable("down at start")
        return Book(TickResult())

    one = TableLoop("events", opened)
    assert ticked(one, 5) == [0, 1, 3, 4]
    assert (len(attempts), one.ticks) == (3, 2)


def test_a_defect_does_not_end_the_loop_of_its_table(caplog: pytest.LogCaptureFixture) -> None:
    broken = slot(KeyError("a bug"), TickResult())
    times: Iterator[datetime] = iter(NOW + number * SECOND for number in range(99))
    wait, _ = stop_at(3)
    repeat(broken, SETTINGS, lambda: next(times), wait)
    assert (broken.failures, broken.ticks) == (0, 2)
    assert ("defect", "ERROR") in said(caplog)
    assert caplog.records[0].exc_info


def test_a_clock_that_jumps_back_does_not_silence_a_table() -> None:
    one = slot(StorageUnavailable("down"))
    tick_once(one, SETTINGS, NOW)
    tick_once(one, SETTINGS, NOW - timedelta(hours=1))
    assert one.failures == 2


def test_a_standing_trouble_of_some_txlogs_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    one = slot(TickResult(trouble=StorageUnavailable("x")), TickResult(trouble=StorageUnavailable("x")), TickResult())
    for second in range(3):
        tick_once(one, SETTINGS, NOW + second * SECOND)
    assert said(caplog) == [("postpone", "WARNING")]
    assert one.ready(SETTINGS)


def test_a_commit_is_one_line_and_an_idle_tick_is_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    one = slot(TickResult(), TickResult(commit=Commit(7, 1, 2, 3, 4), waiting=5), TickResult())
    for second in range(3):
        tick_once(one, SETTINGS, NOW + second * SECOND)
    assert said(caplog) == [("commit", "INFO")]
    record: Any = caplog.records[0]
    assert (record.snapshot, record.txlogs, record.files, record.rows, record.waiting) == (7, 1, 2, 3, 5)


def stop_at(calls: int) -> tuple[Callable[[float], bool], list[float]]:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) >= calls

    return wait, waits


def test_a_table_ticks_until_wait_says_stop_and_never_stops_within_a_tick() -> None:
    one = slot(TickResult())
    wait, waits = stop_at(3)
    repeat(one, SETTINGS, lambda: NOW, wait)
    assert one.ticks == 3
    assert waits == [1, 1, 1]


def test_each_tick_gets_its_own_time() -> None:
    one = slot(TickResult())
    times: Iterator[datetime] = iter(NOW + number * SECOND for number in range(9))
    wait, _ = stop_at(2)
    repeat(one, SETTINGS, lambda: next(times), wait)
    assert one.open().ticks == [NOW, NOW + SECOND]  # type: ignore[attr-defined]


def test_a_table_whose_lease_another_has_stands_by_and_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    class Taken(NoLease):
        answers = iter([False, False, True])

        def hold(self, now: datetime) -> bool:
            return next(self.answers)

    one = slot(TickResult())
    one.open().lease = Taken()
    done = [tick_once(one, SETTINGS, NOW + second * SECOND) is not None for second in range(3)]
    assert done == [False, False, True]
    assert said(caplog) == [("standing-by", "INFO"), ("taking-over", "INFO")]


def test_the_observer_is_called_after_each_tick_that_was_due() -> None:
    heard: list[tuple[str, TickResult | None, str, datetime, float | None]] = []
    one = slot(TickResult(pending=3), StorageUnavailable("down"), TickResult(), table="t")
    one.on_result = lambda slot, done, at, took: heard.append((slot.table, done, slot.trouble, at, took))
    ends = iter(NOW + seconds * SECOND for seconds in (0.25, 1.5))
    tick_once(one, SETTINGS, NOW, lambda: next(ends))
    tick_once(one, SETTINGS, NOW + SECOND, lambda: next(ends))
    tick_once(one, SETTINGS, NOW + 1.5 * SECOND, lambda: next(ends))  # not due
    assert heard == [
        ("t", TickResult(pending=3), "", NOW, 0.25),
        ("t", None, "StorageUnavailable", NOW + SECOND, 0.5),
    ]


def test_an_observer_that_fails_does_not_touch_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    one = slot(TickResult())
    one.on_result = lambda *_: 1 / 0
    assert ticked(one, 3) == [0, 1, 2]
    assert said(caplog) == [("defect", "ERROR")]
