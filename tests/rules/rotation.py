"""
Which rules are broken in this run: a part that the sources choose.

The same sources choose the same part, so what fails here fails anywhere; and over time each has its turn.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.rules.rule import Red, Rule

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("measured.json")
_SOURCES = ("bookkeeper", "reaper", "writers", "spark_jobs", "tests/rules", "tests/simulation", "tests/chaos")
Pair = tuple[Rule, Red]
#: the tests that need a JVM, and what that takes, which is in no figure
JVM, _JVM_SECONDS = "test tests/spark/", 6.0
#: of a core, for a part in CI, which takes a minute or two with the tests beside it
PART_SECONDS = 60.0


class Figures(NamedTuple):
    """How a system turned red when it was measured: in how many seconds of a core, and after how much of its own."""

    seconds: float
    after: str = ""


def place(red: Red) -> str:
    """
    By what the figures of a system are kept.
    """
    return f"{red.system} {red.where}".strip()


def measured() -> dict[str, dict[str, Figures]]:
    """
    By rule and place.
    """
    raw: dict[str, dict[str, list[Any]]] = json.loads(FILE.read_text("utf-8"))
    return {name: {where: Figures(*figures) for where, figures in found.items()} for name, found in raw.items()}


def write(figures: dict[str, dict[str, Figures]], rules: Iterable[Rule]) -> None:
    """
    Keeps figures, of what the registry has now; a line for each rule.
    """
    lines = []
    for rule in rules:
        found = {where: figures.get(rule.name, {}).get(where) for where in map(place, rule.reds)}
        kept = {
            where: [round(known.seconds, 2), *filter(None, [known.after])] for where, known in found.items() if known
        }
        lines.append(f"{json.dumps(rule.name)}: {json.dumps(kept)}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def sources() -> str:
    """
    A digest of the sources.
    """
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def part(wanted: Iterable[Pair], chosen_by: str, most_seconds: float) -> list[Pair]:
    """
    Of what never depends on the speed of the machine, a part that takes so long: chosen by this text, and all that was
    never measured.
    """
    known, left, taken = measured(), most_seconds, list[Pair]()
    for rule, red in sorted(wanted, key=lambda pair: _turn(chosen_by, pair)):
        figures = known.get(rule.name, {}).get(place(red), Figures(0))
        seconds = figures.seconds + _JVM_SECONDS * place(red).startswith(JVM)
        if seconds <= left and not red.timed:
            taken.append((rule, red))
            left -= seconds
    return taken


def chosen(wanted: Sequence[Pair], chosen_by: str, most_seconds: float) -> list[Pair]:
    """
    Such a part of what runs in this process, and one of the tests, which run beside it and wait most of the time.
    """
    tests = [pair for pair in wanted if pair[1].system == "test"]
    rest = [pair for pair in wanted if pair[1].system != "test"]
    return [*part(rest, chosen_by, most_seconds), *part(tests, chosen_by, most_seconds / 3)]


def _turn(chosen_by: str, pair: Pair) -> str:
    return hashlib.sha256(f"{chosen_by} {pair[0].name} {place(pair[1])}".encode()).hexdigest()


def told(rules: Iterable[Rule]) -> Iterator[str]:
    """
    A table of rules: what holds, what is done without it, and who turns red after how long.
    """
    known = measured()
    yield "| rule | it holds that | without it | red |"
    yield "|---|---|---|---|"
    for rule in rules:
        reds = [f"{place(red)}{_said(known.get(rule.name, {}).get(place(red)))}" for red in rule.reds]
        yield f"| {rule.name} | {rule.holds} | {rule.without} | {'; '.join(reds)} |"


def _said(figures: Figures | None) -> str:
    return "" if figures is None else f" ({', '.join(filter(None, (figures.after, f'{figures.seconds} s')))})"
