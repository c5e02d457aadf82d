"""
Spark as a writer: queries through txlogs beside queries with Iceberg's own sink, and upserts beside MERGE INTO.

    python -m benchmarks.spark_sinks [--big]

One driver with local[2]; real processes beside it: `bookkeeper run`, `reaper run` with its compactor, two writers.
Visible: from the rate source's timestamp until a reader that looks every 50 ms has the row; the wait for the next
micro-batch is in it, on both sides. A batch of the txlog sink returns when its txlog is in the table, of which the
bookkeeper hears by inotify.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import StartsWith

from benchmarks.support.daemon import running
from benchmarks.support.harness import Chosen, Timing, alone, in_turns, number, percentile, times
from benchmarks.support.lake import Lake, configured
from benchmarks.support.lake import written as written_to
from benchmarks.support.spark_upserts import TXLOGS, UPSERTS, measure_upserts
from benchmarks.visibility import drained, generating
from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.consumers.place_on_main import end
from bookkeeper.consumers.selection import Selection
from bookkeeper.consumers.tail import Follower, Position
from bookkeeper.history.main_history import MainHistory

POLLED, ICEBERG = "txlogs, a tick a second", "Iceberg's sink"
RATE, TRIGGER, LOOK_SECONDS, WARM_SECONDS = 100, "1 second", 0.05, 20
REAPER = {"every": "15s", "older-than": "30s", "retain-last": 20}
#: a query that is stopped within a batch makes Spark look for a pattern in a long traceback
_JVM = {"spark.driver.extraJavaOptions": "-Xss64m"}
#: a year in which the rows of the throughput lie
NOON = 1_767_268_800_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """Queries and how long they run; rows, files and rounds of the throughput; changes, keys and batches of upserts."""

    queries: int
    seconds: int
    rows: int
    files: int
    rounds: int
    changes: int
    keys: int
    batches: int


SIZES = {
    "toy": Size(1, 3, 100, 1, 1, 100, 10, 1),
    "short": Size(8, 60, 1_000_000, 10, 2, 400_000, 100_000, 8),
    "big": Size(8, 600, 2_000_000, 20, 2, 1_000_000, 100_000, 20),
}


@dataclass
class Seen:
    """Follows a table in a thread, and notes how old each row of a query was when it could be seen, ms."""

    lake: Lake
    ages: dict[str, list[float]] = field(default_factory=dict)
    _stop: Event = field(default_factory=Event)

    def __enter__(self) -> "Seen":
        catalog = open_catalog(self.lake.settings.catalog)
        table = self.lake.table()
        begin = Position.of(end(MainHistory(table.metadata)))
        columns, uuid = Selection.of(table, ["key", "timestamp"]), str(table.metadata.table_uuid)
        identifier = self.lake.settings.tables["events"].identifier
        self._follower = Follower(lambda: load_table(catalog, identifier), columns, begin, uuid)
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        with closing(self._follower):
            while not self._stop.wait(LOOK_SECONDS):
                at = time.time()
                for seen in self._follower.news():
                    if seen.row is not None:
                        side = seen.row["key"].partition("-")[0]
                        self.ages.setdefault(side, []).append((at - seen.row["timestamp"].timestamp()) * 1000)


@dataclass
class Turn:
    """What came of one side's queries."""

    ended: list[str]
    rows: int
    missing: int
    double: int
    commits: int
    batches: Sequence[float]
    ages: Sequence[float]

    def cells(self, queries: int) -> tuple[str, ...]:
        """One row of the table."""
        return (
            f"{len(self.ended)} of {queries}",
            f"{self.rows:,}",
            f"{self.missing} / {self.double}",
            f"{self.commits:,}",
            _shown(self.batches),
            _shown(self.ages),
        )


QUERIES = ("side", "ended", "rows", "missing / double", "commits of all", "batch, p50 / p99", "visible, p50 / p99")


def _shown(values: Sequence[float]) -> str:
    return " / ".join(number(percentile(values, share)) for share in (0.5, 0.99)) if values else "-"


def _rows(spark: Any, prefix: str) -> Any:
    from pyspark.sql import functions as sql

    source = spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
    key, value = sql.concat(sql.lit(prefix), sql.col("value")).alias("key"), sql.lit(b"v").alias("value")
    return source.select(sql.col("timestamp"), key, value)


def _started(rows: Any, lake: Lake, side: str, name: str, **trigger: Any) -> Any:
    """The query; its checkpoint is below the lake, by its name."""
    from spark_jobs import sink

    checkpoint = f"file://{lake.root}/checkpoints/{name}"
    writing = rows.writeStream.trigger(**trigger).option("checkpointLocation", checkpoint).queryName(name)
    if side == TXLOGS:
        folder = lake.folder.store.url
        return writing.foreachBatch(sink.into(folder, name=name, checkpoint=checkpoint)).start()
    writing = writing.format("iceberg").outputMode("append").option("check-nullability", "false")
    return writing.toTable(f"lake.{lake.settings.tables['events'].identifier}")


def queries(spark: Any, lake: Lake, side: str, size: Size, seconds: float, turn: str) -> Turn:
    """
    Lets so many queries of one side write for so many seconds, and reads back what they wrote.
    """
    short = f"{side[0].lower()}{turn}"
    before = lake.table().metadata.last_sequence_number
    with Seen(lake) as seen:
        all_of_them = [
            _started(_rows(spark, f"{short}-{index}-"), lake, side, f"{short}-{index}", processingTime=TRIGGER)
            for index in range(size.queries)
        ]
        batches, ended = _watched(all_of_them, seconds)
        for query in all_of_them:
            query.stop()
        drained(lake)
        time.sleep(1)
        commits = lake.table().metadata.last_sequence_number - before
    rows, missing, double = _account(lake, f"{short}-")
    return Turn(ended, rows, missing, double, commits, batches, seen.ages.get(short, []))


