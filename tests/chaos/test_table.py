"""The table itself: red when a row is missing or double, when nothing was tried, when a class broke off or hangs."""

import os
import random
import time

from tests.chaos.account import account
from tests.chaos.pool import run_all
from tests.chaos.registry import classes
from tests.chaos.table import Result, rendered
from tests.chaos.tally import Budget, FaultClass, Tally


def test_rows_are_compared_by_key() -> None:
    done = account(["a", "b", "b", "c"], ["b", "b", "b", "c", "x"], points=3, where="here")
    assert (done.points, done.rounds, done.published, done.missing, done.double) == (3, 1, 4, 1, 2)
    assert done.wrong == ["here: missing a", "here: double b, x"]
    assert done.red


def test_what_its_writer_is_unsure_of_may_be_there_once() -> None:
    assert not account(["a"], ["a"], unsure=["b"]).red
    assert not account(["a"], ["a", "b"], unsure=["b"]).red
    assert account(["a"], ["a", "b", "b"], unsure=["b"]).double == 1


def test_a_class_that_tried_nothing_is_red_unless_it_says_why() -> None:
    assert Tally(rounds=1, published=5).red
    assert not Tally(skipped="no server").red
    assert not Tally(points=1).red


def test_a_budget_takes_a_part_of_the_points_and_never_none() -> None:
    points = list(range(100))
    assert Budget().some(points, random.Random(1)) == points
    part = Budget(part=0.1).some(points, random.Random(1))
    assert len(part) == 10 and part == sorted(part)
    assert part == Budget(part=0.1).some(points, random.Random(1))
    assert Budget(part=0.001).some(points, random.Random(1)) != []


def test_each_class_runs_in_a_process_of_its_own_and_what_breaks_off_is_red() -> None:
    def breaks(seed: int, budget: Budget) -> Tally:
        raise ValueError("no")

    def dies(seed: int, budget: Budget) -> Tally:
        os._exit(1)

    def hangs(seed: int, budget: Budget) -> Tally:
        time.sleep(600)
        return Tally(1)

    def works(seed: int, budget: Budget) -> Tally:
        return Tally(points=seed, published=os.getpid())

    runs = {"breaks": breaks, "dies": dies, "hangs": hangs, "works": works}
    made = [FaultClass(name, run) for name, run in runs.items()]
    found = {item.name: item.tally for item in run_all(made, 7, Budget(seconds=1), cores=2, limit_seconds=3)}
    assert {name: tally.red for name, tally in found.items()} == dict.fromkeys(("breaks", "dies", "hangs"), True) | {
        "works": False
    }
    assert found["works"].points == 7 and found["works"].published != os.getpid()
    assert "ValueError" in found["breaks"].wrong[0]


def test_the_table_names_each_class_the_sum_and_what_went_wrong() -> None:
    lines = rendered(
        [
            Result("one", Tally(3, 2, 1000), 1.4),
            Result("another", Tally(1, 1, 5, missing=1, wrong=["at 3: missing k"]), 2),
            Result("third", Tally(skipped="no server"), 0),
        ]
    )
    assert lines[0].split() == ["fault", "class", "points", "rounds", "published", "missing", "double", "seconds"]
    assert lines[1].split() == ["one", "3", "2", "1,000", "0", "0", "1"]
    assert lines[2].split() == ["another", "1", "1", "5", "1", "0", "2", "RED"]
    assert lines[3].endswith("skipped: no server")
    assert lines[5].split() == ["all", "4", "3", "1,005", "1", "0", "3"]
    assert lines[6] == "another: at 3: missing k"


def test_every_class_has_a_name_of_its_own() -> None:
    names = [item.name for item in classes()]
    assert len(names) == len(set(names)) > 0
