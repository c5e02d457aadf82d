"""
Expiry: one run of the reaper over many snapshots, by phase, with its requests and its memory.

    python -m benchmarks.expire [--peer SCRIPT]

Every append is followed by a retention delete of an older one's files, which are really there; only the newest
snapshot stays. The peer does the same on a table of its own of the same shape.
"""

import shutil
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import reaper.run
from benchmarks.harness import Chosen, Timing, alone, now, timed, times
from benchmarks.peers import HADOOP_CATALOG, JDBC_CATALOG, Peer
from benchmarks.synthetic import Queue, moment
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.retention.apply import apply_retention
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store

LIVE = 20
STORE = ("read", "read_many", "create", "replace", "size", "sizes", "list", "delete_many")
PHASES = {
    "make_plan": "plan",
    "_own_files": "find files",
    "expire": "commit",
    "verify_journal": "verify",
    "_delete_files": "delete",
    "old_metadata": "old metadata",
}


@dataclass(frozen=True, slots=True)
class Size:
    """Snapshots and data files of the table."""

    snapshots: int
    files: int


SIZES = {"toy": Size(60, 600), "short": Size(1_000, 100_000), "big": Size(1_000, 100_000)}


def churned(root: Path, size: Size) -> Queue:
    """
    A table whose every second snapshot drops the files of an append 20 appends ago.
    """
    queue = Queue.at(root, retention=Retention(keep=timedelta(0), brake=1.0)).with_data(1, 8)
    appends = (size.snapshots + LIVE) // 2
    per_commit = size.files // appends
    for turn in range(appends):
        queue.publish(1, per_commit, now())
        book = queue.book()
        book.tick(now())
        if turn >= LIVE:
            seen = book.ledger.load(queue.card.folder)
            cutoff = moment((turn - LIVE + 1) * per_commit)
            apply_retention(book.ledger, seen, queue.settings.retention, cutoff)
    return queue


class Phases:
    """How long each part of a run takes, and what it asks for."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def timing(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """`act`, timed as a part called `name`."""

        def timed_act(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return act(*given, **named)
            finally:
                self.spent[name] += (time.perf_counter() - started) * 1000

        return timed_act

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


def run(queue: Queue, phases: Phases) -> Any:
    """
    One run of the reaper that keeps the newest snapshot only.
    """
    settings = replace(queue.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))
    catalog = open_catalog(queue.catalog)
    kept = {name: getattr(reaper.run, name) for name in PHASES}
    try:
        for name, title in PHASES.items():
            setattr(reaper.run, name, phases.timing(title, kept[name]))
        at = now() + timedelta(seconds=1)
        return reaper.run.reap(catalog, settings, at, open_store=phases.store)
    finally:
        for name, act in kept.items():
            setattr(reaper.run, name, act)


def java(peer: Peer | None, root: Path, catalog: str, size: Size) -> Timing | None:
    """
    The peer's expiry of its own table of the same shape, three times.
    """
    if peer is None:
        return None
    per_commit = size.files // ((size.snapshots + LIVE) // 2)
    options = {"snapshots": size.snapshots, "files_per_commit": per_commit, "rounds": 3, "churn": ""}
    said = peer.run("expire", root, catalog, **options)
    return Timing(sorted(said["expire_ms"])[1])


def measure(chosen: Chosen) -> None:
    """
    The run's time, then its parts.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = f"Expiry of {size.snapshots:,} snapshots of a table that got {size.files:,} files; wall (CPU), ms"
    report.table("expire", title, ("", "ms", "snapshots", "data files", "of ours"))
    with chosen.folder() as root:
        queue, phases = churned(root, size), Phases()
        kept = root.with_name(root.name + "-copy")
        shutil.copytree(root, kept, copy_function=_link)
        done: list[Any] = []
        took = timed(lambda: done.append(run(queue, phases)))
        report.row("ours", took, done[0].snapshots, done[0].data_files, "")
        for name, spent in phases.spent.most_common():
            report.row(f"  {name}", Timing(spent), "", "", f"{spent / took.wall:.0%}")
        report.note("requests: " + ", ".join(f"{name} {count}" for name, count in phases.asked.most_common()))
        shutil.rmtree(root)
        kept.rename(root)
        tracemalloc.start()
        run(queue, Phases())
        report.note(f"memory at its peak (Python's own count): {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB")
        tracemalloc.stop()
    for title, catalog in (("Java HadoopTables", HADOOP_CATALOG), ("Java JdbcCatalog", JDBC_CATALOG)):
        with chosen.folder() as root:
            other = java(chosen.peer, root, catalog, size)
            report.row(title, other, "", "", times(other, took))


def _link(source: str, target: str) -> None:
    # Data files are links to a few; the catalog is written in place.
    if source.endswith(".parquet"):
        Path(target).hardlink_to(source)
    else:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    alone(measure, __doc__)
