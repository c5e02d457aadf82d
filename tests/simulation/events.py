"""
The events of a run, by seed.
"""

from collections.abc import Iterator
from random import Random

from tests.simulation.scenes import how_often, scenes_of
from tests.simulation.schedule import COMMITS, FAULTS, TO_COMMIT, Event
from tests.simulation.traits import NOTIFY, is_keyed, traits_of

#: how often each is taken
WEIGHTS = {
    "book-1": 60,
    "book-2": 45,
    "fold-book-1": 12,
    "fold-book-2": 9,
    "plain-1": 6,
    "plain-1b": 3,
    "plain-2": 5,
    "plain-2b": 1,
    "chain-1": 8,
    "chain-1b": 2,
    "reaper": 4,
    "compactor-1": 4,
    "compactor-2": 3,
    "consumer": 4,
    "consumer-b": 1,
    "foreign": 0.7,
    "refs": 1.5,
    "rewriter": 1,
    "expirer": 0.5,
    "operator": 1,
}
#: the same, of keyed worlds only
KEYED_WEIGHTS = {"mixed-1": 9, "mixed-1b": 2, "deleter": 0.7}
#: of worlds with a slot, with leases, and of those where the storage notifies
SLOT_WEIGHTS = {"slot-1": 7, "slot-1b": 3}
LEASE_WEIGHTS = {"lease-book-1": 20, "lease-book-2": 12}
NOTIFY_WEIGHTS = {"queue-book-1": 18, "queue-book-2": 12}
#: how often at least they do the whole of what they do, and after how many calls they are left otherwise
WHOLE = {"reaper": (0.3, 80)}
#: how many of those that are left are left when they are about to commit
AT_COMMIT = {"reaper": 0.7, "book": 0.1, "fold": 0.2}
#: how many at most come in between then
MOST_BETWEEN = 3
#: who comes in between, and how often, where these are left in the middle of what they do
BETWEEN = {
    "reaper": (0.6, ("refs", "refs", "refs", "expirer", "rewriter")),
    "compactor": (0.3, ("rewriter", "refs", "expirer")),
    "fold": (0.3, ("rewriter",)),
    "book": (0.03, ("rewriter", "refs", "expirer", "reaper")),
}
#: the same after a whole round: before a bookkeeper looks at what they published
AFTER = {"compactor": (0.2, ("rewriter",)), "fold": (0.2, ("rewriter",))}
#: how often nothing happens for a while but ticks, of a long run: then 6 of 100 ticks see a commit
QUIET = 0.04
#: meet no faults: they are not what is tried
CALM = frozenset({"foreign", "refs", "rewriter", "deleter", "expirer", "operator", "disk"})
#: how often they do the whole of what they do
WHOLE_CALM = {"rewriter": 0.4, "disk": 1.0}


def weights_of(seed: int) -> dict[str, float]:
    """The actors of the world of this seed, and how often each is taken."""
    traits = traits_of(seed)
    taken: dict[str, float] = WEIGHTS | KEYED_WEIGHTS if is_keyed(seed) else WEIGHTS
    if traits.slots:
        taken = taken | SLOT_WEIGHTS
    if traits.leases:
        taken = taken | LEASE_WEIGHTS
    return taken | NOTIFY_WEIGHTS if traits.discover == NOTIFY else taken


def events(seed: int, steps: int, quiet: bool = False) -> Iterator[Event]:
    """
    The events of a run, by seed: mostly whole pieces of work, some left in the middle, some with a fault.

    With `quiet` there are minutes, not counted as steps, in which bookkeepers tick and writers do nothing.
    """
    dice = Random(seed)
    taken = weights_of(seed)
    names, weights = list(taken), list(taken.values())
    calm = dice.random() * 0.8
    scenes, scene = scenes_of(seed), how_often(seed)
    for _ in range(steps):
        for _ in range(dice.randint(20, 120) if quiet and dice.random() < QUIET else 0):
            yield Event(dice.choice(names[:2]), 1.0, dice.getrandbits(32))
        seconds = dice.choice((0.0, 0.1, 0.5, 1.0, 1.0, 3.0, 11.0))
        if dice.random() < 0.006:
            seconds = dice.choice((120.0, 700.0, 4000.0, 8000.0))
        if dice.random() < scene:
            yield from (event._replace(seed=dice.getrandbits(32)) for event in dice.choice(scenes))
            continue
        who = "disk" if dice.random() < 0.008 else dice.choices(names, weights)[0]
        if who in CALM:
            whole = WHOLE_CALM.get(who, 0.7)
            yield Event(who, seconds, dice.getrandbits(32), 0 if dice.random() < whole else dice.randint(1, 30))
            continue
        kind = who.partition("-")[0]
        whole, most = WHOLE.get(kind, (0.7, 25))
        calls = 0 if dice.random() < whole + calm / 4 else dice.randint(1, most)
        if calls and dice.random() < AT_COMMIT.get(kind, 0.0):
            calls = TO_COMMIT
        fault = dice.choice(FAULTS) if dice.random() < 0.25 * (1 - calm) else ""
        at = 0 if dice.random() < 0.3 and fault in COMMITS else dice.choice((1, 1, 2, 2, 3, 4, 5, 7, 10, 15))
        yield Event(who, seconds, dice.getrandbits(32), calls, fault, at)
        often, others = (BETWEEN if calls else AFTER).get(kind, (0.0, ()))
        for _ in range(MOST_BETWEEN if calls == TO_COMMIT else 1):
            if dice.random() < often:
                yield Event(dice.choice(others), 0.1, dice.getrandbits(32))
