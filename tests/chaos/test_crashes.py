"""A part of the points of each scene, chosen by a seed; `make chaos` tries all of them."""

import pytest

from tests.chaos.crashes import crash_at, crashes, on_stage
from tests.chaos.scenes.cast import SCENES
from tests.chaos.scenes.scene import Scene
from tests.chaos.scenes.ticking import Ticking
from tests.chaos.storage import disturbed
from tests.chaos.tally import Budget
from tests.support.enumerated import Point, crash_points, late_points, recorded
from tests.support.faults import BEFORE, ECHO, LATE, TWICE, Faults

PART = Budget(part=0.1)


@pytest.mark.parametrize("made", SCENES, ids=lambda made: made.name)
def test_a_crash_loses_and_doubles_nothing(made: type[Scene]) -> None:
    done = crashes(made, seed=1, budget=PART)
    assert not done.red, done.wrong


@pytest.mark.parametrize("made", SCENES, ids=lambda made: made.name)
def test_a_disturbed_storage_loses_and_doubles_nothing(made: type[Scene]) -> None:
    done = disturbed(made, seed=1, budget=Budget(part=0.05))
    assert not done.red, done.wrong


def test_points_are_enumerated_from_what_a_run_did() -> None:
    with on_stage(Ticking) as scene:
        points = list(crash_points(recorded(scene.act)))
    assert len(points) > 60
    assert {point.when for point in points} == {"before", "middle", "after"}
    assert not any(point.operation.startswith(("read ", "list ", "size ", "load_")) for point in points)


def test_a_point_that_is_never_reached_is_red() -> None:
    with on_stage(Ticking) as scene:
        assert crash_at(scene, Point(10_000, "nothing", BEFORE)).red


def test_late_operations_are_done_twice_after_others_or_at_the_end() -> None:
    done: list[str] = []

    def run(when: str, delay: int = 1_000_000) -> tuple[list[str], bool]:
        done.clear()
        faults, failed = Faults().at(0, when, ValueError, delay), False
        for name in "abc":
            try:
                faults.around(name, lambda name=name: done.append(name))  # type: ignore[misc]
            except ValueError:
                failed = True
        faults.arrive()
        return list(done), failed

    assert run(TWICE) == (["a", "a", "b", "c"], False)
    assert run(ECHO) == (["a", "b", "c", "a"], False)
    assert run(LATE, 2) == (["b", "a", "c"], True)
    assert run(LATE) == (["b", "c", "a"], True)
    assert len(list(late_points(["create x", "read y"]))) == 4
