"""Exactly once, whatever happens to a commit, a load or a put on its way: rows are compared by key."""

import random

import pytest

from tests.servers.line import Fault
from tests.support.catalog_chaos import COMMIT, FAULTS, PUT, REQUEST, Trial, trial
from tests.support.catalog_lake import Place

LATE = (Fault.LATE_AFTER, Fault.LATE_LAST)


def by_name(fault: Fault) -> str:
    return fault.name.lower()


@pytest.mark.parametrize("fault", FAULTS[COMMIT], ids=by_name)
def test_no_row_is_lost_or_doubled_whatever_happens_to_a_commit(where: Place, fault: Fault) -> None:
    done = trial(where, COMMIT, fault, rounds=1, seed=1)
    assert _exactly_once(done)
    late, applied = sum(line.late for line in done.lines), sum(line.late_applied for line in done.lines)
    if fault is Fault.LATE_BEFORE:
        assert applied > 0  # and our retry, made for the head before it, was refused
    elif fault in LATE:
        assert late > 0 and applied == 0  # refused by its own guard: main has moved


@pytest.mark.parametrize("fault", FAULTS[REQUEST], ids=by_name)
def test_no_row_is_lost_or_doubled_whatever_happens_to_any_request(where: Place, fault: Fault) -> None:
    assert _exactly_once(trial(where, REQUEST, fault, rounds=1, seed=1))


@pytest.mark.parametrize("fault", FAULTS[PUT], ids=by_name)
def test_no_row_is_lost_or_doubled_whatever_happens_to_a_put(sqlite: Place, fault: Fault) -> None:
    assert _exactly_once(trial(sqlite, PUT, fault, rounds=1, seed=1))


def test_a_manifest_that_is_put_twice_is_no_error(sqlite: Place) -> None:
    done = Trial(sqlite.lake(), random.Random(1))
    done.puts(Fault.TWICE, 1)
    assert _exactly_once(done)


def _exactly_once(done: Trial) -> bool:
    assert all(line.injected for line in done.lines), "no fault was injected"
    assert (done.lake.missing(), done.lake.double()) == ([], [])
    assert done.lake.wrong() == []
    return True
