"""
`python -m tests.simulation --seed 7 --steps 100000`: plays worlds of 1,000 events, each by a seed of its own.

A world that fails is played again with fewer and fewer events, and what is left is printed as a story.
"""

import argparse
import sys
import time
from collections import Counter

from tests.simulation.coverage import report
from tests.simulation.events import events
from tests.simulation.play import Played, play, shrink

EVENTS = 1000


def main() -> int:
    """The exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first world's seed (default: 1)")
    parser.add_argument("--steps", type=int, help="ticks in all (default: 20000; with --seconds: no end)")
    parser.add_argument("--seconds", type=float, default=0, help="end after so many seconds")
    parser.add_argument("--events", type=int, default=EVENTS, help="events of a world (default: 1000)")
    given = parser.parse_args()
    began, used = time.monotonic(), time.process_time()
    steps = given.steps or (sys.maxsize if given.seconds else 20_000)
    seed, ticks, counts = given.seed, 0, Counter[str]()
    print(f"worlds of {given.events} events, from seed {seed}", flush=True)
    while ticks < steps and not (given.seconds and time.monotonic() - began > given.seconds):
        played = play(seed, list(events(seed, given.events, quiet=True)))
        ticks += played.ticks
        counts += played.counts
        if played.wrong:
            tell(seed, given.events, played)
            return 1
        seed += 1
    passed, used = time.monotonic() - began, time.process_time() - used
    print(f"{seed - given.seed} worlds (seeds {given.seed} to {seed - 1}), {ticks} ticks in {passed:.0f} s")
    print(f"{ticks / used:.0f} ticks and {counts['commits'] / used:.0f} commits per second of a core")
    print(report(counts))
    return 0


def tell(seed: int, count: int, played: Played) -> None:
    """Prints what is wrong, and the shortest story that ends there."""
    print(f"seed {seed}, after {played.ticks} ticks: {played.wrong}\n{played.where}", flush=True)
    steps = shrink(seed, list(events(seed, count, quiet=True))[: played.taken], played.kind)
    short = play(seed, steps)
    print("\n".join(short.story))
    print(short.wrong)
    print(f"SEED, STEPS = {seed}, {[tuple(step) for step in steps]}")


if __name__ == "__main__":
    sys.exit(main())
