"""
`make rules`: breaks each rule on purpose, one at a time, and prints which systems turn red, and after how long.

    python -m tests.rules                    all of them, in some minutes; exit code 1 when one stays green
    python -m tests.rules --part             what is chosen for the sources as they are: a minute or two
    python -m tests.rules any_position       one rule; --system simulation: only systems whose name or place has this
    python -m tests.rules --measure          the same, and keeps the figures in measured.json
    python -m tests.rules --list             the table of rules, without a look
"""

import argparse
import logging
import sys

from tests.rules import rotation
from tests.rules.registry import RULES
from tests.rules.rotation import Figures, place
from tests.rules.rule import Outcome, pairs
from tests.rules.systems import look


def main() -> int:
    """The exit code: 1 when a system stayed green."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.rules", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="RULE", help="rules (default: all)")
    parser.add_argument("--system", default="", help="only systems whose name or place contains this")
    parser.add_argument("--part", action="store_true", help="only what is chosen for the sources as they are")
    parser.add_argument("--measure", action="store_true", help="keep how long each takes")
    parser.add_argument("--list", action="store_true", help="print the table of rules")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in RULES]:
        parser.error(f"there is no rule {', '.join(unknown)}; --list prints them")
    rules = [RULES[name] for name in given.names or RULES]
    if given.list:
        print("\n".join(rotation.told(rules)))
        return 0
    logging.lastResort = None  # of broken programs the log says much
    wanted = [pair for pair in pairs(rules) if given.system in place(pair[1])]
    if given.part:
        wanted = rotation.chosen(wanted, rotation.sources(), rotation.PART_SECONDS)
    figures = {name: dict(found) for name, found in rotation.measured().items()}
    green, count = 0, 0
    print("| rule | system | red after | seconds | what is said |\n|---|---|---|---:|---|", flush=True)
    for rule, red, done in look(wanted):
        print(f"| {rule.name} | {place(red)} | {_told(done)} |", flush=True)
        green, count = green + (not done.red), count + 1
        if done.found is not None and done.red:
            figures.setdefault(rule.name, {})[place(red)] = Figures(done.seconds, done.found.after)
    if given.measure:
        rotation.write(figures, RULES.values())
    print(f"{count} looked at, {green} not red", flush=True)
    return int(green > 0)


def _told(done: Outcome) -> str:
    if done.skipped:
        return f"skipped | | {done.skipped[:200]}"
    if done.unfit or done.found is None:
        return f"NOT RED | {done.seconds:.2f} | {done.unfit[:300]}"
    return f"{done.found.after or 'once'} | {done.seconds:.2f} | {done.found.says[:100]}"


if __name__ == "__main__":
    sys.exit(main())