def _watched(all_of_them: Sequence[Any], seconds: float) -> tuple[list[float], list[str]]:
    """What each batch with rows took, ms, and what ended queries."""
    took, ended = dict[tuple[int, int], float](), dict[int, str]()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(1)
        for index, query in enumerate(all_of_them):
            for done in query.recentProgress:
                if done.numInputRows:
                    took[index, done.batchId] = done.durationMs["triggerExecution"]
            if not query.isActive:
                ended.setdefault(index, str(query.exception()))
    return list(took.values()), list(ended.values())


def _account(lake: Lake, prefix: str) -> tuple[int, int, int]:
    """Rows, rows that are missing before the last one of their query, rows that are there again."""
    scan = lake.table().scan(row_filter=StartsWith("key", prefix), selected_fields=("key",))
    keys = Counter(scan.to_arrow()["key"].to_pylist())
    last = dict[str, int]()
    for key in keys:
        query, _, row = key.rpartition("-")
        last[query] = max(last.get(query, -1), int(row))
    return keys.total(), sum(row + 1 for row in last.values()) - len(keys), keys.total() - len(keys)


@contextmanager
def _company(lake: Lake) -> Iterator[None]:
    """The daemons of a lake, and two plain writers."""
    with ExitStack() as ended:
        for module in ("bookkeeper", "reaper"):
            ended.enter_context(running(lake.path, lake.root / f"{module}.log", module))
        writers = [generating(lake, f"plain-{number}", records=200, pause="1s", seconds=86_400) for number in (1, 2)]
        try:
            yield
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGTERM)
            assert [writer.wait(60) for writer in writers] == [0, 0]


def _with_reaper(lake: Lake) -> Lake:
    written = lake.path.read_text()
    written_to(lake.root / "reaper.toml", {"reaper": REAPER})
    lake.path.write_text(f"{written}\n{(lake.root / 'reaper.toml').read_text()}")
    return lake


def _input(root: Path, size: Size) -> tuple[str, Path]:
    """The schema and folder of files that a stream reads one after the other."""
    folder, each = root / "rows", size.rows // size.files
    folder.mkdir()
    for index in range(size.files):
        numbers = pa.array(range(index * each, (index + 1) * each))
        columns = {
            "timestamp": pc.add(numbers, NOON).cast(pa.timestamp("us", "UTC")),
            "key": numbers.cast(pa.string()),
            "value": pa.array([b"x" * 100] * each),
        }
        pq.write_table(pa.table(columns), folder / f"{index:04}.parquet")
    return "timestamp timestamp, key string, value binary", folder


def _drain(spark: Any, lake: Lake, side: str, source: tuple[str, Path]) -> Callable[[], Timing]:
    """A query that writes all that there is, four files a batch, and ends."""

    def run() -> Timing:
        rows = spark.readStream.schema(source[0]).option("maxFilesPerTrigger", 4).parquet(str(source[1]))
        began = time.perf_counter()
        name = f"drain-{side[0].lower()}-{time.time_ns()}"
        _started(rows, lake, side, name, availableNow=True).awaitTermination()
        return Timing((time.perf_counter() - began) * 1000)

    return run


def measure(chosen: Chosen) -> None:
    """
    Three tables: queries at once, the rate of one, upserts.
    """
    from spark_jobs import prepare, session

    size = SIZES[chosen.size]
    with chosen.folder() as root:
        lake = _with_reaper(Lake.at(root / "append", discover="notify"))
        prepare.prepare(os.environ)
        spark = session.build(lake.settings, app="benchmark", extra=_JVM)
        spark.sparkContext.setLogLevel("OFF")
        try:
            title = f"{size.queries} queries at 1 s, {RATE} rows/s each, {size.seconds} s, beside two plain writers; ms"
            chosen.report.table("spark-queries", title, QUERIES)
            with _company(lake):
                for side in (ICEBERG, TXLOGS) if size.queries > 1 else ():
                    queries(spark, lake, side, size, WARM_SECONDS, "warm")
                for side in (ICEBERG, TXLOGS):
                    turn = queries(spark, lake, side, size, size.seconds, "")
                    chosen.report.row(side, *turn.cells(size.queries))
            source = _input(root, size)
            with running(lake.path):
                took = in_turns({side: _drain(spark, lake, side, source) for side in (TXLOGS, ICEBERG)}, size.rounds, 1)
            with running(configured(lake.root, {}, {})):
                took |= in_turns({POLLED: _drain(spark, lake, TXLOGS, source)}, size.rounds)
            chosen.report.table("spark-rate", f"One query, {size.rows:,} rows", ("side", "rows/s", "time"))
            for side, timing in took.items():
                chosen.report.row(side, f"{size.rows / timing.wall * 1000:,.0f}", times(timing.wall, took[TXLOGS].wall))
            title = f"{size.changes:,} changes of {size.keys:,} keys, micro-batches: {size.batches}"
            chosen.report.table("spark-upserts", title, UPSERTS)
            measure_upserts(chosen, spark, root, size.changes, size.keys, size.batches)
        finally:
            spark.stop()


if __name__ == "__main__":
    alone(measure, __doc__)
