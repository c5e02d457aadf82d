"""
A consumer in Python: many commits behind, and the time from a commit to its batch.

    python -m benchmarks.consumers [--big]

Behind: all rows of so many commits of one file of one row, into Arrow, with the place in SQLite; beside it the same
with pyiceberg alone, snapshot by snapshot. To the batch: a bookkeeper commits again and again, and a consumer in a
process of its own waits; from the moment that the catalog names the commit to the batch in the consumer's hands.
Memory: a process of its own reads rows of 300 random bytes in few large files and in many, from this disk and from an
S3 server behind 30 ms; its peak above what it had once it was open.
"""

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import FileScanTask

from benchmarks.support.daemon import memory_mb
from benchmarks.support.harness import Chosen, Timing, alone, in_turns, now, number, percentile, timed
from benchmarks.support.lake import Lake, configured
from benchmarks.support.places import PLACES, Place
from benchmarks.support.synthetic import Queue
from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.load import load
from bookkeeper.consumers import Consumer, SqlitePlace
from bookkeeper.stores.open import stores_with
from tests.servers.process import Unavailable
from writers import Writer


@dataclass(frozen=True, slots=True)
class Size:
    """Commits behind, rounds, commits that are waited for; rows, and in how many files, of which memory is measured."""

    behind: int
    rounds: int
    waited: int
    rows: int
    files: tuple[int, ...]
    places: tuple[str, ...] = ("local", "s3")


SIZES = {
    "toy": Size(20, 1, 5, 1_000, (2,), ("local",)),
    "short": Size(1_440, 3, 100, 1_000_000, (1, 50, 400)),
    "big": Size(17_280, 1, 1_000, 3_000_000, (1, 150, 1_200)),
}
PAUSE_SECONDS, VALUE_BYTES, LATENCY_MS = 0.35, 292, 30


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


def filled(root: Path, place: Place, rows: int, files: int) -> Path:
    """The configuration of a table with so many rows, committed; the writer splits what is larger than a data file."""
    warehouse = {"warehouse": place.fresh()}
    lake, dice = Lake.at(root, {**place.near, **warehouse}), random.Random(files)
    each = rows // files
    with Writer.open(lake.folder.store.url, "w", stores=stores_with(place.near)) as writer:
        for number in range(files):
            values = pa.array([dice.randbytes(VALUE_BYTES) for _ in range(each)], pa.binary())
            keys = pa.array([f"{number}-{index}" for index in range(each)])
            moments = pa.array([now()] * each, pa.timestamp("us", "UTC"))
            writer.write(pa.table({"timestamp": moments, "key": keys, "value": values}))
            writer.publish()
    once = [sys.executable, "-m", "bookkeeper", "once", "--config", str(lake.path)]
    subprocess.run(once, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return configured(root, {}, {}, {**place.far, **warehouse})


def reading(config: str) -> None:
    """A process that reads everything and prints rows, peak and what it had before, MiB, and seconds."""
    connection, rows = sqlite3.connect(":memory:"), 0
    with Consumer.open(config, name=f"memory-{os.getpid()}", place=SqlitePlace(connection)) as consumer:
        _, before = memory_mb(os.getpid())
        begun = time.perf_counter()
        for batch in consumer.batches(follow=False):
            with connection:
                consumer.commit(batch)
            rows += batch.table.num_rows
        took = time.perf_counter() - begun
    print(json.dumps([rows, memory_mb(os.getpid())[1], before, took]), flush=True)


def memory(chosen: Chosen, size: Size) -> None:
    """One row for each storage and number of files; the median of the rounds."""
    columns = ("storage", "files", "rows", "before, MiB", "peak, MiB", "above, MiB", "s")
    chosen.report.table("consumer-memory", f"Memory of a consumer, rows of {VALUE_BYTES + 8} bytes", columns)
    for kind in size.places:
        with chosen.folder() as root, ExitStack() as stack:
            try:
                place = stack.enter_context(PLACES[kind](root))
            except Unavailable as exc:
                chosen.report.note(f"{kind}: {exc}")
                continue
            for files in size.files:
                config = filled(root / f"{files}", place, size.rows, files)
                with place.delayed(LATENCY_MS):
                    found = sorted(_read_by_a_process(config) for _ in range(size.rounds))
                rows, peak, before, took = found[len(found) // 2]
                assert rows == size.rows // files * files, rows
                chosen.report.row(place.name, files, f"{rows:,}", before, peak, peak - before, took)


def _read_by_a_process(config: Path) -> tuple[float, ...]:
    command = [sys.executable, "-m", "benchmarks.consumers", "--reading", str(config)]
    return tuple(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def measure(chosen: Chosen) -> None:
    """All three."""
    size = SIZES[chosen.size]
    with chosen.folder() as root:
        queue = built(root, size.behind)
        behind(chosen, queue, size.behind, size.rounds)
        to_the_batch(chosen, queue, size.waited)
    memory(chosen, size)


_PROCESSES = {"--waiting": waiting, "--reading": reading}


def _main(words: list[str]) -> Any:
    process = _PROCESSES.get(words[0]) if words else None
    return process(words[1]) if process else alone(measure, __doc__)


if __name__ == "__main__":
    _main(sys.argv[1:])
