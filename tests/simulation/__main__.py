"""
`python -m tests.simulation --seed 7 --steps 100000`: plays worlds of 1,000 events, each by a seed of its own.

A world that fails is played again with fewer and fewer events, and what is left is printed as a story.
"""

import argparse
import sys

from tests.simulation.events import events
from tests.simulation.many import Total, worlds
from tests.simulation.play import Played, play, shrink

EVENTS = 1000
#: seconds between two lines of progress
TELL_EVERY = 60


def main() -> int:
    """The exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first world's seed (default: 1)")
    parser.add_argument("--steps", type=int, help="ticks in all (default: 20000; with --seconds: no end)")
    parser.add_argument("--seconds", type=float, default=0, help="end after so many seconds")
    parser.add_argument("--events", type=int, default=EVENTS, help="events of a world (default: 1000)")
    parser.add_argument("--cores", type=int, default=1, help="processes that play worlds (default: 1)")
    given = parser.parse_args()
    steps = given.steps or (sys.maxsize if given.seconds else 20_000)
    print(f"worlds of {given.events} events, from seed {given.seed}", flush=True)
    total, told = Total(), 0.0
    for seed, played, used in worlds(given.seed, given.events, given.cores):
        total.add(played, used)
        if played.wrong:
            tell(seed, given.events, played)
            return 1
        if total.ticks >= steps or (given.seconds and total.passed > given.seconds):
            break
        if total.passed - told >= TELL_EVERY:
            told = total.passed
            about = f"{told / 60:.0f} min: {total.worlds} worlds, {total.ticks} ticks, nothing wrong"
            print(f"{about}; {total.speed()} per second of a core", file=sys.stderr, flush=True)
    print(total.told(given.seed))
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
