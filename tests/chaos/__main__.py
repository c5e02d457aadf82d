"""
`make chaos`: runs the fault classes and prints the table; the exit code is 1 when a row is missing or double.
"""

import argparse
import logging
import os
import random
import signal
import sys
import time

from tests.chaos.pool import run_all
from tests.chaos.registry import classes
from tests.chaos.table import Result, rendered
from tests.chaos.tally import Budget

SHORT = Budget(seconds=6)


def main() -> int:
    """
    The table on stdout, progress on stderr.
    """
    given = _options()
    chosen = classes(given.only)
    if given.list:
        print(*(item.name for item in chosen), sep="\n")
        return 0
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    budget = SHORT if given.short else Budget(seconds=given.minutes * 60)
    _tell(f"seed {given.seed}: {len(chosen)} fault classes, {given.cores} at a time")
    began, found = time.monotonic(), dict[str, Result]()
    for result in run_all(chosen, given.seed, budget, given.cores, limit_seconds=given.limit * 60):
        found[result.name] = result
        _tell(
            f"{len(found)}/{len(chosen)} {result.name}: {'RED' if result.tally.red else 'even'}, {result.seconds:.0f} s"
        )
    results = [found[item.name] for item in chosen]
    print(*rendered(results), sep="\n")
    print(f"\nseed {given.seed}, {time.monotonic() - began:.0f} s: {_verdict(results)}")
    return int(_is_red(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Breaks everything, counts rows.")
    add = parser.add_argument
    add("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="the schedule; the same is the same")
    add("--short", action="store_true", help="every point once, and few rounds: some minutes")
    add("--minutes", type=float, default=3.0, help="how long a class goes on drawing rounds")
    add("--only", default="", metavar="TEXT", help="only classes with TEXT in their names")
    add("--cores", type=int, default=os.cpu_count() or 2, help="how many classes run at a time")
    add(
        "--limit",
        type=float,
        default=30.0,
        metavar="MINUTES",
        help="a class that takes so much longer than its rounds may is red",
    )
    add("--list", action="store_true", help="the names of the classes")
    return parser.parse_args()


def _is_red(results: list[Result]) -> bool:
    ci = os.environ.get("CI") == "true"
    return not results or any(item.tally.red or (ci and item.tally.skipped) for item in results)


def _verdict(results: list[Result]) -> str:
    published = sum(item.tally.published for item in results)
    if _is_red(results):
        return "RED: see above; the same --seed tries the same again"
    return f"each of {published:,} published rows is in its table exactly once (compared by key)"


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
