"""
Memory of `bookkeeper run` with many live files: its process on its own, with retention at work.

    python -m benchmarks.memory [--big]

The table is made by another process. The first retention looks at every manifest; then txlogs of 5 files come.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.retention import MATCH, full_queue, settings_for
from benchmarks.support.daemon import await_marks, memory_mb, running
from benchmarks.support.harness import Chosen, alone, now
from benchmarks.support.synthetic import Queue

FILES = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How many live files, and how many commits."""

    live: tuple[int, ...]
    commits: int


SIZES = {"toy": Size((200,), 2), "short": Size((0, 100_000), 30), "big": Size((0, 100_000, 1_000_000), 40)}
COLUMNS = ("live files", "first commit, MiB", "steady, MiB", "peak, MiB", "CPU per commit, ms")


def measured(queue: Queue, commits: int) -> tuple[float, float, float, float]:
    """
    Resident memory after the first commit and at the end, its peak (MiB), and CPU per commit in ms.
    """
    _, keep = settings_for(MATCH if queue.files else 0)
    retention = {"keep": f"{int(keep.total_seconds())}s", "every": "60s", "brake": 1.0}
    config = queue.config({"every": "50ms"}, retention)
    with running(config) as process:
        queue.publish(1, FILES, now())
        await_marks(queue, queue.run.sequence, process)
        first, begun = memory_mb(process.pid)[0], _cpu_ms(process.pid)
        for _ in range(commits):
            queue.publish(1, FILES, now())
            await_marks(queue, queue.run.sequence, process)
        steady, peak = memory_mb(process.pid)
        return first, steady, peak, (_cpu_ms(process.pid) - begun) / commits


def _cpu_ms(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 10.0


def measure(chosen: Chosen) -> None:
    """
    One row per number of live files.
    """
    size, report = SIZES[chosen.size], chosen.report
    report.table("memory", "Resident memory of `bookkeeper run`, retention at work", COLUMNS)
    for live in size.live:
        with chosen.folder() as root:
            report.row(f"{live:,}", *measured(full_queue(root, live), size.commits))


if __name__ == "__main__":
    alone(measure, __doc__)
