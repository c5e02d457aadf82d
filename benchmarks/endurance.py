"""
13. Endurance: memory of `bookkeeper run` over ten thousand commits, with a reaper at work as there always should be.

    python -m benchmarks.endurance [--big]
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.capacity import cpu_seconds
from benchmarks.daemon import commits, memory_mb, running
from benchmarks.fleet import Fleet, numbered, written
from benchmarks.harness import Chosen, alone

TABLES, WRITERS, ROWS = 10, 5, 10


@dataclass(frozen=True, slots=True)
class Size:
    """How many commits, and txlogs per second to make them of."""

    commits: int
    rate: int


SIZES = {"toy": Size(20, 50), "short": Size(2_000, 150), "big": Size(10_000, 150)}
COLUMNS = ("commits", "RSS, MiB", "peak, MiB", "CPU of a commit, ms")
REAPER = {"every": "5s", "older-than": "1s", "retain-last": 20, "metadata-keep": "10s"}


@contextmanager
def reaping(config: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """
    `reaper run` until the block ends.
    """
    with open(config.with_suffix(".reaper.log"), "wb") as out:
        words = [sys.executable, "-m", "reaper", "run", "--config", str(config)]
        process = subprocess.Popen(words, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def measure(chosen: Chosen) -> None:
    """
    One row for each tenth of the commits.
    """
    size, report = SIZES[chosen.size], chosen.report
    report.table("endurance", f"Memory over {size.commits:,} commits on {TABLES} tables, 20 snapshots kept", COLUMNS)
    with chosen.folder() as root:
        fleet = Fleet.at(root, numbered(TABLES), WRITERS)
        names, log = list(fleet.members), root / "daemon.log"
        config = fleet.config(names, reaper=REAPER, every="50ms")
        with running(config, log) as process, reaping(config):
            for row in range(1, ROWS + 1):
                began, used = len(commits(log)), cpu_seconds(process.pid)
                while len(commits(log)) < size.commits * row / ROWS:
                    assert process.poll() is None, log.read_text()[-2000:]
                    written(fleet, names, size.rate, 0.5)
                made = len(commits(log))
                cpu = (cpu_seconds(process.pid) - used) * 1000 / max(made - began, 1)
                report.row(f"{made:,}", *memory_mb(process.pid), cpu)


if __name__ == "__main__":
    alone(measure, __doc__)
