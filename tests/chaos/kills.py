"""
kill -9 of real processes at random points: two bookkeepers with a lease between them, a reaper, a compactor,
two kinds of writers, two instances of a source of many channels.

The seed decides which process is killed when, and how long it stays dead.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from tests.chaos.processes import roles, slots
from tests.chaos.processes.ground import Ground
from tests.chaos.processes.rounds import rounds
from tests.chaos.tally import FaultClass
from tests.support.crew import Crew

SECONDS = 0.7


def programs(ground: Ground) -> Mapping[str, Callable[[], None]]:
    """
    The processes.
    """
    return {
        "bookkeeper": partial(roles.bookkeeper, ground, lease=True),
        "second bookkeeper": partial(roles.bookkeeper, ground, lease=True),
        "reaper": partial(roles.reaper, ground),
        "compactor": partial(roles.compactor, ground),
        "source": partial(roles.source, ground),
        "plain": partial(roles.plain, ground, "plain"),
    }


def instances(ground: Ground) -> Mapping[str, Callable[[], None]]:
    """
    Two instances of a source, which take its slots from each other.
    """
    return {
        "bookkeeper": partial(roles.bookkeeper, ground, lease=True),
        "reaper": partial(roles.reaper, ground),
        "instance": partial(slots.instance, ground, "one"),
        "other instance": partial(slots.instance, ground, "other"),
    }


def killing(crew: Crew, rng: Random) -> int:
    """
    A few kills in less than a second, each victim started again soon.
    """
    times = sorted(rng.uniform(0.03, SECONDS) for _ in range(rng.randint(3, 7)))
    began = time.monotonic()
    for at in times:
        victim, rest = rng.choice(list(crew.commands)), rng.uniform(0, 0.03)
        time.sleep(max(0.0, began + at - time.monotonic()))
        crew.kill(victim)
        time.sleep(rest)
        crew.start(victim)
    time.sleep(rng.uniform(0, 0.1))
    return len(times) + len(crew.running)  # in the end all of them are killed


#: its rounds are what is drawn most: on the embedded default, the others say whether they differ
WEIGHTS = {"sqlite": 5, "postgres": 2, "rest": 2}
CLASSES = (
    *(
        FaultClass(
            f"kill -9 of writers, bookkeepers, reaper ({kind})", partial(rounds, programs, killing, kind), weight
        )
        for kind, weight in WEIGHTS.items()
    ),
    FaultClass("kill -9 of slots, bookkeeper, reaper", partial(rounds, instances, killing, "sqlite"), weight=3),
)
