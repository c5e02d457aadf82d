"""
The systems that must turn red: each is a place to look, and the bounds within which it must find something wrong.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from tests.chaos import kills
from tests.chaos.crashes import crash_at, on_stage
from tests.chaos.fuzz import fuzz
from tests.chaos.pool import run_all
from tests.chaos.scenes.scene import Scene as Scenery
from tests.chaos.storage import disturb_at
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.histories.walks import complaints
from tests.model.conformance import refusal, seeds
from tests.rules import tested
from tests.rules.rule import Found, Outcome, Red, Rule, cpu_seconds
from tests.servers import Unavailable, installed, scratch
from tests.simulation.events import events
from tests.simulation.play import play
from tests.simulation.trace import record, steps
from tests.support.enumerated import Point, crash_points, error_points, recorded

_EVENTS = 300
Trial = Callable[[Scenery, Point], Tally]


@dataclass(frozen=True)
class Scene:
    """Crashes (or errors) of a scene, `when` an operation with `part` in its name is done; `seen` is to be red."""

    made: type[Scenery]
    when: str
    part: str
    seen: str
    errors: bool = False
    system, timed = "enumeration", False

    @property
    def where(self) -> str:
        return f"{'error' if self.errors else 'crash'} {self.when} {self.part!r} of {self.made.name}: {self.seen}"

    @cached_property
    def _sound(self) -> Tally:
        """The same without the mutant."""
        return self._tried()

    def find(self, rule: Rule) -> Found | None:
        if self._sound.points == 0 or self._sound.red:
            raise AssertionError(f"{self.where} is red, or never reached, with the rule too: {self._sound}")
        with rule.broken():
            done = self._tried()
        if not done.red or not getattr(done, self.seen):
            return None
        lost = f"{done.missing} rows missing, {done.double} double"
        return Found(done.wrong[0] if done.wrong and self.seen == "wrong" else lost, f"{done.points} points")

    def _tried(self) -> Tally:
        trial, points = (disturb_at, error_points) if self.errors else (crash_at, crash_points)
        done = Tally()
        try:
            with on_stage(self.made) as scene:
                found = points(recorded(scene.act))
                for point in [item for item in found if item.when == self.when and self.part in item.operation]:
                    done += trial(scene, point)
        except Exception as error:  # noqa: BLE001 - what is broken may also break off
            done += Tally(1, wrong=[repr(error)])
        return done


@dataclass(frozen=True)
class Fuzzed:
    """Of so many mutated txlogs the judge of tests/chaos calls one wrongly taken, or wrongly read."""

    txlogs: int
    system, where, timed = "fuzz", "", False

    def find(self, rule: Rule) -> Found | None:
        # Most of what is let in is refused for its name as well.
        with rule.broken(), mock.patch("bookkeeper.tick.check_txlog.check_names", return_value=None):
            item = FaultClass("fuzz", lambda seed, budget: fuzz(self.txlogs, seed, budget))
            (result,) = run_all([item], 1, Budget(), cores=1, limit_seconds=120)
        done = result.tally
        return Found(done.wrong[0], f"of {self.txlogs} txlogs") if done.red else None


@dataclass(frozen=True)
class Killed:
    """Real processes, killed at random for so many seconds: a row is missing or double."""

    seconds: float
    where: str = kills.CLASSES[0].name
    system, timed = "processes", True

    def find(self, rule: Rule) -> Found | None:
        chosen = [item for item in kills.CLASSES if item.name == self.where]
        with rule.broken():
            (result,) = run_all(chosen, 1, Budget(seconds=self.seconds), cores=1, limit_seconds=120)
        done = result.tally
        lost = f"{done.missing} rows missing, {done.double} double"
        return Found(lost, f"{done.points} kills") if done.missing or done.double else None


@dataclass(frozen=True)
class Simulated:
    """
    Worlds of 300 events, from this seed on, for at most so many ticks; what they say must hold `says`.

    Any change of the code changes the worlds of a seed: where one finds nothing, two more are tried.
    """

    most: int
    says: str = ""
    seed: int = 1
    system, where, timed = "simulation", "", False

    def find(self, rule: Rule) -> Found | None:
        with rule.broken():
            for first in range(self.seed, self.seed + 3):
                ticks, wrong, seed = 0, "", first
                while ticks < self.most and not wrong:
                    played = play(seed, list(events(seed, _EVENTS)))
                    ticks, wrong, seed = ticks + played.ticks, played.wrong, seed + 1000
                if wrong and self.says in wrong:
                    return Found(wrong, f"{ticks} ticks")
        return None


@dataclass(frozen=True)
class Walked:
    """A history of each of three tables: the first that ends badly breaks this property."""

    breaks: str
    rewrites: bool = False
    system, timed = "histories", False

    @property
    def where(self) -> str:
        return f"{'with' if self.rewrites else 'without'} rewrites"

    def find(self, rule: Rule) -> Found | None:
        with rule.broken():
            found = complaints(self.rewrites)
        broken = {complaint.partition(":")[0] for complaint in found}
        return Found(next(item for item in found if item.startswith(self.breaks))) if self.breaks in broken else None


@dataclass(frozen=True)
class Modelled:
    """A rule of the model, by its name in Rust: the checker finds a state in which a property is false without it."""

    rule: str
    system, timed = "model", False

    @property
    def where(self) -> str:
        return self.rule

    def find(self, rule: Rule) -> Found | None:
        said = subprocess.run(
            [str(installed.checker(os.environ)), "rules", self.rule], capture_output=True, text=True
        ).stdout
        found = re.search(rf"^without {self.rule}: (.*) is false \((.*)\)$", said, re.MULTILINE)
        return Found(f"false: {found[1]}", f"scenario {found[2]}") if found else None


@dataclass(frozen=True)
class Recorded:
    """Of so many runs of the broken code the model refuses one."""

    runs: int
    system, where, timed = "model", "recorded runs", False

    def find(self, rule: Rule) -> Found | None:
        installed.model(os.environ)
        with TemporaryDirectory(dir=scratch()) as root:
            for number, seed in enumerate(seeds(2, self.runs), 1):
                with rule.broken():
                    lines = record(seed, steps(seed), broken=True)
                if said := refusal(lines, Path(root, "run")):
                    return Found(said.splitlines()[0], f"{number} runs")
        return None


@dataclass(frozen=True)
class Fails:
    """
    A test, or one of its cases, fails; `says` is in what it says then.

    `timed`: for some seconds, or by a race of threads.
    """

    node: str
    says: str = ""
    timed: bool = False
    system = "test"

    @property
    def where(self) -> str:
        return self.node

    def find(self, rule: Rule) -> Found | None:
        with tested.looking([(rule, self)]) as outcomes:
            (outcome,) = outcomes()
        if outcome.unfit or outcome.skipped:
            raise AssertionError(outcome.unfit or outcome.skipped)
        return outcome.found


def look(wanted: Sequence[tuple[Rule, Red]]) -> Iterator[tuple[Rule, Red, Outcome]]:
    """
    Looks at each of these, and at tests in a process beside this one.
    """
    tests = [(rule, red) for rule, red in wanted if isinstance(red, Fails)]
    with tested.looking(tests) if tests else nullcontext(list) as outcomes:
        for rule, red in wanted:
            if not isinstance(red, Fails):
                yield rule, red, _looked(rule, red)
        yield from ((rule, red, done) for (rule, red), done in zip(tests, outcomes(), strict=True))


def _looked(rule: Rule, red: Red) -> Outcome:
    began = cpu_seconds()
    try:
        found, unfit = red.find(rule), ""
    except Unavailable as error:
        return Outcome(None, skipped=str(error))
    except AssertionError as error:
        found, unfit = None, str(error) or repr(error)
    return Outcome(found, cpu_seconds() - began, unfit)
