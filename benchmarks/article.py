"""
10. The article's own experiment: 5 writers, 20 MiB files, retention of 1 h and of 24 h; its table of times and ours.

    python -m benchmarks.article [--big]

Accelerated: a round stands for 10 s in which each writer publishes 5 files; the rounds before the last ones come in
large txlogs. Data files are links to one Parquet file of 20 MiB, so that nothing is saved on looking at them, on
deleting them or on Spark's planning. The article ran on an object store, its figures are its own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.harness import Chosen, alone, now, number, percentile, timed
from benchmarks.planning import stream
from benchmarks.synthetic import Queue, moment
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper
from bookkeeper.tick.tick import Bookkeeper
from reaper.run import reap

WRITERS, EACH, ROUND_SECONDS, FILES_IN_HISTORY = 5, 5, 10, 1000
PER_ROUND = WRITERS * EACH
RETAIN = 100


@dataclass(frozen=True, slots=True)
class Size:
    """Hours of retention, measured rounds for each, micro-batches of Spark; rows and bytes of the data file."""

    hours: tuple[float, ...]
    rounds: int
    batches: int
    file: tuple[int, int] = (12_300, 1_700)


SIZES = {
    "toy": Size((0.05,), 12, 0, (10, 10)),
    "short": Size((1, 24), 120, 12),
    "big": Size((1, 24), 500, 30),
}
ARTICLE = {
    "list": "8,000",
    "read + commit": "2,000",
    "delete txlogs": "< 2,000",
    "retention": "-",
    "reaper": "10,000-70,000",
    "Spark planning": "< 500",
}


class Stage:
    """Takes the time that one method of an object spends."""

    def __init__(self, owner: Any, method: str) -> None:
        self._act: Callable[..., Any] = getattr(owner, method)
        self.spent = 0.0
        setattr(owner, method, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return self._act(*given, **named)
        finally:
            self.spent += (time.perf_counter() - started) * 1000

    def take(self) -> float:
        """What was spent since the last look."""
        spent, self.spent = self.spent, 0.0
        return spent


class Experiment:
    """One table with its retention; a round is a commit, every sixth looks for old files, every twelfth reaps."""

    def __init__(self, root: Path, hours: float, size: Size) -> None:
        own = {"check_files": True, "reaper": Reaper(older_than=timedelta(0), retain_last=RETAIN)}
        self.queue = Queue.at(root, **own).with_data(*size.file)
        self.live = int(hours * 3600 / ROUND_SECONDS) * PER_ROUND
        self.book: Bookkeeper = self.queue.book()
        self.taken: dict[str, list[float]] = {name: [] for name in ARTICLE}

    def fill(self) -> None:
        """The history, up to the point where files begin to go."""
        while self.queue.files < self.live:
            self.queue.publish(1, min(FILES_IN_HISTORY, self.live - self.queue.files), now())
            assert self.book.tick(now()).commit is not None
        self.stages = {
            "list": Stage(self.book.pending_index, "found"),
            "delete txlogs": Stage(self.book.folder, "delete"),
        }
        self.stages["retention"] = Stage(self.book.duties, "run")

    def round(self, turn: int) -> None:
        """One commit, what belongs to it, and its times."""
        self.queue.publish(PER_ROUND, 1, now())
        self._retain(turn % 6 == 0)
        for stage in self.stages.values():
            stage.take()
        whole = timed(lambda: self.book.tick(now())).wall
        spent = {name: stage.take() for name, stage in self.stages.items()}
        for name in ("list", "delete txlogs"):
            self.taken[name].append(spent[name])
        if turn % 6 == 0:
            self.taken["retention"].append(spent["retention"])
        self.taken["read + commit"].append(whole - sum(spent.values()))
        if turn % 12 == 11:
            self.taken["reaper"].append(timed(self._reap).wall)

    def _retain(self, due: bool) -> None:
        at = now()
        keep = at - moment(self.queue.files) + timedelta(seconds=self.live)
        retention = replace(self.queue.settings.retention, keep=keep, every=timedelta(hours=1), brake=1.0)
        self.book.duties.retention.settings = replace(self.queue.settings, retention=retention)
        self.book.duties.retention.due.last = at - timedelta(days=1) if due else at

    def _reap(self) -> None:
        catalog = open_catalog(self.queue.catalog)
        reap(catalog, self.queue.settings, now(), release_brake=True)

    def plan(self, batches: int) -> None:
        """A Spark stream at the head: a round for each of its batches, which read 500 MB and may take longer."""
        with stream(self.queue, now(), "head", "200ms") as reported:
            deadline, turn = time.monotonic() + 300, 1
            while len(seen := reported()) < batches + 3 and time.monotonic() < deadline:
                self.queue.publish(PER_ROUND, 1, now())
                self._retain(turn % 6 == 0)
                self.book.tick(now())
                turn += 1
                while len(reported()) == len(seen) and time.monotonic() < deadline:
                    time.sleep(0.1)
        took = [batch["durations_ms"] for batch in seen[3:]]
        self.taken["Spark planning"] = [float(one.get("latestOffset", 0) + one.get("queryPlanning", 0)) for one in took]


def measure(chosen: Chosen) -> None:
    """
    One row per stage, one column per retention.
    """
    size, report = SIZES[chosen.size], chosen.report
    columns: list[dict[str, str | None]] = []
    lives = []
    for hours in size.hours:
        with chosen.folder() as root:
            experiment = Experiment(root, hours, size)
            experiment.fill()
            for turn in range(size.rounds):
                experiment.round(turn)
            if size.batches:
                experiment.plan(size.batches)
            columns.append({name: _shown(taken) for name, taken in experiment.taken.items()})
            lives.append(experiment.live)
    title = f"The article's experiment, {WRITERS} writers, {PER_ROUND} files of 20 MiB a commit; p50 / p99, ms"
    heads = [f"ours, {hours:g} h ({live:,} files)" for hours, live in zip(size.hours, lives, strict=True)]
    report.table("article", title, ("stage", *heads, "the article"))
    for name, theirs in ARTICLE.items():
        report.row(name, *(column[name] for column in columns), theirs)


def _shown(taken: list[float]) -> str | None:
    return " / ".join(number(percentile(taken, share)) for share in (0.5, 0.99)) if taken else None


if __name__ == "__main__":
    alone(measure, __doc__)
