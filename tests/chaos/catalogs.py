"""
Lost, late and double replies of the catalog, and of puts beside it: SQLite, Postgres and REST.

The faults and the rounds are those of tests.support.catalog_chaos; a race of two bookkeepers without a lease is one
more.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic

from tests.chaos.tally import Budget, FaultClass, Tally
from tests.servers import Unavailable
from tests.support.catalog_chaos import COMMIT, FAULTS, PUT, REQUEST, race, trial
from tests.support.catalog_lake import KINDS, Place, place

COMMITS = 20
_WORDS = {COMMIT: "commits lost, late, double", REQUEST: "requests lost", PUT: "puts lost, late, double"}


def _in_place(kind: str, act: Callable[[Place, int], Tally], seed: int, budget: Budget) -> Tally:
    """Rounds of `act` until time is up, at least one; with another seed each."""
    until, done, number = monotonic() + budget.seconds, Tally(), 0
    try:
        with place(kind) as where:
            while not number or monotonic() < until:
                done += act(where, seed + number)
                number += 1
    except Unavailable as exc:
        return Tally(skipped=str(exc))
    return done


def _faults(what: str, where: Place, seed: int) -> Tally:
    done = Tally()
    for fault in FAULTS[what]:
        made = trial(where, what, fault, 1, seed)
        done += made.tally(f"{fault.value} (seed {seed})")
    return done


def _race(where: Place, seed: int) -> Tally:
    lake = where.lake(max_txlogs=1)
    refused = race(lake, COMMITS)
    return lake.tally(COMMITS + refused, f"seed {seed}")


CLASSES = tuple(
    FaultClass(f"catalog {kind}: {_WORDS[what]}", partial(_in_place, kind, partial(_faults, what)))
    for kind in KINDS
    for what in FAULTS
) + tuple(FaultClass(f"catalog {kind}: two bookkeepers, no lease", partial(_in_place, kind, _race)) for kind in KINDS)
