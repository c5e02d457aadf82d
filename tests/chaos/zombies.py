"""
Stopped and woken: a process that sleeps amid whatever it does while another does its work, and then goes on.

There is no lease here: a sleeping process would keep it.
"""

import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from tests.chaos.processes import roles, slots
from tests.chaos.processes.ground import Ground
from tests.chaos.processes.rounds import rounds
from tests.chaos.tally import FaultClass
from tests.support.crew import Crew


def two_bookkeepers(ground: Ground) -> Mapping[str, Callable[[], None]]:
    """
    Two bookkeepers, of which one sleeps now and then, and writers.
    """
    return {
        "zombie": partial(roles.bookkeeper, ground, lease=False),
        "successor": partial(roles.bookkeeper, ground, lease=False),
        "reaper": partial(roles.reaper, ground),
        "source": partial(roles.source, ground),
        "plain": partial(roles.plain, ground, "plain"),
    }


def two_runs(ground: Ground) -> Mapping[str, Callable[[], None]]:
    """
    Two runs of each writer's name, of which one sleeps now and then, and a bookkeeper.
    """
    return {
        "zombie": partial(roles.source, ground),
        "successor": partial(roles.source, ground),
        "plain zombie": partial(roles.plain, ground, "plain"),
        "plain successor": partial(roles.plain, ground, "plain"),
        "bookkeeper": partial(roles.bookkeeper, ground, lease=False),
    }


def two_instances(ground: Ground) -> Mapping[str, Callable[[], None]]:
    """
    Two instances of a source of many channels, of which one sleeps now and then with slots held, and a bookkeeper.
    """
    return {
        "zombie": partial(slots.instance, ground, "zombie"),
        "successor": partial(slots.instance, ground, "successor"),
        "bookkeeper": partial(roles.bookkeeper, ground, lease=False),
    }


def sleeping(crew: Crew, rng: Random) -> int:
    """
    The zombies fall asleep a few times; their successors are new each time.
    """
    zombies = [role for role in crew.commands if "zombie" in role]
    naps = rng.randint(2, 4)
    for _ in range(naps):
        time.sleep(rng.uniform(0.02, 0.2))
        for role in zombies:
            crew.signal(role, signal.SIGSTOP)
            successor = role.replace("zombie", "successor")
            crew.kill(successor)
            crew.start(successor)
        time.sleep(rng.uniform(0.1, 0.25))
        for role in zombies:
            crew.signal(role, signal.SIGCONT)
    time.sleep(rng.uniform(0.05, 0.15))
    return naps * len(zombies)


CLASSES = (
    *(
        FaultClass(f"stopped and woken: a bookkeeper ({kind})", partial(rounds, two_bookkeepers, sleeping, kind), 2)
        for kind in ("sqlite", "postgres", "rest")
    ),
    FaultClass("stopped and woken: writers", partial(rounds, two_runs, sleeping, "sqlite"), 3),
    FaultClass("stopped and woken: slots", partial(rounds, two_instances, sleeping, "sqlite"), 3),
)
