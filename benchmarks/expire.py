"""
Expiry: one run of the reaper over many snapshots, by phase, with its requests and its memory.

    python -m benchmarks.expire [--peer SCRIPT] [--big]

Every append is followed by a retention delete of an older one's files, which are really there, empty, as the peer's
are; only the newest snapshot stays. The peer does the same on tables of its own of the same shape, in turns with ours:
its figure is the better of two rounds in one JVM, ours the median of three tables.
"""

import json
import os
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from statistics import median as middle
from typing import Any

import reaper.run
from benchmarks.support.harness import HADOOP, JDBC, Chosen, Timing, alone, median, now, number, timed, times
from benchmarks.support.peers import HADOOP_CATALOG, JDBC_CATALOG, Peer
from benchmarks.support.synthetic import Queue, file_name, moment
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.console import garbage
from bookkeeper.retention.apply import apply_retention
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from reaper import orphans
from reaper.expiry import journal
from reaper.files.storage import Storage

LIVE, ROUNDS = 20, 2
STORE = ("read", "read_many", "create", "replace", "size", "sizes", "list", "delete_many")
#: each without those that it calls
PHASES: tuple[tuple[Any, str, str], ...] = (
    (reaper.run.ReaperContext, "of", "open"),
    (reaper.run, "_begin", "begin"),
    (reaper.run, "_plan_now", "plan"),
    (reaper.run, "make_plan", "plan"),
    (reaper.run, "_own_files", "find files"),
    (journal, "write", "journal"),
    (journal, "drop", "journal"),
    (reaper.run, "expire", "commit"),
    (reaper.run, "verify_journal", "verify"),
    (Storage, "delete", "delete"),
    (reaper.run, "old_metadata", "old metadata"),
    (os, "fsync", "fsync"),
)
TITLES = tuple(dict.fromkeys(title for _, _, title in PHASES))


@dataclass(frozen=True, slots=True)
class Size:
    """Snapshots and data files of the table."""

    snapshots: int
    files: int

    @property
    def per_commit(self) -> int:
        """Data files of an append."""
        return self.files // ((self.snapshots + LIVE) // 2)

    def __str__(self) -> str:
        return f"{self.snapshots:,} snapshots, {self.files:,} files"


SIZES = {
    "toy": (Size(60, 600),),
    "short": (Size(100, 10_000),),
    "big": (Size(100, 10_000), Size(1_000, 100_000)),
}


@dataclass
class Run:
    """What a run took and did: ms by phase, requests by kind."""

    took: Timing
    done: Any
    phases: "Phases"


