"""A part of the rounds on object stores; `make chaos` has them all."""

import pytest

from tests.chaos.objects import Round, faults
from tests.chaos.tally import Budget
from tests.servers.shared import wanted


@pytest.mark.parametrize("kind", ["azurite", "s3"])
def test_no_row_is_lost_or_doubled_whatever_happens_to_requests(kind: str) -> None:
    wanted(kind)
    done = faults(kind, 1, Budget(seconds=0, part=0.13 if kind == "s3" else 0.04))
    assert (done.missing, done.double, done.wrong) == (0, 0, [])
    assert done.points > 10 and done.published


def test_a_row_that_is_committed_twice_or_never_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted("s3")
    monkeypatch.setattr(Round, "keys", lambda self: [*self.published[1:], self.published[-1]])
    done = faults("s3", 1, Budget(seconds=0, part=0.01))
    assert done.red and done.missing and done.double
