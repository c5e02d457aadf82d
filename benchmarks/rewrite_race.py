"""
Compaction on Spark beside a busy queue: which of its groups of files are committed?

    python -m benchmarks.rewrite_race

On this disk, and on an S3 server where each request takes 30 ms longer. A writer publishes a file a second,
`bookkeeper run` commits every second, and a reaper expires all it may every two. Meanwhile each side rewrites days of
its own, five small files in each: Iceberg's CALL alone, the CALL with its first snapshot held by a registered consumer,
and spark_jobs.compact, which commits nothing itself. Needs Spark; no peer.
"""

import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.daemon import running
from benchmarks.harness import Chosen, alone, now, quiet
from benchmarks.lake import IDENTIFIER, Lake
from benchmarks.places import PLACES
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper
from bookkeeper.errors import Retry
from bookkeeper.stores.open import stores_with
from reaper.run import reap
from spark_jobs import prepare, procedures, register, session
from spark_jobs.compact import Compaction, Options
from spark_jobs.maintain import Work
from spark_jobs.table import main_head
from tests.servers import Unavailable
from writers.writer import Writer

#: groups of each side
SIZES = {"toy": 3, "short": 150, "big": 500}
FILES, ROWS, VALUE = 5, 20, b"v" * 500
NAME = f"lake.{IDENTIFIER}"
EAGER = Reaper(older_than=timedelta(seconds=1), retain_last=1)
#: of a request to storage, ms
LATENCIES = {"local": 0, "s3": 30}
COLUMNS = (
    "storage",
    "rewritten by",
    "groups",
    "committed",
    "small files left",
    "its snapshot expired",
    "it says",
    "seconds",
)


@dataclass
class Race:
    """The table, and what goes on beside the side that rewrites."""

    lake: Lake
    spark: Any
    rows: int = 0
    expired: int = 0

    def write(self, writer: Writer, keys: int, *moments: datetime) -> None:
        """Publishes `keys` rows at each moment: a file for each day among them."""
        times = [moment for moment in moments for _ in range(keys)]
        names = [f"{writer.incarnation}-{self.rows + number:09d}" for number in range(len(times))]
        kind = pa.timestamp("us", "UTC")
        columns = {"timestamp": pa.array(times, kind), "key": names, "value": [VALUE] * len(times)}
        writer.write(pa.table(columns))
        writer.publish()
        self.rows += len(times)

    def small_files(self, first: datetime, groups: int) -> None:
        """Five small files in each of so many days."""
        with self._writer("past") as writer:
            for _ in range(FILES):
                self.write(writer, ROWS, *(first + timedelta(days=day) for day in range(groups)))
        self._drained()

    def _writer(self, name: str) -> Writer:
        return Writer.open(self.lake.folder, name, stores=stores_with(self.lake.settings.catalog.properties))

    def _drained(self) -> None:
        while self.lake.folder.pending():
            time.sleep(0.2)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A file a second, and a reaper every two."""
        over = threading.Event()
        threads = [
            threading.Thread(target=self._append, args=(over,)),
            threading.Thread(target=self._reap, args=(over,)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self._drained()

    def _append(self, over: threading.Event) -> None:
        with self._writer("present") as writer:
            while not over.wait(1):
                self.write(writer, 1, now())

    def _reap(self, over: threading.Event) -> None:
        catalog = open_catalog(self.lake.settings.catalog)
        settings = replace(self.lake.settings.tables["events"], reaper=EAGER)
        while not over.wait(2):
            try:
                self.expired += reap(catalog, settings, now(), release_brake=True).snapshots
            except Retry:
                continue  # it lost its race for the commit: the next run goes on

    def snapshots(self) -> set[int]:
        """The ids of all there are."""
        return {row.snapshot_id for row in self.spark.sql(f"SELECT snapshot_id FROM {NAME}.snapshots").collect()}

    def days(self, first: datetime, groups: int) -> tuple[int, int]:
        """How many days are one file now, and the files of all others."""
        last = first + timedelta(days=groups - 1)
        found = self.spark.sql(
            f"SELECT file_count AS files FROM {NAME}.partitions WHERE partition.timestamp_day "
            f"BETWEEN DATE '{first:%Y-%m-%d}' AND DATE '{last:%Y-%m-%d}'"
        ).collect()
        return sum(row.files == 1 for row in found), sum(row.files for row in found if row.files > 1)


def where(first: datetime, groups: int) -> str:
    """The days of one side, as SQL."""
    last = first + timedelta(days=groups)
    return f"timestamp >= {procedures.timestamp(first)} AND timestamp < {procedures.timestamp(last)}"


def call(race: Race, first: datetime, groups: int) -> None:
    """Iceberg's procedure, in partial commits."""
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in procedures.REWRITE.items())
    race.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{IDENTIFIER}', options => map({pairs}), "
        f'where => "{where(first, groups)}")'
    ).collect()


