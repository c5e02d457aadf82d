"""
Latecomers: new queries on two busy tables, each killed at a step of its beginning, read every row once in the end.

    python -m tests.spark.latecomers --folder /tmp/latecomers
    python -m tests.spark.latecomers --steps "" --checkout ~/other    # the jobs of another checkout, not killed

Real programs work on each table: `bookkeeper run` with retention, `reaper run`, which compacts and expires all it may
each second, and a writer. Each query is `spark_jobs.read_stream` with --max-files 2 into a table of its own: one run
that is killed (SIGKILL), and one that drains while the table is worked on. It prints a line for each query: what was
committed before the second run is in its table once. About half an hour.
"""

import argparse
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.support.lake import written
from bookkeeper.catalogs.open import open_catalog
from tests.support.configured import Queue, program
from tests.support.crew import Crew
from tests.support.pyiceberg_files import sqlite_catalog
from writers.writer import Writer

STEPS = ("register", "clean", "plan", "hold", "batch", "rows", "seed", "draft", "seeded", "started", "planned", "first")
#: of a table before the queries: commits, and rows of each
TABLES = {"small": (11, 3), "large": (80, 5_000)}
KEPT, PAUSE = timedelta(days=2), 0.4


#: keys of each table
RULES: dict[str, dict[str, Any]] = {
    "retention": {"column": "timestamp", "keep": f"{int(KEPT.total_seconds())}s", "every": "2s"},
    "reaper": {"every": "1s", "older-than": "1s", "retain-last": 1},
    "compaction": {"quiet": "1s", "every": "2s", "fan-in": 4},
}


def made(folder: Path) -> Queue:
    """Both tables, and their configuration."""
    catalog = sqlite_catalog(folder, warehouse=f"file://{folder}/warehouse").properties
    sections: dict[str, Mapping[str, Any]] = {"catalog": {"name": "lake", **catalog}}
    for name in TABLES:
        sections[f"tables.{name}"] = {"identifier": f"queue.{name}", "window": "100ms"}
        sections |= {f"tables.{name}.{rule}": keys for rule, keys in RULES.items()}
    queue = Queue(written(folder / "bookkeeper.toml", sections), folder.as_uri())
    queue.init()
    return queue


class World:
    """The tables, and the programs that work on them."""

    def __init__(self, folder: Path, checkout: str) -> None:
        self.folder, self.checkout, self.queue = folder, checkout, made(folder)
        self.path = self.queue.config
        self.catalog = open_catalog(self.queue.settings.catalog)
        self.folders = {name: self.queue.txlogs(name).store.url for name in TABLES}
        #: by table: keys that stay, and keys that retention takes meanwhile
        self.keys: dict[str, list[str]] = {name: [] for name in TABLES}
        self.over = threading.Event()

    def write(self, name: str, writer: Writer, number: int, rows: int) -> None:
        """One commit of rows that stay, and now and then a file that retention takes seconds later."""
        now = datetime.now(UTC)
        keys = [f"{name}-{number:06d}-{row:05d}" for row in range(rows)]
        writer.write(pa.table({"timestamp": [now] * rows, "key": keys, "value": [b"v" * 50] * rows}))
        writer.publish()
        self.keys[name] += keys
        if number % 7 == 0:
            gone = [f"gone-{number:06d}"]
            writer.write(pa.table({"timestamp": [now - KEPT + timedelta(seconds=8)], "key": gone, "value": [b"v"]}))
            writer.publish()

    def fill(self, crew: Crew) -> None:
        """The rows from before all queries, in commits whose snapshots expire."""
        for name, (commits, rows) in TABLES.items():
            with Writer.open(self.folders[name], name="first") as writer:
                for number in range(commits):
                    self.write(name, writer, number, rows)
                    crew.until(lambda name=name: not os.listdir(f"{local(self.folders[name])}/pending"))  # type: ignore[misc]

    def work(self) -> None:
        """A writer of each table, until it is over."""
        number = 100_000
        with (
            Writer.open(self.folders["small"], name="on") as small,
            Writer.open(self.folders["large"], name="on") as large,
        ):
            while not self.over.wait(PAUSE):
                self.write("small", small, number, 1)
                self.write("large", large, number, 20)
                number += 1

    @contextmanager
    def programs(self) -> Iterator[Crew]:
        """Bookkeeper and reaper."""
        with Crew({name: program(name, self.path) for name in ("bookkeeper", "reaper")}, self.folder) as crew:
            for name in crew.commands:
                crew.start(name)
            yield crew
            for name in crew.commands:
                crew.stop(name, 60)

    def job(self, name: str, step: str, kill: str = "") -> int:
        """One run of the query, to its end or where it is killed; its exit code."""
        query = f"{name}_{step or 'whole'}"
        words = [sys.executable, __file__, "--run", kill, "--config", str(self.path), "--table", name]
        words += ["--checkpoint", f"{self.folder}/cp/{query}", "--sink", f"table:queue.{query}"]
        words += ["--trigger", "available-now", "--max-files", "2"]
        environ = {**os.environ, "PYTHONPATH": self.checkout, "SINK": f"{self.folder}/warehouse/queue/{query}"}
        with (self.folder / f"{query}.log").open("ab") as log:
            return subprocess.run(words, stdout=log, stderr=log, env=environ, cwd=self.folder).returncode

    def latecomer(self, name: str, step: str) -> str:
        """A query that is killed at the step, if there is one, and then drains what is there; a line about it."""
        kept = len(self.catalog.load_table(f"queue.{name}").metadata.snapshots)
        killed = self.job(name, step, step) if step else "-"
        keys = list(self.keys[name])
        time.sleep(2)  # all of them are committed
        code, seen = self.job(name, step), self.seen(name, step)
        missing, doubled = sum(not seen[key] for key in keys), sum(count > 1 for count in seen.values())
        strange = sum(not key.startswith(("gone-", name)) for key in seen)
        # Its history would be kept for it: the next one begins as late.
        for consumer in Path(f"{local(self.folders[name])}/consumers").glob("*.json"):
            consumer.unlink()
        time.sleep(3)
        return (
            f"{name:6} {step or '-':9} {kept:3} snapshots kept, killed: {killed}, exit {code}; "
            f"{len(keys):,} rows, {missing:,} missing, {doubled:,} doubled, {strange} strange"
        )

    def seen(self, name: str, step: str) -> Counter[str]:
        """How often each key is in the table of a query."""
        found = self.catalog.load_table(f"queue.{name}_{step or 'whole'}").scan(selected_fields=("key",)).to_arrow()
        return Counter(found["key"].to_pylist())


