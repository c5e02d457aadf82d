"""Many faults at once, shortly; `make chaos` goes on for minutes."""

from random import Random

from tests.chaos.storms import faults_of, storms
from tests.chaos.tally import Budget
from tests.support.faults import Faults


def test_storms_lose_and_double_nothing() -> None:
    done = storms(seed=1, budget=Budget(seconds=3))
    assert not done.red, done.wrong
    assert done.points > 20 * done.rounds


def test_the_same_seed_is_the_same_storm() -> None:
    def drawn(faults: Faults) -> list[object]:
        outcomes: list[object] = []
        for number in range(300):
            try:
                outcomes.append(faults.around(f"create {number}", lambda: None))
            except Exception as error:  # noqa: BLE001
                outcomes.append(str(error))
        return outcomes

    (one, noted), (two, again) = faults_of(Random("x")), faults_of(Random("x"))
    assert drawn(one) == drawn(two)
    assert noted == again != []
