"""
All at once on one table: writers, bookkeepers without a lease, an eager reaper, Spark's maintenance and a stream.
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

from bookkeeper.errors import Retry
from tests.support.races import SparkLake
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
    # a rewrite that tries again after a partition spec was added: it knows those it began with
    "ManifestFileUtil.canContainAny",
    # Kryo, when a table is broadcast that another of its threads is using
    "arraySize cannot be negative",
)


def spark_may(error: object) -> bool:
    """
    Whether this is Spark's own trouble in a crowd, and none that our commits could have made for it.
    """
    return any(word in str(error) for word in _SPARK_MAY)


def _said(error: object) -> str:
    """What a Java exception and its causes say, and where each of them began, without the hundred lines above it."""
    lines = str(error).splitlines()
    near = zip(lines, lines[-1:] + lines, lines[-2:] + lines, strict=False)
    said = [line for line, before, earlier in near if not all(it.startswith("\t") for it in (line, before, earlier))]
    return " | ".join(line.strip() for line in said)[:2000]


@dataclass
class Crowd:
    """Threads that do something again and again until told to stop, and what became of each turn."""

    queue: SparkLake
    stop: threading.Event = field(default_factory=threading.Event)
    turns: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    #: exceptions that no program may raise
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
                    self.broken.append(f"{name}: {type(error).__name__}: {_said(error)}")
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

    def until(
        self, turns: Mapping[str, int], seconds: float, most: float = 240, also: Callable[[], bool] = lambda: True
    ) -> None:
        """
        Waits so long, then for `most` seconds until each did so many turns and `also`, or one broke; raises
        AssertionError.
        """
        started = time.monotonic()
        while (spent := time.monotonic() - started) < seconds or not self._did(turns) or not also():
            if self.broken:
                return
            assert spent < seconds + most, f"only {dict(self.turns)} in {spent:.0f} s"
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


class Streaming:
    """A Spark stream that writes `spark-0`, `spark-1`, ...; begun again from its checkpoint when it ended."""

    def __init__(self, queue: SparkLake, checkpoint: Path, rows_per_second: int) -> None:
        self._queue, self._checkpoint, self._rows = queue, checkpoint, rows_per_second
        self._runs: list[Any] = []

    def __call__(self) -> None:
        """One look at it; raises what ended it."""
        if self._runs and self._runs[-1].isActive:
            return
        error = self._runs[-1].exception() if self._runs else None
        self._runs.append(self._started())
        if error is not None:
            raise error

    def committed(self) -> bool:
        """Whether a batch with rows got through."""
        return any(done["numInputRows"] for run in self._runs for done in run.recentProgress)

    def stop(self) -> None:
        for run in self._runs:
            run.stop()

    def _started(self) -> Any:
        rate = self._queue.spark.readStream.format("rate").option("rowsPerSecond", self._rows).load()
        rows = rate.selectExpr("timestamp", "concat('spark-', cast(value AS string)) AS key")
        started = rows.writeStream.format("iceberg").outputMode("append").option("check-nullability", "false")
        started = started.option("fanout-enabled", "true").option("checkpointLocation", str(self._checkpoint))
        return started.trigger(processingTime="200 milliseconds").toTable(self._queue.table_name)
