"""
A consumer in Python: many commits behind, and the time from a commit to its batch.

    python -m benchmarks.consumers [--big]

Behind: all rows of so many commits of one file of one row, into Arrow, with the place in SQLite; beside it the same
with pyiceberg alone, snapshot by snapshot. To the batch: a bookkeeper commits again and again, and a consumer in a
process of its own waits; from the moment that the catalog names the commit to the batch in the consumer's hands.
"""

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import FileScanTask

from benchmarks.support.harness import Chosen, Timing, alone, in_turns, now, number, percentile, timed
from benchmarks.support.synthetic import Queue
from bookkeeper.catalogs.open import load_table, open_catalog
from bookkeeper.config.load import load
from bookkeeper.streams import Consumer, SqlitePlace

#: commits behind, rounds, and commits that are waited for
SIZES = {"toy": (20, 1, 5), "short": (1_440, 3, 100), "big": (17_280, 1, 1_000)}
PAUSE_SECONDS = 0.35


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


def by_consumer(config: Path, name: str) -> int:
    """The rows that a new consumer reads, each batch committed."""
    rows, connection = 0, sqlite3.connect(":memory:")
    with Consumer.open(config, name=name, place=SqlitePlace(connection)) as consumer:
        for batch in consumer.batches(follow=False):
            with connection:
                consumer.commit(batch)
            rows += batch.table.num_rows
    connection.close()
    return rows


def by_pyiceberg(config: Path) -> int:
    """The same rows with pyiceberg: the manifests that each append added, and its scan of their files."""
    settings = load(str(config), {})
    table = load_table(open_catalog(settings.catalog), settings.tables["t"].identifier)
    scan, found = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()), list[pa.Table]()
    for snapshot in table.metadata.snapshots:
        if snapshot.summary and snapshot.summary.operation.value == "append":
            own = [item for item in snapshot.manifests(table.io) if item.added_snapshot_id == snapshot.snapshot_id]
            entries = [entry for item in own for entry in item.fetch_manifest_entry(table.io)]
            added = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED]
            found.append(scan.to_table([FileScanTask(file) for file in added]))
    return sum(item.num_rows for item in found)


def behind(chosen: Chosen, queue: Queue, commits: int, rounds: int) -> None:
    """One row for each way to read them."""
    config, names = queue.config({}), iter(f"c{number}" for number in range(10**6))

    def checked(rows: int) -> None:
        assert rows == commits, rows

    sides = {
        "Consumer": lambda: timed(lambda: checked(by_consumer(config, next(names)))),
        "pyiceberg alone": lambda: timed(lambda: checked(by_pyiceberg(config))),
    }
    took: dict[str, Timing] = in_turns(sides, rounds)
    chosen.report.table("consumers", f"{commits:,} commits behind: all rows read", ("reader", "s (CPU)", "ms a commit"))
    for name, timing in took.items():
        cpu = number((timing.cpu or 0) / 1000)
        chosen.report.row(name, f"{number(timing.wall / 1000)} ({cpu})", timing.wall / commits)


def waiting(config: str) -> None:
    """A process that waits for batches and prints the time of each."""
    with Consumer.open(config, name="waiting", start="end") as consumer:
        print("ready", flush=True)
        for batch in consumer.batches():
            print(json.dumps([time.time(), batch.table.num_rows]), flush=True)
            consumer.commit(batch)


def to_the_batch(chosen: Chosen, queue: Queue, commits: int) -> None:
    """Percentiles of the time from a commit to its batch."""
    book, config = queue.book(), str(queue.config({}))
    command = [sys.executable, "-m", "benchmarks.consumers", "--waiting", config]
    taken: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for count in range(commits):
            queue.publish(1, 1, now())
            book.tick(now())
            committed = time.time()
            seen, rows = json.loads(process.stdout.readline())
            assert rows == 1
            taken.append(max(0.0, seen - committed) * 1000)
            # Not in step with the consumer's own pause.
            time.sleep(PAUSE_SECONDS + count % 7 * 0.03)
        process.terminate()
    columns = ("commits", "p50", "p90", "p99", "max")
    chosen.report.table("consumer-latency", "From the end of the commit to the batch, ms", columns)
    chosen.report.row(str(commits), *[percentile(taken, share) for share in (0.5, 0.9, 0.99)], max(taken))


def measure(chosen: Chosen) -> None:
    """Both, on one table."""
    commits, rounds, waited = SIZES[chosen.size]
    with chosen.folder() as root:
        queue = built(root, commits)
        behind(chosen, queue, commits, rounds)
        to_the_batch(chosen, queue, waited)


def _main(words: list[str]) -> Any:
    return waiting(words[1]) if words[:1] == ["--waiting"] else alone(measure, __doc__)


if __name__ == "__main__":
    _main(sys.argv[1:])
