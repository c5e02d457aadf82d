"""The last hour in rings: steps without a turn stay unknown, and the memory they take is bounded."""

from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.observe.metrics.history import LENGTH, STEP_SECONDS, History
from bookkeeper.tick.result import Commit

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STEP = timedelta(seconds=STEP_SECONDS)


def commit(rows: int = 1, seconds: float = 0.01) -> Commit:
    return Commit(1, 1, 1, rows, rows * 10, timedelta(seconds=seconds), (timedelta(seconds=1), timedelta(seconds=2)))


def noted(*turns: tuple[float, int, Commit | None]) -> History:
    """A history of turns: at which step, how many txlogs were pending, and what was committed."""
    made = History()
    for step, pending, done in turns:
        made.note({"pending": pending}, age=step, commit=done, now=NOW + step * STEP)
    return made


def test_a_step_keeps_the_last_value_the_largest_and_the_sum_of_its_turns() -> None:
    made = noted((0, 5, commit(3, 0.5)), (0.2, 2, commit(4, 0.1)), (0.4, 1, None))
    found = {name: values[-1] for name, values in made.read(NOW).items()}
    assert (found["pending"], found["rows"], found["bytes"], found["commits"]) == (1, 7, 70, 2)
    assert (found["commit"], found["visible"], found["age"]) == (0.5, 2, pytest.approx(0.4))


def test_steps_without_a_turn_are_unknown_and_idle_ones_are_nought() -> None:
    made = noted((0, 1, commit()), (1, 2, None), (4, 3, None))
    found = made.read(NOW + 4 * STEP, 6, pause=0)
    assert found["pending"] == [None, 1, 2, None, None, 3]
    assert found["rows"] == [None, 1, 0, None, None, 0]


def test_a_pause_that_is_usual_is_bridged_and_a_longer_one_is_seen() -> None:
    made = noted((0, 1, commit()), (3, 2, commit()), (8, 4, None))
    found = made.read(NOW + 9 * STEP, 10, pause=2)
    assert found["pending"] == [1, 1, 1, 2, 2, 2, None, None, 4, 4]
    assert found["rows"] == [1, 0, 0, 1, 0, 0, None, None, 0, 0]
    assert found["visible"] == [2, None, None, 2, *[None] * 6]


def test_it_ends_now_also_when_no_turn_has_ended_for_long() -> None:
    made = noted((0, 1, None))
    assert made.read(NOW + 2 * STEP, 3)["pending"] == [1, 1, None]
    assert set(made.read(NOW + timedelta(hours=3))["pending"]) == {None}


def test_after_an_hour_the_oldest_is_gone_and_nothing_has_grown() -> None:
    made = History()
    size = made.size
    for step in range(3 * LENGTH):
        made.note({"pending": step}, 0, None, NOW + step * STEP)
    values = made.read(NOW + (3 * LENGTH - 1) * STEP)["pending"]
    assert (values[0], values[-1], len(values)) == (2 * LENGTH, 3 * LENGTH - 1, LENGTH)
    assert made.size == size < 20_000


def test_a_pause_of_hours_leaves_nothing_of_before() -> None:
    made = noted((0, 1, None), (5 * LENGTH, 2, None))
    assert [value for value in made.read(NOW + 5 * LENGTH * STEP)["pending"] if value is not None] == [2]


def test_a_clock_that_is_put_back_rubs_nothing_out_and_far_back_begins_anew() -> None:
    made = noted((10, 1, None), (8, 2, None))
    assert made.read(NOW + 10 * STEP, 3)["pending"] == [None, None, 2]
    made.note({"pending": 3}, 0, None, NOW - timedelta(days=1))
    assert made.read(NOW - timedelta(days=1), 1)["pending"] == [3]
