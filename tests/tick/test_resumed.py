"""An incarnation that goes on after its mark was pruned: what came before counts as in, what lies rejected does not."""

from datetime import UTC, datetime

import pytest

from bookkeeper.contract.marks import MOST_HOLES, Mark, Marks
from bookkeeper.contract.names import TxlogName, started_ms
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.tick.plan_batch import gaps, resumed
from tests.support.plans import CREATED, ONE, good, name, names

BEFORE = Marks("folder", pruned_before_ms=CREATED)


def found(*items: TxlogName) -> list[Found]:
    return [Found(item, 1, datetime(2026, 11, 21, tzinfo=UTC)) for item in items]


def going_on(first: int, *rejected: int, marks: Marks = BEFORE) -> Mark | None:
    order = names(first, first + 1)
    not_pending = frozenset(gaps(order, marks))
    return resumed(marks, order, good(*order), not_pending, lambda: found(*names(*rejected))).mark(name(first))


def test_the_incarnation_started_before_the_pruning() -> None:
    assert started_ms(ONE) < CREATED


@pytest.mark.parametrize("first", [2, 60, 500])
def test_what_came_before_counts_as_in(first: int) -> None:
    assert going_on(first) == Mark(first - 1)


def test_what_lies_in_rejected_is_a_hole_however_far_back() -> None:
    assert going_on(500, 3, 498, 501) == Mark(499, (3, 498), remade_ms=CREATED)


def test_too_many_rejected_ones_leave_it_held() -> None:
    assert going_on(500, *range(1, MOST_HOLES + 2)) is None


def test_a_first_txlog_needs_nothing() -> None:
    assert going_on(1) is None


def test_nothing_goes_on_where_nothing_was_pruned() -> None:
    assert going_on(7, marks=Marks("folder")) is None


def test_a_txlog_from_before_the_pruning_does_not_go_on() -> None:
    assert going_on(7, marks=Marks("folder", pruned_before_ms=CREATED + 1)) is None


def test_nothing_goes_on_while_a_predecessor_may_still_be_pending() -> None:
    order = names(7)
    not_pending = frozenset(gaps(order, BEFORE)) - {name(5)}
    assert resumed(BEFORE, order, good(*order), not_pending, list).mark(name(7)) is None


def test_nothing_goes_on_while_its_first_txlog_cannot_be_read() -> None:
    order = names(7, 8)
    not_pending = frozenset(gaps(order, BEFORE))
    assert resumed(BEFORE, order, good(name(8)), not_pending, list).mark(name(7)) is None