def local(url: str) -> str:
    return url.removeprefix("file://")


def main() -> None:
    """Everything, and a line for each query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="/tmp/latecomers", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--checkout", default=str(Path(__file__).parents[2]))
    chosen = parser.parse_args()
    shutil.rmtree(chosen.folder, ignore_errors=True)
    chosen.folder.mkdir(parents=True)
    world, steps = World(chosen.folder, chosen.checkout), ["", *filter(None, chosen.steps.split(","))]
    with world.programs() as crew:
        world.fill(crew)
        working = threading.Thread(target=world.work)
        working.start()
        for name in TABLES:
            for step in steps:
                print(world.latecomer(name, step), flush=True)
        world.over.set()
        working.join()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def when_there(pattern: str, folder: str) -> None:
    """Dies as soon as a path in the folder is like this."""
    while not any(Path(folder).glob(pattern)):
        time.sleep(0.001)
    die()


def before_the_rename(write: Callable[..., None]) -> Callable[..., None]:
    """As `write` of a checkpoint, but it dies when the first offset is written and not yet under its name."""

    def written(store: Any, key: str, data: bytes) -> None:
        if key.startswith("sources/"):
            write(store, "sources/0/offsets/.0.draft.tmp", data)
            die()
        write(store, key, data)

    return written


def killed_at(step: str, words: list[str]) -> None:
    """In a process of its own: the job, killed at this step."""
    from spark_jobs import hadoop, read_stream

    checkpoint, store = words[words.index("--checkpoint") + 1], hadoop.HadoopCheckpointStore
    seen = {
        "rows": ("data/**/*.parquet", os.environ["SINK"]),
        "started": ("offsets", checkpoint),
        "planned": ("offsets/[0-9]*", checkpoint),
        "first": ("commits/[0-9]*", checkpoint),
    }
    if step in seen:
        threading.Thread(target=when_there, args=seen[step], daemon=True).start()
    elif step == "draft":
        store.write = before_the_rename(store.write)  # type: ignore[method-assign]
    elif step:
        begin, stepped = read_stream.begin, lambda name: die() if name == step else None
        read_stream.begin = functools.partial(begin, step=stepped)  # type: ignore[assignment]
    read_stream.main(words)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        killed_at(sys.argv[2], sys.argv[3:])
    else:
        main()
