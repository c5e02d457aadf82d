"""
Isolation: what a broken table does to the other 99 of its daemon.

    python -m benchmarks.isolation [--big]

One daemon, in turns with a hundred healthy tables and with one of them replaced by one that is broken (SIGHUP): what is
compared met the same machine. The broken ones: dropped in the catalog; its metadata is gone; a heap of files that are
no txlogs, and 100 more each second; a heap of good ones, and 500 more each second; 0.5 s for each request; no answer.
"""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from benchmarks.support.daemon import running
from benchmarks.support.fleet import NAMESPACE, Fleet, Member, drained, numbered, visible, written
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Watch
from bookkeeper.catalogs.open import open_catalog

HEALTHY = "all healthy"
WAYS = {
    "dropped": "dropped",
    "lost": "catalog fails",
    "poison": "poison txlogs",
    "backlog": "huge backlog",
    "slow": "slow storage",
    "frozen": "frozen storage",
}
COLUMNS = ("one table of the hundred", "p50, ms", "p99, ms", "p50, of healthy", "p99, of healthy", "txlogs")


@dataclass(frozen=True, slots=True)
class Size:
    """How many tables, txlogs per second in all, seconds of a turn, turns of each, how much poison, and which ways."""

    tables: int
    rate: int
    seconds: float
    rounds: int
    heap: int
    ways: tuple[str, ...] = tuple(WAYS)


SIZES = {
    "toy": Size(3, 20, 0.2, 1, 20, ("poison", "frozen")),
    "short": Size(100, 60, 3.5, 1, 2000),
    "big": Size(100, 60, 20, 3, 5000),
}
POLLING, NOTIFIED = ("polling every 1 s", {}), ("inotify", {"discover": "notify"})
MODES = {"toy": [POLLING], "short": [POLLING], "big": [POLLING, NOTIFIED]}


def _break(fleet: Fleet) -> None:
    """Those that are broken before they are looked at for the first time."""
    open_catalog(fleet.catalog).drop_table(f"{NAMESPACE}.dropped")
    with sqlite3.connect(fleet.root / "cat.db", timeout=30) as catalog:
        gone = f"UPDATE iceberg_tables SET metadata_location = 'file://{fleet.root}/gone' WHERE table_name = 'lost'"
        catalog.execute(gone)
    card = fleet.members["frozen"].pending.parent / "card.json"
    card.unlink()
    os.mkfifo(card)  # its reader waits for a writer


def _spoil(member: Member, count: int) -> None:
    """Files that are named like txlogs and are none: noise, and a txlog that was cut."""
    good = member.pending / str(member.publish(0))
    cut = good.read_bytes()[:-20]
    for _ in range(count):
        run = member.runs[0] = member.runs[0].at(member.runs[0].sequence + 1)
        member.put(str(run), os.urandom(1000) if run.sequence % 2 else cut)


@contextmanager
def _trouble(way: str, fleet: Fleet, heap: int) -> Iterator[None]:
    """What goes on while the table is broken."""
    member, acts = fleet.members.get(way), dict[str, Callable[[int], None]]()
    acts["poison"] = lambda count: _spoil(member, count)  # type: ignore[arg-type]
    acts["backlog"] = lambda count: [member.publish(0) for _ in range(count)] and None  # type: ignore[union-attr,func-returns-value]
    if way not in acts:
        yield
        return
    over, act = Event(), acts[way]
    act(heap)
    more = Thread(target=lambda: [act(10 if way == "poison" else 50) for _ in iter(lambda: over.wait(0.1), True)])
    more.start()
    yield
    over.set()
    more.join()


@dataclass
class Turns:
    """The daemon, and how late txlogs of healthy tables were, in each kind of turn."""

    fleet: Fleet
    size: Size
    process: "subprocess.Popen[bytes]"
    healthy: Sequence[str]

    def take(self, way: str) -> list[float]:
        """One turn; ms from published to visible."""
        names = self.healthy if way == HEALTHY else [*self.healthy[1:], way]
        with _trouble(way, self.fleet, self.size.heap):
            self.fleet.config(names, stop_patience="1s")
            self.process.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            return self._measured(self.healthy[1:])

    def _measured(self, names: Sequence[str]) -> list[float]:
        with Watch(self.fleet.root, 0.01) as watch:
            published = written(self.fleet, names, self.size.rate, self.size.seconds)
            for _ in drained(self.fleet, names):
                pass
        seen = visible(watch, names)
        if missing := len(published.keys() - seen.keys()):
            raise AssertionError(f"{missing} txlogs of healthy tables are not in")
        return [(seen[name] - at) * 1000 for name, at in published.items()]


def measured(fleet: Fleet, size: Size) -> dict[str, list[float]]:
    """
    Lateness in ms in each kind of turn; before each broken one comes a healthy one.
    """
    healthy = numbered(size.tables)
    late: dict[str, list[float]] = {HEALTHY: [], **{way: [] for way in size.ways}}
    with running(fleet.config(healthy, stop_patience="1s"), module="benchmarks.support.slow") as process:
        turns = Turns(fleet, size, process, healthy)
        written(fleet, healthy, size.tables, 1)
        for _ in drained(fleet, healthy):
            pass  # now it is up, and every table is open
        for _ in range(size.rounds):
            for way in size.ways:
                late[HEALTHY] += turns.take(HEALTHY)
                late[way] += turns.take(way)
    return late


def _fleet(root: Path, size: Size, table: dict[str, str]) -> Fleet:
    root.mkdir()
    fleet = Fleet.at(root, [*numbered(size.tables), *WAYS], 2)
    fleet.table = table
    _break(fleet)
    return fleet


def measure(chosen: Chosen) -> None:
    """
    One row per way to be broken, in each mode.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = f"Visibility of the other {size.tables - 1} tables, {size.rate} txlogs a second in all"
    report.table("isolation", title, COLUMNS)
    with chosen.folder() as root:
        for mode, table in MODES[chosen.size]:
            late = measured(_fleet(root / mode.split()[0], size, table), size)
            p50, p99 = (percentile(late[HEALTHY], share) for share in (0.5, 0.99))
            for way, ms in late.items():
                half, most = percentile(ms, 0.5), percentile(ms, 0.99)
                ratios = [f"{number(half / p50)} x", f"{number(most / p99)} x"]
                report.row(f"{WAYS.get(way, way)}, {mode}", half, most, *ratios, f"{len(ms):,}")


if __name__ == "__main__":
    alone(measure, __doc__)
