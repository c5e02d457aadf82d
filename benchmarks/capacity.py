"""
Capacity: a thousand writers on a hundred tables through one daemon, at a rising rate until it bends.

    python -m benchmarks.capacity [--big]

The daemon is a process of its own with the settings it comes with; the writers are simulated (fleet.py).
"""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.daemon import commits, cpu_seconds, memory_mb, running
from benchmarks.support.fleet import Fleet, drained, numbered, visible, written
from benchmarks.support.harness import Chosen, alone, percentile
from benchmarks.support.lake import Watch


@dataclass(frozen=True, slots=True)
class Size:
    """How many tables, writers of each, txlogs per second, and for how long each rate."""

    tables: int
    writers: int
    rates: tuple[int, ...]
    seconds: float


SIZES = {
    "toy": Size(3, 2, (20,), 1),
    "short": Size(100, 10, (25, 50, 100, 200, 400), 8),
    "big": Size(100, 10, (25, 50, 100, 200, 400, 800), 60),
}
COLUMNS = (
    "txlogs/s",
    "each writer every, s",
    "commits/s",
    "visible p50, ms",
    "p99, ms",
    "CPU, cores",
    "RSS, MiB",
    "left",
)


def measured(fleet: Fleet, log: Path, pid: int, rate: int, seconds: float) -> list[object]:
    """
    One row: what the daemon did of so many txlogs a second.
    """
    names = list(fleet.members)
    with Watch(fleet.root, 0.01) as watch:
        began, used, before = time.monotonic(), cpu_seconds(pid), len(commits(log))
        published = written(fleet, names, rate, seconds)
        took, left = time.monotonic() - began, fleet.pending(names)
        cpu, made = (cpu_seconds(pid) - used) / took, (len(commits(log)) - before) / took
        for _ in drained(fleet, names):
            pass
    seen = visible(watch, names)
    late = [(seen[name] - at) * 1000 for name, at in published.items() if name in seen]
    every = len(names) * len(fleet.members[names[0]].runs) / rate
    return [rate, f"{every:g} s", made, percentile(late, 0.5), percentile(late, 0.99), cpu, memory_mb(pid)[0], left]


def measure(chosen: Chosen) -> None:
    """
    One row per rate, with one daemon for all of them.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = (
        f"{size.tables * size.writers:,} writers on {size.tables} tables through one daemon, {size.seconds:g} s each"
    )
    report.table("capacity", title, COLUMNS)
    with chosen.folder() as root:
        fleet = Fleet.at(root, numbered(size.tables), size.writers)
        log = root / "daemon.log"
        with running(fleet.config(list(fleet.members)), log) as process:
            written(fleet, list(fleet.members), size.tables, 2)
            for _ in drained(fleet, list(fleet.members)):
                pass
            for rate in size.rates:
                row = measured(fleet, log, process.pid, rate, size.seconds)
                report.row(f"{row[0]:,}", *row[1:-1], f"{row[-1]:,}")


if __name__ == "__main__":
    alone(measure, __doc__)
