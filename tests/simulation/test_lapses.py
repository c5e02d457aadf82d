"""Each duty of which liveness tells: a world in which it is left undone is objected to, and in these words."""

import pytest

from tests.simulation.lapses import LAPSES, said_of
from tests.simulation.liveness import BOUNDS

#: what else is late then: without a bookkeeper nothing is committed, and no row reaches a consumer
BEFORE = {"a lease is taken over": "rows reach the consumer"}
#: what only a defect of another duty delays, or of the account: `a program` waits for room, and a replay is a txlog
BESIDE = {"a program ends what it does", "a replay gets in"}


@pytest.mark.parametrize("duty", LAPSES)
def test_a_duty_that_is_left_undone_is_named(duty: str) -> None:
    assert f"Wrong: {BEFORE.get(duty, duty)}: not so for" in said_of(duty)


def test_each_bound_has_a_world_in_which_it_is_passed() -> None:
    assert BOUNDS.keys() - BESIDE == LAPSES.keys() - {"small manifests are merged"}
