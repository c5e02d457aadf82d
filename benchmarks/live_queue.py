"""
A live queue with and without compaction: live files, visibility, and what a scan of the table costs at the end.

    python -m benchmarks.live_queue [--big]

Real processes: five writers that close a file each second, `bookkeeper run` with inotify, `reaper run`; first with the
embedded compactor, then without it. "Committed" is when the catalog showed it to a reader that looks every 5 ms.
"""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.capacity import cpu_seconds
from benchmarks.daemon import memory_mb, running
from benchmarks.endurance import reaping
from benchmarks.harness import Chosen, alone, number, percentile, times
from benchmarks.independent import Independent
from benchmarks.lake import Lake, Watch, configured
from benchmarks.visibility import closes, drained, generating

SIDES = {"with compaction": {}, "without": {"engine": "off"}}
VALUE_BYTES = 40
SCANS = 3
REAPER = {"every": "10s", "older-than": "10s", "retain-last": 20}


@dataclass(frozen=True, slots=True)
class Size:
    """How many writers write for how long on each side."""

    writers: int
    seconds: int


SIZES = {"toy": Size(2, 3), "short": Size(5, 300), "big": Size(5, 1_800)}
COLUMNS = (
    "table",
    "closed -> committed, p50 / p99, ms",
    "live files, most",
    "at the end",
    "full scan, s",
    "reaper: CPU, s",
    "RSS, MiB",
    "rows",
)


@dataclass(frozen=True, slots=True)
class Run:
    """One side: ms of each txlog from close to commit, live files each second, seconds of a full scan, its rows."""

    waited: list[float]
    live: list[int]
    scan: float
    rows: int
    cpu: float
    memory: float


def live_files(lake: Lake) -> int:
    """
    The data files of `main`, as the snapshot's summary counts them.
    """
    data = Independent(lake.root / "cat.db", "events").metadata()
    heads = (item for item in data["snapshots"] if item["snapshot-id"] == data["current-snapshot-id"])
    return int(next(heads)["summary"]["total-data-files"]) if data.get("current-snapshot-id", -1) != -1 else 0


def measured(root: Path, size: Size, compaction: dict[str, Any]) -> Run:
    """
    One side, from the first file to the last scan.
    """
    lake = Lake.at(root)
    config = configured(root, {}, {"discover": "notify"})
    with config.open("a") as out:
        for section, values in {"reaper": REAPER, "tables.events.compaction": compaction}.items():
            out.write(f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    with running(config, root / "bookkeeper.log"), reaping(config) as reaper, Watch(root) as watch:
        # The first ticks load, compile and remember.
        warm, _ = written(lake, Size(1, min(3, size.seconds)), "warm")
        drained(lake)
        said, live = written(lake, size, "w")
        drained(lake)
        cpu, memory = cpu_seconds(reaper.pid), memory_mb(reaper.pid)[1]
        live.append(live_files(lake))
    table = lake.table()
    at = watch.times(table)
    scans = [_scanned(lake) for _ in range(SCANS)]
    waited = [at[item["name"]] - item["closed_ms"] for item in said]
    found = {rows for _, rows in scans}
    published = sum(item["rows"] for item in [*warm, *said])
    assert found == {published}, f"{found} rows, {published} published"
    return Run(waited, live, statistics.median(took for took, _ in scans), found.pop(), cpu, memory)


def _scanned(lake: Lake) -> tuple[float, int]:
    began = time.perf_counter()
    rows = lake.table().scan().to_arrow().num_rows
    return time.perf_counter() - began, rows


def written(lake: Lake, size: Size, name: str) -> tuple[list[dict[str, Any]], list[int]]:
    """
    Lets the writers write; what their close logs say of each txlog, and how many files were live each second.
    """
    names = [f"{name}{index}" for index in range(size.writers)]
    writers = [generating(lake, name, value_bytes=VALUE_BYTES, pause="1s", seconds=size.seconds) for name in names]
    live = []
    while any(writer.poll() is None for writer in writers):
        live.append(live_files(lake))
        time.sleep(1)
    assert [writer.returncode for writer in writers] == [0] * size.writers
    return closes(lake, names), live


def measure(chosen: Chosen) -> None:
    """
    One row per side, and their ratios.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = f"A live queue for {size.seconds} s: {size.writers} writers, a file of 300 rows each every second"
    report.table("live-queue", title, COLUMNS)
    with chosen.folder() as root:
        runs = {}
        for place, (name, compaction) in enumerate(SIDES.items()):
            run = runs[name] = measured(root / str(place), size, compaction)
            report.row(name, _shown(run), max(run.live), run.live[-1], run.scan, run.cpu, run.memory, run.rows)
    ours, without = runs.values()
    waits = times(percentile(ours.waited, 0.99), percentile(without.waited, 0.99))
    report.note(f"without / with: full scan {times(without.scan, ours.scan)}; with / without: p99 {waits}")


def _shown(run: Run) -> str:
    return " / ".join(number(percentile(run.waited, share)) for share in (0.5, 0.99))


if __name__ == "__main__":
    alone(measure, __doc__)
