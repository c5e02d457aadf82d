"""
A bookkeeper whose clock jumps both ways, and Spark on the same table: its stream reads on, and it commits.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands.accept_clock import date_back, dated_ahead
from bookkeeper.errors import ClockBehind, Retry
from spark_jobs import query, read_stream
from tests.races.test_spark_between import INSERT
from tests.support.lake import Clock, Writes
from tests.support.races import SparkLake

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


class Wrong(Clock):
    """The machine's clock, and how far it is off."""

    def __init__(self) -> None:
        self.off = timedelta(0)

    def __getattribute__(self, name: str) -> Any:
        return self() if name == "now" else super().__getattribute__(name)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.off


class Consumer:
    """A Spark stream into memory, continued from its checkpoint at each drain."""

    def __init__(self, queue: SparkLake, checkpoint: Path) -> None:
        self.queue, self.checkpoint = queue, checkpoint
        self.keys: list[str] = []

    def drain(self) -> None:
        stream = read_stream.read(self.queue.spark, self.queue.table_name)
        started = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        query.follow(started.trigger(availableNow=True).start(), lambda: False, lambda progress: None)

    def _take(self, rows: Any, batch: int) -> None:
        self.keys += [row.key for row in rows.collect()]


def test_a_clock_that_jumps_both_ways_breaks_neither_sparks_stream_nor_its_commits(
    queue: SparkLake, tmp_path: Path
) -> None:
    clock = Wrong()
    book, writer, consumer = queue.fresh(clock=clock), Writes(queue), Consumer(queue, tmp_path / "checkpoint")
    expected, behind = [], 0
    for number, off in enumerate((0, 25, -10, 50, -60, 20, -25, 0)):
        clock.off = timedelta(seconds=off)
        writer.publish(f"a{number}")
        expected.append(f"a{number}")
        try:
            book.tick(clock.now)
        except ClockBehind:
            behind += 1  # a minute behind what it stamped itself: it waits
        if number % 2:
            queue.sql(INSERT, n=number)  # by the machine's true clock
            expected.append(f"spark-{number}")
        if number % 3 == 0:
            consumer.drain()
    clock.off = timedelta(seconds=55)
    writer.publish("last")
    book.tick(clock.now)
    consumer.drain()
    assert behind, "a jump back of almost two minutes must have been noticed"
    assert sorted(consumer.keys) == queue.seen() == sorted([*expected, "last"])
    log = [entry.timestamp_ms for entry in queue.table().metadata.snapshot_log]
    # Spark commits by the true time behind our stamps; Iceberg reads a log that goes back less than a minute.
    assert all(later - earlier > -60_000 for earlier, later in pairwise(log))


def test_a_clock_an_hour_ahead_stamps_nothing_that_would_keep_spark_from_committing(queue: SparkLake) -> None:
    clock = Wrong()
    writer = Writes(queue)
    writer.publish("a")
    clock.off = timedelta(days=30)
    with pytest.raises(Retry, match="ahead of the storage"):
        queue.book(clock=clock).tick(clock.now)
    queue.sql(INSERT, n=1)
    clock.off = timedelta(0)
    queue.settle()
    assert queue.seen() == ["a", "spark-1"]


def test_a_table_stamped_with_2038_takes_sparks_commits_again_after_accept_clock_and_its_stream_reads_on(
    queue: SparkLake, tmp_path: Path
) -> None:
    clock = queue.disk_clock = Wrong()
    book, writer, consumer = queue.fresh(clock=clock), Writes(queue), Consumer(queue, tmp_path / "checkpoint")
    writer.publish("a")
    book.tick(clock.now)
    consumer.drain()
    clock.off = datetime(2038, 1, 19, tzinfo=UTC) - clock.now
    for key in "bc":
        late = Writes(queue, f"w-{key}", started=clock.now)
        late.publish(key, created_ms=int(clock.now.timestamp() * 1000))
        book.tick(clock.now)
    consumer.drain()
    clock.off = timedelta(0)
    with pytest.raises(Exception, match="Expected sorted snapshot log entries"):
        queue.sql(INSERT, n=1)
    book = queue.book(clock=clock)
    date_back(book.ledger, queue.folder, dated_ahead(book.ledger, queue.folder))
    queue.sql(INSERT, n=2)
    writer.publish("d")
    book.tick(clock.now)
    queue.sql(INSERT, n=3)
    consumer.drain()
    assert sorted(consumer.keys) == queue.seen() == ["a", "b", "c", "d", "spark-2", "spark-3"]
