"""
A day in minutes: 17,280 commits with an accelerated clock, retention, merges, the reaper, and two consumers, one of
which stops for six hours.

    python -m benchmarks.day [--toy | --big]            make day BIG=1

Without --big it has a quarter of the commits, 20 s apart.

After every run of the reaper an independent reader checks that nothing reachable was deleted; at the end every file
on disk must be reachable or pending, and both consumers must have seen every row exactly once.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.followers import Follower, Stream, Walker
from benchmarks.harness import Chosen, alone
from benchmarks.independent import Independent
from benchmarks.moved_clock import Clock, TimedStore
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Catalog, Reaper, Retention, Settings, Table
from bookkeeper.core.folder import Folder
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from bookkeeper.streams.consumer_state import evaluate, read_all
from bookkeeper.streams.lag import added_files, lag
from bookkeeper.streams.registry import COMMAND, Registry, spark
from bookkeeper.tick.tick import Bookkeeper
from reaper import Reaped, reap
from writers.writer import Writer

HOUR = timedelta(hours=1)
COLUMNS = (
    "hour",
    "snapshots",
    "metadata.json KiB",
    "manifests",
    "live files",
    "data files on disk",
    "all files on disk",
    "lag live",
    "lag slow",
    "commit ms",
)


@dataclass(frozen=True, slots=True)
class Size:
    """
    How many commits, how far apart; when the slow consumer stops and goes on; how often the consumers read.

    With `spark` the consumers are Spark streams.
    """

    commits: int
    apart: timedelta
    stops: timedelta
    goes_on: timedelta
    reads_every: timedelta
    sample: timedelta
    spark: bool
    reaper: Reaper
    retention: Retention


DAY = Size(17_280, timedelta(seconds=5), 6 * HOUR, 12 * HOUR, 2 * HOUR, HOUR, True, Reaper(), Retention(keep=2 * HOUR))
SIZES = {
    "toy": Size(
        480,
        timedelta(seconds=60),
        2 * HOUR,
        4 * HOUR,
        timedelta(minutes=30),
        HOUR,
        False,
        Reaper(older_than=timedelta(minutes=10), retain_last=10, metadata_keep=timedelta(minutes=30)),
        Retention(keep=HOUR),
    ),
    "short": replace(DAY, commits=4_320, apart=timedelta(seconds=20)),
    "big": DAY,
}


@dataclass
class Day:
    """The table, the programs on it, and what was seen."""

    root: Path
    size: Size
    clock: Clock
    followers: list[Follower] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    reaped: Reaped = field(default_factory=Reaped)
    runs: int = 0
    commit_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = Table(
            name="events", identifier="queue.events", retention=self.size.retention, reaper=self.size.reaper
        )
        uri = f"sqlite:///{self.root}/cat.db"
        self.catalog_settings = Catalog("lake", {"type": "sql", "uri": uri, "warehouse": f"file://{self.root}/wh"})
        self.catalog = open_catalog(self.catalog_settings, create=True)
        made = initialise(self.catalog, self.settings, schema_for(self.settings))
        self.folder = Folder(self.store(made.folder))
        self.independent = Independent(self.root / "cat.db", "events")
        self.registry = Registry(self.folder.store)

    def store(self, url: str) -> Store:
        """The store at `url`, whose clock is ours."""
        return TimedStore(url.removeprefix("file://"), self.clock)

    def follow(self, follower: Follower) -> None:
        """One more consumer, registered before it starts."""
        url = f"file://{follower.checkpoint}"
        self.registry.add(spark(follower.name, url, self.clock.now, available_now=True, by=COMMAND))
        follower.drain()
        self.followers.append(follower)

    def book(self) -> Bookkeeper:
        """A bookkeeper as after a start."""
        ledger = Ledger(open_catalog(self.catalog_settings), self.settings.identifier, self.clock, self.store)
        return Bookkeeper(self.settings, self.folder, ledger, store=self.store)

    def run(self) -> Iterator[tuple[Any, ...]]:
        """The whole day; yields a row for every sample."""
        writer = Writer.open(self.folder, "w1", clock=self.clock, stores=self.store)
        book, began = self.book(), self.clock.now
        for turn in range(self.size.commits):
            self.clock.now += self.size.apart
            self._write(writer, turn)
            started = time.perf_counter()
            book.tick(self.clock.now)
            self.commit_ms.append((time.perf_counter() - started) * 1000)
            spent = (turn + 1) * self.size.apart
            if _due(spent, timedelta(minutes=2), self.size.apart):
                self.reap()
            if _due(spent, self.size.reads_every, self.size.apart):
                self._read(spent)
            if _due(spent, self.size.sample, self.size.apart):
                yield self.sample((self.clock.now - began) / HOUR)

    def _write(self, writer: Writer, turn: int) -> None:
        keys = [f"{turn:05d}-{row}" for row in range(2)]
        writer.write(pa.table({"timestamp": [self.clock.now] * 2, "key": keys, "value": [b"v"] * 2}))
        writer.publish()
        self.written.update(keys)

    def _read(self, spent: timedelta) -> None:
        for index, follower in enumerate(self.followers):
            if not index or not self.size.stops < spent < self.size.goes_on:
                follower.drain()

    def reap(self) -> None:
        """One run; nothing that is reachable then may be missing, nothing that was reachable and is may be gone."""
        self.reaped += reap(self.catalog, self.settings, self.clock.now, open_store=self.store)
        self.runs += 1
        missing = self.independent.reachable() - self.independent.disk().keys()
        assert not missing, f"{len(missing)} reachable files are not there, first {min(missing)}"

    def sample(self, hour: float) -> tuple[Any, ...]:
        """Sizes now."""
        metadata, disk = self.independent.metadata(), self.independent.disk()
        head = next(it for it in metadata["snapshots"] if it["snapshot-id"] == metadata["current-snapshot-id"])
        recent = sorted(self.commit_ms[-500:])
        return (
            f"{hour:.0f}",
            len(metadata["snapshots"]),
            disk[self.independent.metadata_location()] // 1024,
            len(self.independent.manifests(head["manifest-list"])),
            len(self.independent.live()),
            sum(path.endswith(".parquet") for path in disk),
            len(disk),
            *self.lags(),
            f"{recent[len(recent) // 2]:.1f}",
        )

    def lags(self) -> list[int]:
        """Snapshots unread, by consumer."""
        readings = read_all(self.registry, open_store)
        table = self.catalog.load_table(self.settings.identifier)
        standings = evaluate(readings, table.metadata, self.settings.reaper, self.clock.now)
        found = (lag(item, table.metadata, added_files(table.io), self.clock.now) for item in standings)
        return [item.snapshots if item else -1 for item in found]

    def close(self) -> dict[str, Any]:
        """The account: consumers, and every file on disk."""
        for follower in self.followers:
            follower.drain()
        for _ in range(2):
            # The first run's own commits push older metadata files out of the log; the second one takes them.
            self.clock.now += timedelta(minutes=15)
            self.reap()
        disk, reachable, logged = (
            self.independent.disk().keys(),
            self.independent.reachable(),
            self.independent.logged(),
        )
        consumers = {
            follower.name: {
                "rows": sum(follower.keys().values()),
                "missing": len(self.written.keys() - follower.keys().keys()),
                "double": sum(count > 1 for count in follower.keys().values()),
            }
            for follower in self.followers
        }
        return {
            "rows written": len(self.written),
            "consumers": consumers,
            "files on disk": len(disk),
            "reachable": len(reachable),
            "in the metadata log": len(disk & logged - reachable),
            "pending": len(self.folder.pending()),
            "on disk, neither reachable nor logged nor pending": len(disk - reachable - logged),
            "reachable, not on disk": len(reachable - disk),
            "runs of the reaper": self.runs,
            "snapshots expired": self.reaped.snapshots,
            "files deleted": self.reaped.data_files + self.reaped.manifests + self.reaped.metadata_files,
        }


def _due(spent: timedelta, every: timedelta, apart: timedelta) -> bool:
    return spent // every != (spent - apart) // every


@contextmanager
def opened(root: Path, size: Size) -> Iterator[Day]:
    """
    A day with its two consumers, ready to run; a Spark session too where the size wants it.
    """
    day = Day(root, size, Clock(datetime.now(UTC)))
    if not size.spark:
        for name in ("live", "slow"):
            day.follow(Walker(name, root, day.independent))
        yield day
        return
    session = _spark(day)
    try:
        for name in ("live", "slow"):
            day.follow(Stream(name, root, session, "lake.queue.events", lambda name=name: _seen(day, name)))
        yield day
    finally:
        session.stop()


def _spark(day: Day) -> Any:
    from spark_jobs import prepare, session

    prepare.prepare(os.environ)
    return session.build(Settings(catalog=day.catalog_settings), app="day")


def _seen(day: Day, name: str) -> list[str]:
    table = day.catalog.load_table(f"seen.{name}")
    return list(table.scan(selected_fields=("key",)).to_arrow()["key"].to_pylist())


def measure(chosen: Chosen) -> None:
    """
    A row per sample, then the account.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = f"A day in minutes: {size.commits:,} commits, {size.apart.total_seconds():.0f} s apart"
    report.table("day", title, COLUMNS)
    with chosen.folder() as root, opened(root, size) as day:
        snapshots = []
        for row in day.run():
            report.row(*row)
            snapshots.append((row[0], row[1]))
        for key, value in day.close().items():
            report.note(f"{key}: {value}")
        for line in bars(snapshots):
            report.note(line)


def bars(samples: list[tuple[str, int]]) -> list[str]:
    """
    A plot of snapshots over the hours, for a terminal.
    """
    most, width = max(count for _, count in samples), min(60, shutil.get_terminal_size().columns - 20)
    return [f"{hour:>4} h {'#' * max(1, count * width // most)} {count}" for hour, count in samples]


if __name__ == "__main__":
    alone(measure, __doc__)
