"""
Worlds by the seeds from one on, played by one process or by many, and what all of them come to.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context

from tests.simulation.coverage import report
from tests.simulation.events import events
from tests.simulation.play import Played, play

#: parts of the result that have a sum of their own: their names begin so
GROUPS = {"faults": "fault ", "errors that actors met": "error ", "recoveries and refusals in the log": "log "}


@dataclass
class Total:
    """What all worlds so far come to."""

    began: float = field(default_factory=time.monotonic)
    worlds: int = 0
    ticks: int = 0
    #: seconds of a core
    used: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, played: Played, used: float) -> None:
        self.worlds, self.ticks, self.used = self.worlds + 1, self.ticks + played.ticks, self.used + used
        self.counts += played.counts

    @property
    def passed(self) -> float:
        return time.monotonic() - self.began

    def speed(self) -> str:
        return f"{self.ticks / self.used:.0f} ticks and {self.counts['commits'] / self.used:.0f} commits"

    def told(self, first: int) -> str:
        """The result of worlds of which none broke a promise."""
        counts = self.counts
        lines = [
            f"{self.worlds} worlds (seeds {first} to {first + self.worlds - 1}), {self.ticks} ticks, of which "
            f"{counts['ticks that committed']} committed, in {self.passed:.0f} s",
            f"{self.speed()} per second of a core",
            f"{counts['commits']} commits, {counts['rows']} rows in the tables at the end: "
            "missing 0, double 0, needed files gone 0",
        ]
        for what, prefix in GROUPS.items():
            found = {name: number for name, number in counts.items() if name.startswith(prefix) and number}
            lines.append(f"{sum(found.values())} {what}, of {len(found)} kinds")
        return "\n".join([*lines, report(counts)])


def world(seed: int, steps: int) -> tuple[Played, float]:
    """One world, and the seconds of a core that it took; the story of one that went well is not needed."""
    began = time.process_time()
    played = play(seed, list(events(seed, steps, quiet=True)))
    if not played.wrong:
        played.story = []
    return played, time.process_time() - began


def worlds(first: int, steps: int, cores: int) -> Iterator[tuple[int, Played, float]]:
    """The worlds from this seed on, in the order of their seeds, whatever plays them; without end."""
    if cores == 1:
        for seed in count(first):
            yield seed, *world(seed, steps)
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        under_way = deque[tuple[int, Future[tuple[Played, float]]]]()
        try:
            for seed in count(first):
                under_way.append((seed, pool.submit(world, seed, steps)))
                if len(under_way) > 2 * cores:
                    number, done = under_way.popleft()
                    yield number, *done.result()
        finally:
            pool.shutdown(cancel_futures=True)
