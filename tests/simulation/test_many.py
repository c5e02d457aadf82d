"""Worlds that many processes play come to the same as those that one plays."""

from itertools import islice

from tests.simulation.many import Total, worlds


def total(cores: int) -> Total:
    found = Total()
    for _, played, used in islice(worlds(3, 30, cores), 3):
        found.add(played, used)
    return found


def test_the_worlds_of_two_processes_are_those_of_one() -> None:
    one, two = total(1), total(2)
    assert one.counts == two.counts
    assert (one.worlds, one.ticks) == (two.worlds, two.ticks)
    assert one.ticks == one.counts["ticks"] > 0


def test_the_result_says_what_was_met_and_that_nothing_was_lost() -> None:
    told = total(1).told(3)
    assert "3 worlds (seeds 3 to 5)" in told
    assert "missing 0, double 0, needed files gone 0" in told
    assert "never met: " in told
