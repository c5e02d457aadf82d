"""
What a fault class is asked for, and what it answers.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a class may draw rounds, and which part of what it enumerates it is to try."""

    seconds: float = 60.0
    part: float = 1.0

    def some(self, points: Sequence[T], rng: random.Random) -> list[T]:
        """All points, or a part of them chosen by `rng`, in their order; never none of some."""
        if self.part >= 1 or not points:
            return list(points)
        chosen = rng.sample(range(len(points)), max(1, round(len(points) * self.part)))
        return [points[number] for number in sorted(chosen)]


@dataclass(slots=True)
class Tally:
    """
    What became of the rows: `points` faults were injected in `rounds` runs, each drained and compared by key.

    `wrong` says what else was not as it should be, and where; it makes the class red as a lost row does.
    """

    points: int = 0
    rounds: int = 0
    published: int = 0
    missing: int = 0
    double: int = 0
    wrong: list[str] = field(default_factory=list)
    note: str = ""
    skipped: str = ""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.points + other.points,
            self.rounds + other.rounds,
            self.published + other.published,
            self.missing + other.missing,
            self.double + other.double,
            (self.wrong + other.wrong)[:_SHOWN],
            other.note or self.note,
            other.skipped or self.skipped,
        )

    @property
    def red(self) -> bool:
        """Whether a row is missing or double, something else went wrong, or nothing was tried at all."""
        return bool(self.missing or self.double or self.wrong or not (self.points or self.skipped))


@dataclass(frozen=True, slots=True)
class FaultClass:
    """One row of the table. `run` draws all chance from the seed; `weight` is how much of the time its rounds need."""

    name: str
    run: Callable[[int, Budget], Tally]
    weight: float = 1.0

    def tally(self, seed: int, budget: Budget) -> Tally:
        """What `run` says, given the time that its weight is worth."""
        return self.run(seed, replace(budget, seconds=budget.seconds * self.weight))
