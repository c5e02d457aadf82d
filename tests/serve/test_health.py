"""What the outside is told of a table: its state, since when, why, and what to do."""

from datetime import datetime, timedelta

import pytest

from bookkeeper.errors import CatalogUnavailable, HistoryChanged, StorageUnavailable
from bookkeeper.leases.lease import NoLease
from bookkeeper.serve.health import HANGS, Health, health
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.tick.tick import TickResult
from tests.serve.test_loop import NOW, SECOND, SETTINGS, Book, slot


def asked(one: TableLoop, second: int) -> Health:
    """After the tick that was due in this second, if one was."""
    tick_once(one, SETTINGS, NOW + second * SECOND)
    return health(one, SETTINGS, NOW + second * SECOND)


def test_a_table_that_was_not_looked_at_yet_is_starting() -> None:
    found = health(slot(TickResult()), SETTINGS, NOW)
    assert (found.state, found.ready, found.since) == ("starting", True, None)


def test_a_ready_table_says_since_when_and_when_it_last_worked() -> None:
    one = slot(TickResult())
    found = [asked(one, second) for second in range(3)][-1]
    assert (found.state, found.ready, found.since, found.why) == ("ready", True, NOW, "")
    assert found.last_success == NOW + 2 * SECOND


def test_a_failing_table_becomes_not_ready_and_says_since_when_why_and_when_it_is_tried_again() -> None:
    one = slot(
        TickResult(), StorageUnavailable("disk full"), StorageUnavailable("disk full"), StorageUnavailable("still")
    )
    states = [asked(one, second).state for second in (0, 1, 2, 4)]
    assert states == ["ready", "failing", "failing", "not ready"]
    found = health(one, SETTINGS, NOW + 5 * SECOND)
    assert (found.ready, found.since, found.failures) == (False, NOW + SECOND, 3)
    assert (found.why, found.next_try) == ("StorageUnavailable: still", NOW + 8 * SECOND)
    assert found.last_success == NOW and "credentials" in found.hint


def test_a_table_that_works_again_is_ready_since_then_and_says_no_reason_any_more() -> None:
    one = slot(CatalogUnavailable("down"), CatalogUnavailable("down"), CatalogUnavailable("down"), TickResult())
    assert [asked(one, second).ready for second in (0, 1, 3, 7)] == [True, True, False, True]
    found = asked(one, 8)
    assert (found.state, found.since, found.why, found.hint) == ("ready", NOW + 7 * SECOND, "", "")


def test_a_halted_table_is_not_ready_at_once_and_says_the_command() -> None:
    one, fine = slot(HistoryChanged("rolled back")), slot(TickResult(), table="fine")
    found = asked(one, 0)
    assert (found.state, found.ready) == ("halted", False)
    assert "accept-rollback" in found.hint
    assert asked(fine, 0).ready


def test_a_table_that_another_bookkeeper_works_on_is_standing_by() -> None:
    class Taken(NoLease):
        def hold(self, now: datetime) -> bool:
            return False

    one = slot(TickResult())
    one.book = Book(TickResult())  # type: ignore[assignment]
    one.book.lease = Taken()  # type: ignore[assignment,union-attr]
    found = asked(one, 0)
    assert (found.state, found.ready, found.since) == ("standby", True, NOW)


def test_txlogs_that_wait_though_ticks_succeed_are_said() -> None:
    found = asked(slot(TickResult(trouble=StorageUnavailable("one file cannot be looked up"))), 0)
    assert (found.state, found.postponed) == ("ready", "one file cannot be looked up")


@pytest.mark.parametrize(("late", "state"), [(HANGS, "ready"), (HANGS + SECOND, "hanging")])
def test_a_tick_that_does_not_end_is_seen_from_another_thread(late: timedelta, state: str) -> None:
    one, seen = slot(TickResult()), list[Health]()
    asked(one, 0)

    class Slow(Book):
        def tick(self, now: datetime) -> TickResult:
            seen.append(health(one, SETTINGS, now + late))
            return super().tick(now)

    one.book = Slow(TickResult())  # type: ignore[assignment]
    tick_once(one, SETTINGS, NOW)
    assert (seen[0].state, seen[0].ready) == (state, state == "ready")
    assert asked(one, 1).state == "ready"
