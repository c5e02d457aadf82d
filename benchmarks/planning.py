"""
9. Planning of Spark's micro-batches, with the history of up to 24 h at one commit every 5 s, at its head and behind.

    python -m benchmarks.planning [--big]

The head: a stream follows while the bookkeeper commits. Behind: a stream starts as many commits ago, 500 files a
batch, until it has caught up. The last hours of history are real commits, merged on the way; what lies before them
are snapshots in the metadata only (with --big, the whole day is real). Nothing is expired.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import Chosen, alone, now, number, percentile
from benchmarks.history import lengthen
from benchmarks.synthetic import Queue

PER_HOUR, MAX_FILES = 720, 500


@dataclass(frozen=True, slots=True)
class Size:
    """Lengths of history in commits, how many of them are real, micro-batches to see at the head; whether to run."""

    history: tuple[int, ...]
    real: int
    batches: int
    spark: bool = True


SIZES = {
    "toy": Size((5,), 5, 2, False),
    "short": Size((PER_HOUR, 12 * PER_HOUR, 24 * PER_HOUR), 2 * PER_HOUR, 25),
    "big": Size((PER_HOUR, 12 * PER_HOUR, 24 * PER_HOUR), 24 * PER_HOUR, 60),
}
STAGES = ("latestOffset", "queryPlanning", "triggerExecution")
COLUMNS = ("stream", "history", "planning p50", "planning max", "p50 latestOffset", "whole batch p50", "batches", "s")


@contextmanager
def stream(queue: Queue, since: datetime, name: str, trigger: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """
    The read_stream job from a commit time on; gives what it has reported so far.
    """
    progress, log = queue.root / f"{name}.jsonl", queue.root / f"{name}.log"
    given = {
        "config": queue.config({}),
        "checkpoint": queue.root / f"checkpoint-{name}",
        "from": since.isoformat(),
        "max-files": MAX_FILES,
        "trigger": trigger,
        "sink": "noop",
        "progress": progress,
    }
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "spark_jobs.read_stream", *words], stdout=out, stderr=out)
        try:
            yield lambda: _read(progress, process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def _read(progress: Path, process: "subprocess.Popen[bytes]", log: Path) -> list[dict[str, Any]]:
    assert process.poll() in (None, 0), log.read_text()[-3000:]
    lines = progress.read_text().splitlines() if progress.exists() else []
    return [batch for batch in map(json.loads, lines) if batch["rows"]]


def at_the_head(queue: Queue, name: str, batches: int) -> list[dict[str, Any]]:
    """
    What the stream reports while a commit comes every 0.7 s; the first three batches are to warm up.
    """
    book = queue.book()
    with stream(queue, now(), name, "200ms") as reported:
        deadline = time.monotonic() + 300
        while len(seen := reported()) < batches + 3 and time.monotonic() < deadline:
            queue.publish(1, 1, now())
            book.tick(now())
            time.sleep(0.7)
    return seen[3:]


def catching_up(queue: Queue, name: str, behind: int) -> tuple[list[dict[str, Any]], float]:
    """
    What a stream reports that starts so many snapshots ago, and how long its batches took until it had them all.
    """
    table = queue.book().ledger.load(queue.card.folder).metadata
    appends = [item for item in table.snapshots if item.summary and item.summary.operation.value == "append"]
    start, head = appends[-behind], appends[-1]
    with stream(queue, datetime.fromtimestamp(start.timestamp_ms / 1000, UTC), name, "100ms") as reported:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            seen = reported()
            if sum(batch["rows"] for batch in seen) >= behind:
                break
            time.sleep(0.3)
    assert head.snapshot_id == table.current_snapshot_id or seen, "the stream saw nothing"
    return seen, sum(batch["durations_ms"]["triggerExecution"] for batch in seen) / 1000


def built(root: Path, commits: int) -> Queue:
    """
    A queue whose table has so many real commits of one data file each.
    """
    queue = Queue.at(root).with_data(1, 16)
    book = queue.book()
    for _ in range(commits):
        queue.publish(1, 1, now())
        book.tick(now())
    return queue


def measure(chosen: Chosen) -> None:
    """
    The head at three lengths of history, and behind by each power of what is real.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = f"Planning of micro-batches, ms; 1 commit of 1 file every 5 s, the last {size.real:,} real"
    report.table("planning", title, COLUMNS, "planning = latestOffset + queryPlanning of Spark's progress")
    with chosen.folder() as root:
        queue = built(root, min(size.real, size.history[0]))
        if not size.spark:
            report.row("not in a toy", f"{size.real:,}", *[None] * (len(COLUMNS) - 2))
            return
        for length in size.history:
            _grow(queue, length, size.real)
            _show(report, "at the head", length, at_the_head(queue, f"head-{length}", size.batches))
        for behind in sorted({min(most, size.real) for most in (120, PER_HOUR, size.real)}):
            seen, seconds = catching_up(queue, f"behind-{behind}", behind)
            _show(report, f"{behind:,} commits behind", size.history[-1], seen, seconds)


def _grow(queue: Queue, length: int, real: int) -> None:
    book = queue.book()
    there = len(book.ledger.load(queue.card.folder).metadata.snapshots)
    for _ in range(max(0, min(length, real) - queue.files)):
        queue.publish(1, 1, now())
        book.tick(now())
    if length > max(real, there):
        lengthen(queue, length)


def _show(report: Any, what: str, length: int, seen: list[dict[str, Any]], seconds: float | None = None) -> None:
    took = [batch["durations_ms"] for batch in seen]
    planning = [float(item.get("latestOffset", 0) + item.get("queryPlanning", 0)) for item in took]
    offsets, whole = ([float(item.get(stage, 0)) for item in took] for stage in ("latestOffset", "triggerExecution"))
    shown = [percentile(planning, 0.5), max(planning), percentile(offsets, 0.5), percentile(whole, 0.5)]
    report.row(what, f"{length:,}", *shown, len(seen), number(seconds) if seconds is not None else "-")


if __name__ == "__main__":
    alone(measure, __doc__)
