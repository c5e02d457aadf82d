"""
Tests of the tests: without a rule of the protocol, each system that is there to see it turns red.

A small part each time, which the sources choose; CI looks at a larger one, and `make rules` at all of it.
"""

import re
from pathlib import Path

from tests.rules import rotation
from tests.rules.registry import CHAPTERS, RULES
from tests.rules.rotation import place
from tests.rules.rule import pairs
from tests.rules.systems import Fails, look

ALL = pairs([*RULES.values()])
SECONDS = 3.0


def test_without_a_rule_its_systems_turn_red() -> None:
    wanted = [pair for pair in ALL if not place(pair[1]).startswith(rotation.JVM)]
    part = rotation.chosen(wanted, f"make test {rotation.sources()}", SECONDS)
    green = [f"{rule.name}: {place(red)} {done.unfit}" for rule, red, done in look(part) if not done.red]
    assert part and green == []


def test_each_mutant_fits_the_product() -> None:
    for rule in RULES.values():
        with rule.broken():
            pass


def test_each_rule_has_a_name_of_its_own_a_sentence_a_mutant_and_a_system() -> None:
    assert sum(len(chapter.rules) for chapter in CHAPTERS) == len(RULES)
    assert [rule.name for rule in RULES.values() if not (rule.holds and rule.without and rule.reds)] == []


def test_each_test_that_a_rule_names_is_there() -> None:
    """A test that was renamed would be missed by luck of the rotation only."""
    named = {tuple(red.node.partition("[")[0].split("::")) for _, red in ALL if isinstance(red, Fails)}
    files = {file: _functions(rotation.ROOT / file) for file, _ in named}
    assert [f"{file}::{name}" for file, name in named if name not in files[file]] == []


def _functions(file: Path) -> set[str]:
    return {*re.findall(r"^def (\w+)\(", file.read_text(), re.MULTILINE)}


def test_each_red_was_measured_and_has_its_turn_in_ci() -> None:
    """By `python -m tests.rules RULE --measure`: the part of a run is chosen by how long each takes."""
    known = rotation.measured()
    assert [f"{rule.name}: {place(red)}" for rule, red in ALL if place(red) not in known.get(rule.name, {})] == []
    alone = [pair for pair in ALL if not rotation.chosen([pair], "", rotation.PART_SECONDS)]
    assert [f"{rule.name}: {place(red)}" for rule, red in alone if not red.timed] == []
