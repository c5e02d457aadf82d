"""
A pool of processes writes one txlog while they are killed, and so is their driver: an account of every row in the end.

    python -m tests.soak.pool --rows 10000000 --processes 8 --kills 20 --driver-kills 2 --seed 7

The driver is a process of its own, with its pool in a session of its own. Exit code 0: no row is missing or double, and
the table has one commit.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.crew import Crew
from tests.support.writer_queue import Queue
from writers import Task, Writer

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType(), required=False))
PART_ROWS = 50_000


def write_part(task: Task, part: int, count: int) -> bytes:
    """The rows of a part, in four writes."""
    with task.open() as files:
        for first in range(0, count, PART_ROWS // 4):
            numbers = range(part * PART_ROWS + first, part * PART_ROWS + min(first + PART_ROWS // 4, count))
            files.write(pa.table({"n": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]}))
    return files.result


def drive(folder: str, rows: int, processes: int, kills: int, seed: int) -> int:
    """Write all rows in one txlog, killing processes of the pool; returns how many were killed."""
    counts = {part: min(PART_ROWS, rows - part * PART_ROWS) for part in range(-(-rows // PART_ROWS))}
    results, killed, chance = dict[int, bytes](), 0, random.Random(seed)
    due = sorted(chance.sample(range(1, len(counts)), min(kills, len(counts) - 1)))
    with Writer.open(folder, "pool") as writer:
        if writer.position is not None:
            return 0  # an earlier driver has published
        task = writer.task()
        while left := counts.keys() - results.keys():
            with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
                futures: dict[Future[bytes], int] = {
                    pool.submit(write_part, task, part, counts[part]): part for part in sorted(left)
                }
                try:
                    waiting = set(futures)
                    while waiting:
                        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                        results |= {futures[future]: future.result() for future in done}
                        if due and len(results) >= due[0]:
                            del due[0]
                            killed += 1
                            os.kill(chance.choice(sorted(pool._processes)), signal.SIGKILL)
                except BrokenProcessPool:
                    continue  # a new pool writes the parts without a result
        writer.take([results[part] for part in sorted(results)], position=b"all")
        writer.publish()
    return killed


def account(queue: Queue, rows: int) -> dict[str, int]:
    """What the table holds, against what was to be written."""
    table = queue.table()
    numbers = table.scan(selected_fields=("n",)).to_arrow()["n"]
    distinct = pc.count_distinct(numbers).as_py()
    inside = pc.sum(pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, rows))).as_py() or 0
    live = {file.file.file_path for file in table.scan().plan_files()}
    stored = list(Path(table.location().removeprefix("file://"), "data").rglob("*.parquet"))
    return {
        "rows": len(numbers),
        "missing": rows - distinct,
        "double": len(numbers) - distinct,
        "foreign": len(numbers) - inside,
        "commits": len(table.metadata.snapshots),
        "files": len(live),
        "files for the sweep": len(stored) - len(live),
    }


def run(root: Path, rows: int, processes: int, kills: int, driver_kills: int, seed: int) -> dict[str, int]:
    """All of it, in `root`; drivers are killed after a growing number of files."""
    queue, killed, chance = Queue(root, schema=SCHEMA, partition_by=()), 0, random.Random(seed)
    data = Path(queue.table().location().removeprefix("file://"), "data")
    numbers = [str(number) for number in (rows, processes, kills)]
    parts, crew = -(-rows // PART_ROWS), Crew({}, root)
    for turn in range(driver_kills + 1):
        words = [sys.executable, "-m", "tests.soak.pool", "--drive", queue.made.folder, *numbers, str(seed + turn)]
        role = f"driver {turn}"
        driver = crew.start(role, words, cwd=ROOT)
        if turn < driver_kills:
            goal = len(list(data.rglob("*.parquet"))) + chance.randrange(1, max(2, parts // 2))
            gone = threading.Event()
            while driver.poll() is None and len(list(data.rglob("*.parquet"))) < goal:
                gone.wait(0.05)
            crew.kill(role, family=True)  # the driver and its pool
        elif crew.wait(role, None) == 0:
            killed += int(crew.log(role).read_text().split()[-1])
        queue.tick()
    return {"killed": killed, "drivers killed": driver_kills, **account(queue, rows)}


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1: rows are missing or double."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.pool", description=(__doc__ or "").split("\n\n")[0])
    for name, default in (("rows", 10_000_000), ("processes", 8), ("kills", 20), ("driver-kills", 2), ("seed", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--drive", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.drive:
        sys.stdout.write(f"{drive(given.drive[0], *map(int, given.drive[1:]))}\n")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        found = run(Path(root), given.rows, given.processes, given.kills, given.driver_kills, given.seed)
    sys.stdout.write("".join(f"{name}: {value:,}\n" for name, value in found.items()))
    sys.stdout.write(f"seconds: {time.monotonic() - began:.0f}\n")
    return int(any(found[name] for name in ("missing", "double", "foreign")) or found["commits"] != 1)


if __name__ == "__main__":
    sys.exit(main())