def churned(root: Path, size: Size, data: bool = True) -> Queue:
    """
    A table whose every second snapshot drops the files of an append 20 appends ago; there are files if it has `data`.
    """
    queue = Queue.at(root, retention=Retention(keep=timedelta(0), brake=1.0))
    folder = Path(queue.card.data_path.removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    book = queue.book()
    for turn in range((size.snapshots + LIVE) // 2):
        for file in range(queue.files, queue.files + size.per_commit * data):
            (folder / file_name(queue.run.at(queue.run.sequence + 1), file)).touch()
        queue.publish(1, size.per_commit, now())
        book.tick(now())
        if turn >= LIVE:
            seen = book.ledger.load(queue.card.folder)
            cutoff = moment((turn - LIVE + 1) * size.per_commit)
            apply_retention(book.ledger, seen, queue.settings.retention, cutoff)
            book.loaded.forget()  # another made that commit
    # The hourly sweep was just now: the peer has none.
    swept = {"version": 1, "table-uuid": queue.card.table_uuid, "at": now().isoformat(), "seen": {}}
    queue.folder.store.replace(orphans.KEY, json.dumps(swept).encode())
    os.sync()
    return queue


@dataclass
class Phases:
    """How long each part of a run takes, and what it asks for."""

    spent: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    clock: Callable[[], float] = time.perf_counter
    _within: list[float] = field(default_factory=lambda: [0.0])

    def timing(self, title: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """`act`, timed as a part called `title`, without the parts within it."""

        def timed_act(*given: Any, **named: Any) -> Any:
            started = self.clock()
            self._within.append(0.0)
            try:
                return act(*given, **named)
            finally:
                took = (self.clock() - started) * 1000
                self.spent[title] += took - self._within.pop()
                self._within[-1] += took

        return timed_act

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Times the parts of a run meanwhile."""
        kept = [(owner, name, getattr(owner, name)) for owner, name, _ in PHASES]
        try:
            for (owner, name, act), (_, _, title) in zip(kept, PHASES, strict=True):
                setattr(owner, name, self.timing(title, act))
            yield
        finally:
            for owner, name, act in kept:
                setattr(owner, name, act)

    def store(self, url: str) -> Store:
        """A store that is counted."""
        return _Counted(open_store(url), self.asked)  # type: ignore[return-value]


class _Counted:
    def __init__(self, inner: Store, asked: Counter[str]) -> None:
        self._inner, self._asked = inner, asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in STORE:
            self._asked[name] += 1
        return found


def run(queue: Queue) -> Run:
    """
    One run of the reaper that keeps the newest snapshot only.
    """
    settings = replace(queue.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))
    catalog, phases, done = open_catalog(queue.catalog), Phases(), list[Any]()
    garbage.freeze()  # what made the table is no part of the reaper's process
    at = now() + timedelta(seconds=1)
    with phases.watched():
        took = timed(lambda: done.append(reaper.run.reap(catalog, settings, at, open_store=phases.store)))
    return Run(took, done[0], phases)


def ours(chosen: Chosen, size: Size) -> Run:
    """
    A run over a table of its own.
    """
    with chosen.folder() as root:
        done = run(churned(root, size))
        print(f"  {size}: ours {done.took}", flush=True)
        return done


def java(peer: Peer | None, chosen: Chosen, catalog: str, size: Size) -> Timing | None:
    """
    The peer's expiry of its own table of the same shape: the better of two.
    """
    if peer is None:
        return None
    options = {"snapshots": size.snapshots, "files_per_commit": size.per_commit, "rounds": ROUNDS, "churn": ""}
    with chosen.folder() as root:
        took = peer.run("expire", root, catalog, **options)["expire_ms"]
        print(f"  {size}: {catalog} {took}", flush=True)
        return Timing(min(took))


def memory(chosen: Chosen, size: Size) -> float:
    """
    MiB at the peak of a run, by Python's own count.
    """
    with chosen.folder() as root:
        queue = churned(root, size, data=False)
        tracemalloc.start()
        run(queue)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        return peak


def measured(chosen: Chosen, size: Size) -> dict[str, str]:
    """
    The cells of one size, by row.
    """
    runs, others = [ours(chosen, size)], dict[str, Timing | None]()
    for title, catalog in ((HADOOP, HADOOP_CATALOG), (JDBC, JDBC_CATALOG)):
        others[title] = java(chosen.peer, chosen, catalog, size)
        runs.append(ours(chosen, size))
    took, last = median(run.took for run in runs), runs[-1]
    rows = {"snapshots that went": f"{last.done.snapshots:,}", "data files that went": f"{last.done.data_files:,}"}
    rows["ours, the whole run"] = str(took)
    for title in TITLES:
        spent = middle(run.phases.spent[title] for run in runs)
        rows[f"of it {title}"] = f"{number(spent)} ({spent / took.wall:.0%})"
    rows |= {title: "not run" if other is None else str(other) for title, other in others.items()}
    rows |= {f"{title} / ours": times(other, took) for title, other in others.items()}
    rows["operations on stores"] = ", ".join(f"{name} {count}" for name, count in last.phases.asked.most_common())
    rows["memory at its peak, MiB"] = number(memory(chosen, size))
    return rows


def measure(chosen: Chosen) -> None:
    """
    A column for each size.
    """
    sizes, report = SIZES[chosen.size], chosen.report
    columns = [measured(chosen, size) for size in sizes]
    title = "Expiry of all snapshots but the newest, and of the files of all appends but 20; wall (CPU), ms"
    report.table("expire", title, ("", *map(str, sizes)), "phases are those of a run, without those within them")
    for row in columns[0]:
        report.row(row, *(column[row] for column in columns))


if __name__ == "__main__":
    alone(measure, __doc__)