def held(race: Race, first: datetime, groups: int) -> None:
    """The same, with the snapshot it begins with held as a consumer's."""
    settings = race.lake.settings.tables["events"]
    registry = Work(race.spark, NAME, settings, now(), storage=race.lake.settings.catalog.properties).registry()

    def exists(snapshot: int) -> bool:
        return snapshot in race.snapshots()

    with register.hold(registry, lambda: main_head(race.spark, NAME) or 0, exists, now):
        call(race, first, groups)


def ours(race: Race, first: datetime, groups: int) -> None:
    """Published to the bookkeeper."""
    chosen = Options(where=where(first, groups), wait=timedelta(minutes=10))
    settings = race.lake.settings.tables["events"]
    Compaction(race.spark, NAME, settings, race.lake.folder, chosen).run(now())


SIDES: dict[str, Callable[[Race, datetime, int], None]] = {
    "CALL rewrite_data_files": call,
    "CALL, its snapshot held": held,
    "spark_jobs.compact": ours,
}


def measure(chosen: Chosen) -> None:
    """
    One row per storage and side, then the rows of each table.
    """
    groups = SIZES[chosen.size]
    title = f"Rewriting {groups} days of {FILES} small files, beside a commit a second and an expiry every two"
    chosen.report.table("rewrite-race", title, COLUMNS)
    for storage, latency in LATENCIES.items():
        with chosen.folder() as root, ProcessPoolExecutor(1, get_context("spawn")) as child:
            # Of its own process: a JVM that runs takes no further jars.
            name, rows, below = child.submit(raced, root, storage, latency, groups).result()
        label = f"{name}, {latency} ms a request" if latency else name
        for row in rows or [(None,) * (len(COLUMNS) - 1)]:
            chosen.report.row(label, *row)
        chosen.report.note(f"{label}: {below}")


def raced(root: Path, storage: str, latency: int, groups: int) -> tuple[str, list[tuple[Any, ...]], str]:
    """
    Each side, one after the other, on one table: the storage's name, the rows, and what the table holds then.
    """
    quiet()
    try:
        with PLACES[storage](root) as place:
            keys = {**place.far, "warehouse": f"{place.fresh()}/warehouse"}
            lake, rows = Lake.at(root / "lake", keys), list[tuple[Any, ...]]()
            prepare.prepare(os.environ)
            race = Race(lake, session.build(lake.settings, app="rewrite_race"))
            with running(lake.path, root / "bookkeeper.log"):
                for number, (name, act) in enumerate(SIDES.items()):
                    first = datetime(2000 + 5 * number, 1, 1, tzinfo=UTC)
                    race.small_files(first, groups)
                    with place.delayed(latency):
                        rows.append((name, *_side(race, act, first, groups)))
            read = race.spark.table(NAME).count()
            distinct = race.spark.table(NAME).select("key").distinct().count()
            race.spark.stop()
    except Unavailable as exc:
        return storage, [], str(exc)
    held = f"rows written {race.rows:,}, read {read:,}, distinct {distinct:,}; {race.expired} snapshots expired"
    return place.name, rows, held


def _side(race: Race, act: Callable[[Race, datetime, int], None], first: datetime, groups: int) -> tuple[Any, ...]:
    began, said = time.monotonic(), "success"
    with race.busy(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        base = main_head(race.spark, NAME)
        try:
            act(race, first, groups)
        except Exception as exc:  # noqa: BLE001 the table says what was committed
            said = type(exc).__name__
        took = time.monotonic() - began
        gone = base not in race.snapshots()
    committed, small = race.days(first, groups)
    return groups, committed, small, "yes" if gone else "no", said, took


if __name__ == "__main__":
    alone(measure, __doc__)
