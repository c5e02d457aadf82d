"""
Many faults at once: each operation of writers, bookkeeper and reaper may be refused, lost, done twice, late or again.

The seed decides the faults, and which program does what when. One fault at a time shows where the protocol could break;
this shows that its defences do not stand in each other's way.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.errors import BookkeeperError
from bookkeeper.tick.tick import Bookkeeper
from reaper import reap
from tests.chaos.crashes import on_stage
from tests.chaos.scenes.reaping import RULES
from tests.chaos.scenes.scene import lake_at
from tests.chaos.scenes.writing import Writing
from tests.chaos.storage import fault_of
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.support.faults import AFTER, BEFORE, ECHO, LATE, TWICE, Faults, FaultyCatalog, Rule
from tests.support.lake import Lake

STEPS = 40
CHANCES = {BEFORE: 0.03, AFTER: 0.03, TWICE: 0.03, LATE: 0.02, ECHO: 0.03}


class Storm(Writing):
    """Writers publish, a bookkeeper ticks, a reaper expires, all through the same faults."""

    name = "storm"
    source = tuple(f"s{number}" for number in range(40))

    def prepare(self, root: Path) -> Lake:
        super().prepare(root)
        return lake_at(root, reaper=RULES)

    def step(self, what: str, faults: Faults, book: Bookkeeper) -> None:
        """One thing that one of the programs does; whatever comes of it."""
        with suppress(BookkeeperError):
            if what == "tick":
                self.lake.tick(book)
            elif what == "plain":
                self._plain(faults)
            elif what == "source":
                next(self._source(faults), None)
            else:
                self.lake.clock.move(minutes=20)
                catalog = FaultyCatalog(open_catalog(self.lake.catalog_settings), faults)
                reap(catalog, self.lake.settings, self.lake.clock.now, open_store=self.lake.faulty(faults))


def faults_of(rng: Random) -> tuple[Faults, list[str]]:
    """
    Faults by chance, and the list in which each that was injected is noted.
    """
    faults, injected = Faults(), list[str]()

    def matches(when: str, chance: float) -> Callable[[int, str], bool]:
        def decide(number: int, operation: str) -> bool:
            if rng.random() >= chance:
                return False
            injected.append(f"{when} {operation}")
            return True

        return decide

    for when, chance in CHANCES.items():
        faults.rules.append(Rule(matches(when, chance), when, fault_of, delay=rng.choice((3, 10, 40, 1_000_000))))
    return faults, injected


def storm(scene: Storm, rng: Random, where: str) -> Tally:
    """
    One storm, the calm after it, and the account.
    """
    scene.restore()
    faults, injected = faults_of(rng)
    book = None
    for _ in range(STEPS):
        if book is None or rng.random() < 0.2:
            book = scene.lake.book(faults)
        scene.step(rng.choices(("tick", "plain", "source", "reap"), (5, 2, 3, 1))[0], faults, book)
    faults.clear()
    for _ in range(2):
        scene.again()
        scene.drain()
        faults.arrive()
    scene.drain()
    return replace(scene.outcome(where), points=len(injected))


def storms(seed: int, budget: Budget) -> Tally:
    """
    Storms until time is up, at least one.
    """
    until, done = time.monotonic() + budget.seconds, Tally()
    with on_stage(Storm) as scene:
        assert isinstance(scene, Storm)
        while not done.rounds or time.monotonic() < until:
            number = done.rounds
            done += storm(scene, Random(f"{seed} {number}"), f"storm {number}")
    return done


CLASSES = (FaultClass("storms: many faults at once", storms, weight=2),)
