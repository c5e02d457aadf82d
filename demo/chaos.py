"""
Which process is killed when: pure, decided by a seed before the demo begins.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

FIRST, LAST = 3.0, 2.0
PAUSE = (2.0, 4.0)
CONSUMER_EVERY = 30


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """One kill -9: seconds after the writers began, and of which process."""

    at: float
    victim: str


def kills(seed: int, seconds: float, writers: Sequence[str]) -> list[Kill]:
    """
    A kill every few seconds of the writing: bookkeeper, reaper and writers in turn, shuffled; the consumer less often.

    A consumer needs ten seconds to start again, so it is killed once per half minute and never near the end.
    """
    chance = random.Random(seed)
    found: list[Kill] = []
    at, bag = FIRST, []
    while at < seconds - LAST:
        bag = bag or chance.sample(["bookkeeper", "reaper", "writer", "writer"], 4)
        kind = bag.pop()
        found.append(Kill(round(at, 1), chance.choice(writers) if kind == "writer" else kind))
        at += chance.uniform(*PAUSE)
    found += [Kill(15.0 + start, "consumer") for start in range(0, int(seconds) - 15, CONSUMER_EVERY)]
    return sorted(found)
