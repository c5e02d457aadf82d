"""
Four streams read a queue while its small files are rewritten a hundred times and its snapshots expire.

Simulated hours of a bookkeeper, the embedded compactor and an eager reaper; Spark, pyiceberg and DuckDB agree on it.
`STREAM_ROUNDS=50` takes longer.
"""

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Compaction, Reaper
from bookkeeper.contract.pending_rewrites import rejected_rewrites
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from reaper.run import reap
from spark_jobs import drain, query, read_stream, register
from tests.histories.decoded import local
from tests.histories.readers import duckdb_session
from tests.support.lake import Lake, Writes

#: of simulated time, with so many new files for each of two days in each
ROUNDS, ROUND, FILES = int(os.environ.get("STREAM_ROUNDS", "36")), timedelta(minutes=3), 2
HOUR = timedelta(hours=1) // ROUND
#: of the machine's time, for a stream to catch up
SECONDS = 120


class Queue(Lake):
    """A queue in the lake of the Spark session, and what works on it."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            root,
            identifier="queue.streamed",
            reaper=Reaper(older_than=timedelta(minutes=1), retain_last=1),
            compaction=Compaction(fan_in=FILES),
        )
        self.writers = [Writes(self, f"w{number}") for number in range(FILES)]
        self.keeper = self.book()
        self.compactor = Compactor(self.settings, rewrite, self.clock, open_store=self.store)
        self.rounds = self.rewrites = self.expired = 0

    def round(self) -> None:
        """New files, two commits of these and of rewrites, and an expiry."""
        for day in range(2):
            for writes in self.writers:
                keys = [f"{self.rounds:03d}-{writes.name.writer}-{day}-{row}" for row in range(3)]
                writes.publish(*keys, at=self.clock.now - timedelta(days=day))
        for _ in range(2):
            self.clock.move(seconds=ROUND.total_seconds() / 2)
            self.rewrites += self.keeper.tick(self.clock.now).rewrites.committed
            self.compactor.round(self.catalog, self.clock.now)
        self.expired += reap(self.catalog, self.settings, self.clock.now, open_store=self.store).snapshots
        self.rounds += 1

    @property
    def written(self) -> list[str]:
        """The keys of all rows that were published."""
        return sorted(key for writes in self.writers for key in writes.keys)


class Stream:
    """A registered query, so many rounds `behind`, that keeps the rows of each of its micro-batches."""

    def __init__(self, lake: Any, spark: Any, queue: Queue, folder: Path, behind: int = 0, **how: Any) -> None:
        self.spark, self.queue, self.behind, self.how = spark, queue, behind, how
        self.name, self.checkpoint = f"lake.{queue.settings.identifier}", str(folder)
        #: by number: a batch that a stop interrupted is read again
        self.batches: dict[int, list[str]] = {}
        self.query: Any = None
        now = queue.clock.now
        register.register(spark, lake.settings, queue.settings, self.name, self.checkpoint, now, available_now=False)

    def start(self, trigger: str = "100ms") -> Any:
        """Goes on where it was."""
        writer = read_stream.read(self.spark, self.name, **self.how).writeStream.foreachBatch(self._keep)
        self.query = writer.option("checkpointLocation", self.checkpoint).trigger(**query.trigger(trigger)).start()
        return self.query

    def _keep(self, rows: Any, number: int) -> None:
        found = sorted(row.key for row in rows.select("key").collect())
        while found and self.queue.rounds - int(found[-1][:3]) < self.behind:
            time.sleep(0.02)
        assert self.batches.setdefault(number, found) == found

    @property
    def keys(self) -> list[str]:
        return sorted(key for batch in self.batches.values() for key in batch)

    def drain(self) -> None:
        """Reads what is there now, and ends."""
        drain.drain(self.spark, self.name, self.checkpoint, self.start)

    def catch_up(self) -> None:
        """Waits until it has read as many rows as there are; raises what ended it."""
        self.behind, began = 0, time.monotonic()
        while len(self.keys) < len(self.queue.written) and time.monotonic() - began < SECONDS:
            self.query.awaitTermination(0.1)


def read_by_all(spark: Any, queue: Queue) -> list[str]:
    """The keys that pyiceberg, DuckDB and Spark read, which must be the same."""
    name, session = f"lake.{queue.settings.identifier}", duckdb_session()
    spark.sql(f"REFRESH TABLE {name}")
    location = local(queue.table().metadata_location)
    duckdb = session.execute(f"SELECT key FROM iceberg_scan('{location}') ORDER BY key").fetchall()
    session.close()
    found = queue.keys()
    assert [key for (key,) in duckdb] == found
    assert sorted(row.key for row in spark.table(name).select("key").collect()) == found
    return found


@pytest.fixture
def queue(lake: Any) -> Queue:
    return Queue(lake.config.parent)


@pytest.fixture
def stream(lake: Any, spark: Any, queue: Queue, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    """Registers a stream; each ends with the test."""
    made = list[Stream]()

    def stream(name: str, **how: Any) -> Stream:
        made.append(Stream(lake, spark, queue, tmp_path / name, **how))
        return made[-1]

    yield stream
    for each in made:
        each.behind = 0
        if each.query is not None:
            each.query.stop()


def test_streams_read_every_row_once_across_a_hundred_rewrites_and_expiry(
    spark: Any, queue: Queue, stream: Callable[..., Stream]
) -> None:
    queue.round()
    assert read_by_all(spark, queue) == queue.written
    head, resumed, drained = stream("head"), stream("resumed"), stream("drained")
    behind = stream("behind", behind=HOUR, max_files=2 * FILES)
    for each in (head, resumed, behind):
        each.start()
    for number in range(1, ROUNDS):
        queue.round()
        if number % (ROUNDS // 5) == 0:
            head.catch_up()
        if number % (ROUNDS // 3) == 0:
            drained.drain()
        if number in (ROUNDS // 5, ROUNDS * 7 // 10):
            resumed.query.stop()
        if number in (ROUNDS // 2, ROUNDS * 9 // 10):
            resumed.start()
    assert max(behind.keys)[:3] <= f"{ROUNDS - HOUR:03d}"
    assert queue.rewrites >= min(100, 2 * ROUNDS)
    assert queue.expired >= 2 * (ROUNDS - HOUR), "of what no stream holds"
    drained.drain()
    for each in (head, resumed, behind):
        each.catch_up()
    for each in (head, behind, resumed, drained):
        assert each.keys == queue.written
    assert read_by_all(spark, queue) == queue.written
    assert (rejected_rewrites(queue.folder), queue.rejected()) == ([], {})
