"""
The seed decides which process is killed when, and each one's turn comes.
"""

import itertools

from demo.chaos import LAST, kills

WRITERS = ["writer-1", "writer-2"]


def test_the_same_seed_kills_the_same_at_the_same_time() -> None:
    assert kills(7, 60, WRITERS) == kills(7, 60, WRITERS) != kills(8, 60, WRITERS)


def test_a_run_of_forty_seconds_kills_each_program_every_few_seconds() -> None:
    plan = kills(1, 40, WRITERS)
    assert {"bookkeeper", "reaper", "consumer"} < {kill.victim for kill in plan}
    times = [kill.at for kill in plan if kill.victim != "consumer"]
    assert all(1 <= later - earlier <= 5 for earlier, later in itertools.pairwise(times))


def test_a_short_run_kills_something_but_never_the_consumer() -> None:
    victims = [kill.victim for kill in kills(1, 8, WRITERS)]
    assert victims and "consumer" not in victims


def test_kills_come_in_order_and_end_before_the_writers_do() -> None:
    times = [kill.at for kill in kills(3, 30, WRITERS)]
    assert times == sorted(times) and times[-1] < 30 - LAST
