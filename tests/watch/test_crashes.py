"""A crash, an error or a late write at each step of a watcher: each version of an object is in the table once."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from bookkeeper.errors import BookkeeperError, StorageUnavailable
from bookkeeper.stores.open import open_store
from tests.support.enumerated import Point, crash_points, crashed, error_points, late_points, recorded
from tests.support.faults import Faults, crash
from tests.watch.drops import Drops, ndjson

GOOD = ("a", "day=1/b")


@pytest.fixture(params=[False, True], ids=["delete", "move"])
def made(request: pytest.FixtureRequest) -> Callable[[], "Scene"]:
    """With --done delete, and move."""
    return partial(Scene, request.param)


class Scene:
    """Good objects, one that is no rows and one without any; then a second batch."""

    def __init__(self, moves: bool) -> None:
        self.drops, self.moves, self.turn = Drops(), moves, 0
        self.drops.put(*GOOD)
        self.drops.store.create("bad", b"{}\n")
        self.drops.store.create("empty", b"")

    def run(self, faults: Faults | None = None) -> None:
        self.drops.run(faults, moves=self.moves)
        if self.turn == 0:
            self.turn = 1
            self.drops.put("d", "a", rows=["second"])
        self.drops.run(faults, moves=self.moves)

    def check(self, point: object, plans: tuple[int, ...] = (3,)) -> None:
        drops = self.drops
        assert drops.keys() == sorted([*GOOD, "second", "second"]), point
        assert drops.dropped() == [], point
        rejected = [key for key in drops.left() if key.startswith("_rejected/")]
        assert [key.partition("-")[2] for key in rejected] == ["bad", "bad.reason.json"], point
        assert drops.store.read(rejected[0]) == b"{}\n"
        done = {key: drops.store.read(key) for key in drops.left() if key.startswith("_done/")}
        wanted = [*map(ndjson, GOOD), ndjson("second"), ndjson("second"), b""] if self.moves else []
        assert Counter(done.values()) == Counter(wanted), point
        drops.put("last")
        drops.run()  # what is known of earlier plans goes with the next one
        assert drops.keys().count("last") == 1, point
        done_last, *rest = [name for name in drops.own() if not name.startswith("probe")]
        assert (done_last in [f"done-{number}" for number in plans], rest) == (True, ["watch.json"]), point


def test_a_crash_at_each_operation_loses_and_doubles_nothing(made: Callable[[], Scene]) -> None:
    tried = Counter[str]()
    for point in [Point(0, "", "none"), *crash_points(recorded(made().run))]:
        scene = made()
        if point.when != "none":
            assert crashed(scene.run, point), point
            tried[point.operation.split("/")[0]] += 1
        scene.run()
        scene.check(point)
    assert tried["create drops"] >= 3 * 5 and tried["delete drops"] >= 3 * 6, tried


@pytest.mark.parametrize(("points", "moves"), [(error_points, True), (late_points, False)])
def test_an_error_or_a_late_write_at_each_operation_loses_and_doubles_nothing(points: Any, moves: bool) -> None:
    for point in points(recorded(Scene(moves).run)):
        scene, faults = Scene(moves), Faults().at(point.number, point.when, StorageUnavailable, point.delay)
        with suppress(BookkeeperError):
            scene.run(faults)
        faults.arrive()
        for _ in range(2):
            scene.run()
        # One that could not be read is loaded behind the others.
        scene.check(point, (3, 4) if point.operation.startswith("read drops/") else (3,))


@pytest.mark.parametrize("moves", [False, True], ids=["delete", "move"])
def test_an_object_that_is_replaced_at_any_operation_is_doubled_in_no_version(moves: bool) -> None:
    """What was there only between two looks may be passed over, what is there in the end is not; none counts twice."""
    for number in range(200):
        drops, faults = Drops(), Faults()
        drops.put("a", rows=["old"])
        drops.put("b")
        faults.hooks.append((partial(_is_at, faults, number), partial(drops.put, "a", rows=["new"])))
        drops.run(faults, moves=moves)
        drops.run(moves=moves)
        if len(faults.seen) <= number:
            assert number > 25
            return
        assert Counter(drops.keys()) - Counter(["old"]) == Counter(["b", "new"]), number
        assert Counter(drops.keys())["old"] <= 1, number
        assert drops.dropped() == [], number
    raise AssertionError("it was not replaced at each of them")


def _is_at(faults: Faults, number: int, operation: str) -> bool:
    return len(faults.seen) == number + 1


def test_a_second_crash_while_it_mends_the_first_one_loses_and_doubles_nothing() -> None:
    points = [*crash_points(recorded(Scene(False).run))]
    for index, point in enumerate(points[::6]):
        scene = Scene(False)
        assert crashed(scene.run, point), point
        second = Faults().at(index * 7 % 40, "after", crash)
        with suppress(BaseException):
            scene.run(second)
        scene.run()
        scene.check((point, index))


@pytest.mark.parametrize("moves", [False, True])
def test_two_watchers_that_come_between_each_other_at_any_operation_double_nothing(moves: bool) -> None:
    """A lease that was lost without knowing: the other one does all of its work before an operation of the first."""
    fenced = Counter[bool]()
    for number in range(200):
        scene, faults = Scene(moves), Faults()
        other = partial(scene.drops.run, moves=moves)
        faults.hooks.append((partial(_is_at, faults, number), other))
        scene.run(faults)
        if len(faults.seen) <= number:
            break
        scene.run()
        scene.check(number)
        fenced["PositionTaken" in str(rejected(scene.drops))] += 1
    assert fenced[True] and fenced[False], fenced


def rejected(drops: Drops) -> list[Any]:
    folder = drops.desk.folder
    return [folder.reason(item.name)["error"] for item in folder.rejected()]


def test_a_plan_is_there_before_its_txlog_and_its_objects_until_it_is_in() -> None:
    drops, seen = Drops(), list[str]()
    drops.put("a")

    def wait(seconds: float) -> object:
        if drops.desk.folder.store.list("pending/"):
            seen.append(f"{len([*drops.desk.folder.pending()])} {drops.dropped()} {drops.own()}")
        return drops.wait(seconds)

    drops.run(wait=wait)
    assert "1 ['a'] ['plan-1', 'watch.json']" in seen
    assert open_store(drops.url).read("_bookkeeper/watch.json")
