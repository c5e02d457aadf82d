"""
Everybody at once on one table: writers, bookkeepers without a lease, an eager reaper, Spark's maintenance and a stream.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from bookkeeper.core.errors import Retry
from tests.races.kit import SparkLake
from writers.writer import Writer

#: what Spark's optimistic commits and its reads of what was just expired may raise; its work is then not done
_SPARK_MAY = (
    "Commit",
    "conflict",
    "Cannot commit",
    "NotFound",
    "does not exist",
    "Requirement failed",
    "SQLITE_BUSY",
    # rewrite_manifests, when another commit took a manifest that it replaces
    "could not be found in the latest snapshot",
    # Kryo, when a table is broadcast that another of its threads is using
    "arraySize cannot be negative",
)


def spark_may(error: object) -> bool:
    """
    Whether this is Spark's own trouble in a crowd, and none that our commits could have made for it.
    """
    return any(word in str(error) for word in _SPARK_MAY)


@dataclass
class Crowd:
    """Threads that do something again and again until told to stop, and what became of each turn."""

    queue: SparkLake
    stop: threading.Event = field(default_factory=threading.Event)
    turns: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    #: exceptions that nobody may raise
    broken: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def joins(self, name: str, act: Callable[[], Any], pause: float = 0.0) -> None:
        """One more in the crowd."""
        self.threads.append(threading.Thread(target=self._repeat, args=(name, act, pause), name=name))

    def _repeat(self, name: str, act: Callable[[], Any], pause: float) -> None:
        while not self.stop.wait(pause):
            try:
                act()
            except Retry:
                self.retries[name] += 1
            except Exception as error:  # noqa: BLE001  (it fails the test)
                if not name.startswith("spark") or not spark_may(error):
                    self.broken.append(f"{name}: {type(error).__name__}: {str(error)[:500]}")
                    return
                self.retries[name] += 1
            self.turns[name] += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """All of them work meanwhile."""
        for thread in self.threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in self.threads:
                thread.join(120)

    def until(self, turns: Mapping[str, int], seconds: float, most: float = 240) -> None:
        """Waits so long, and then until each has done so many turns or somebody broke; raises AssertionError."""
        started = time.monotonic()
        while (spent := time.monotonic() - started) < seconds or not self._did(turns):
            if self.broken:
                return
            assert spent < most, f"only {dict(self.turns)} in {spent:.0f} s"
            time.sleep(0.1)

    def _did(self, turns: Mapping[str, int]) -> bool:
        return all(self.turns[name] >= count for name, count in turns.items())


def writer(queue: SparkLake, name: str, published: list[str], positions: bool) -> Callable[[], None]:
    """Publishes a txlog of one row each time; a new run now and then, as after a restart."""
    dice, runs, keys = random.Random(name), list[Writer](), count(1)

    def act() -> None:
        if not runs or dice.random() < 0.1:
            runs[:] = [Writer.open(queue.made.folder, name=name)]
        number = int(runs[0].position or 0) + 1 if positions else next(keys)
        key = f"{name}-{number:05d}"
        rows = {"timestamp": pa.array([queue.clock.now], pa.timestamp("us", "UTC")), "key": [key]}
        runs[0].write(pa.table(rows))
        runs[0].publish(position=b"%d" % number if positions else None)
        published.append(key)

    return act


def bookkeeper(queue: SparkLake, **settings: Any) -> Callable[[], None]:
    """Ticks; it remembers what it saw between two ticks, as the daemon does."""
    book = queue.book(**settings)

    def act() -> None:
        book.tick(queue.clock.now)

    return act


def statements(queue: SparkLake, texts: Sequence[str], again: bool = True) -> Callable[[], None]:
    """Spark does one after the other, and begins `again` after the last."""
    numbered = enumerate(cycle(texts) if again else texts)

    def act() -> None:
        for number, text in islice(numbered, 1):
            queue.sql(text, n=number)

    return act


def stream(queue: SparkLake, checkpoint: Path, rows_per_second: int) -> Any:
    """A Spark stream that writes `spark-0`, `spark-1`, ... into the table, as fast as its commits get through."""
    rate = queue.spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
    rows = rate.selectExpr("timestamp", "concat('spark-', cast(value AS string)) AS key")
    started = rows.writeStream.format("iceberg").outputMode("append").option("check-nullability", "false")
    started = started.option("fanout-enabled", "true")
    return (
        started.option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="200 milliseconds")
        .toTable(queue.table_name)
    )
