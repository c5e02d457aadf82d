"""
A new query reads all rows that the table holds, and then what is committed after them, each once, whatever happens.

The table is a queue with a bookkeeper, retention, the embedded compactor and a reaper that expires all it may.
"""

import json
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partialmethod
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Compaction, Reaper, Retention
from bookkeeper.consumers.lag import added_files, lag
from bookkeeper.errors import NotPossible
from bookkeeper.history.checkpoint import Offset
from bookkeeper.history.consumer_state import BEGINNING, LIVE, NEW, evaluate, read_all
from bookkeeper.history.registry import Registry, dumps, key_of
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from reaper.run import reap
from spark_jobs import query, read_stream, sinks
from spark_jobs.begin import begin
from spark_jobs.begin_hold import Watch
from spark_jobs.begin_plan import seed_text
from spark_jobs.drain import drain
from spark_jobs.hadoop import HadoopCheckpointStore
from tests.support.lake import Clock, Lake, Writes

HOUR = timedelta(hours=1)
_names = count(1)


class Crash(BaseException):
    """Ends a run where it is; nothing catches it."""


class Queue(Lake):
    """A table in the lake of the Spark session, and what works on it. Of each round some rows live for long."""

    def __init__(self, root: Path, **settings: Any) -> None:
        name = f"begun{next(_names)}"
        super().__init__(
            root,
            name=name,
            identifier=f"queue.{name}",
            **{
                "reaper": Reaper(older_than=timedelta(minutes=1), retain_last=1),
                "compaction": Compaction(fan_in=2),
                "retention": Retention(column="timestamp", keep=timedelta(days=30)),
                **settings,
            },
        )
        self.writer, self.keeper, self.rounds, self.expired = Writes(self), self.book(), 0, 0
        self.compactor = Compactor(self.settings, rewrite, self.clock, open_store=self.store)
        #: the keys that retention takes in the round after them
        self.short: list[str] = []

    @property
    def spark_name(self) -> str:
        return f"lake.{self.settings.identifier}"

    def round(self, rows: int = 3) -> None:
        """Two commits of new rows, a file that retention takes in an hour, rewrites, and an expiry."""
        for part in range(2):
            keys = [f"{self.rounds:02d}-{part}-{row}" for row in range(rows)]
            self.writer.publish(*keys)
            self.tick_at(minutes=1)
        self.compactor.round(self.catalog, self.clock.now)
        self.tick_at(minutes=1)
        self.expire()
        self.rounds += 1

    def tick_at(self, **move: float) -> None:
        self.clock.move(**move)
        self.keeper.tick(self.clock.now)

    def short_lived(self, *keys: str) -> None:
        """Rows that retention takes within two hours."""
        self.writer.publish(*keys, at=self.clock.now - timedelta(days=30) + HOUR)
        self.tick_at(seconds=1)

    def expire(self) -> None:
        self.clock.move(minutes=2)
        self.expired += reap(self.catalog, self.settings, self.clock.now, open_store=self.store).snapshots

    @property
    def written(self) -> list[str]:
        """The keys of all rows that were published."""
        return sorted(self.writer.keys)


@pytest.fixture
def queue(lake: Any, spark: Any) -> Queue:
    """After three rounds, of which no more than the last commits are kept."""
    made = Queue(lake.config.parent)
    for _ in range(3):
        made.round()
    assert made.expired > 5 and len(made.written) == 18
    return made


class Query:
    """A query into a table of its own, run as the job runs it; `crash` is a step before which it ends."""

    def __init__(self, spark: Any, lake: Any, queue: Queue, folder: Path, **how: Any) -> None:
        self.spark, self.queue, self.how = spark, queue, how
        self.settings = with_table(lake.settings, queue)
        self.checkpoint = folder / "checkpoint"
        self.sink = f"table:queue.{queue.settings.name}_seen{next(_names)}"
        self.steps: list[str] = []

    @property
    def target(self) -> str:
        return f"lake.{self.sink.removeprefix('table:')}"

    def begin(self, crash: str = "", **how: Any) -> Any:
        def step(name: str) -> None:
            self.steps.append(name)
            if name == crash:
                raise Crash(name)

        given = {"clock": self.queue.clock, "wait": lambda seconds: None, **how}
        output = sinks.output_of(self.spark, self.sink, "lake")
        return begin(
            self.spark, self.settings, self.queue.settings.name, str(self.checkpoint), step=step, output=output, **given
        )

    def run(self, crash: str = "", during: Any = lambda: None, **how: Any) -> None:
        with self.begin(crash, **how) as first:
            during()
            sinks.write(first, self.sink, "lake", self.queue.clock)

    def drain(self) -> None:
        rows = read_stream.read(self.spark, self.queue.spark_name, **self.how)
        drain(
            self.spark,
            self.queue.spark_name,
            str(self.checkpoint),
            lambda trigger: sinks.start(rows, self.sink, "lake", str(self.checkpoint), trigger),
        )

    @property
    def keys(self) -> list[str]:
        return sorted(row.key for row in self.spark.table(self.target).select("key").collect())

    @property
    def state(self) -> Any:
        """As the reaper sees it now."""
        table, registry = self.queue.table(), Registry(self.queue.folder.store, ())
        (found,) = evaluate(
            read_all(registry, self.queue.store), table.metadata, self.queue.settings.reaper, self.queue.clock.now
        )
        return found

    @property
    def lag(self) -> Any:
        table = self.queue.table()
        return lag(self.state, table.metadata, added_files(table.io), self.queue.clock.now)


def with_table(settings: Any, queue: Queue) -> Any:
    return replace(settings, tables={**settings.tables, queue.settings.name: queue.settings})


@pytest.fixture
def seen(spark: Any, lake: Any, queue: Queue, tmp_path: Path) -> Query:
    return Query(spark, lake, queue, tmp_path, max_files=2)


def test_a_query_that_begins_late_reads_each_row_once_while_the_table_is_worked_on(queue: Queue, seen: Query) -> None:
    def during() -> None:
        for _ in range(3):
            queue.round()

    seen.run(during=during)
    assert seen.keys == queue.written[:18]
    assert json.loads((seen.checkpoint / "sources/0/offsets/0").read_text())["scan_all_files"] is False
    for _ in range(2):
        queue.round()
        seen.drain()
    assert seen.keys == queue.written


CRASHES = (
    ("register", "clean", "plan", "hold", "batch", "drafted", "seed", "seeded"),
    ("drafted", "register", "hold", "drafted"),
)


@pytest.mark.parametrize("crashes", CRASHES, ids=" ".join)
def test_runs_that_end_before_any_step_are_repeated_and_each_row_comes_once(
    queue: Queue, seen: Query, crashes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drafted`: in the middle of the writing of the first offset."""
    for number, crash in enumerate(crashes):
        with monkeypatch.context() as patch, suppress(Crash):
            if crash == "drafted":
                patch.setattr(HadoopCheckpointStore, "write", draft_of_the_seed)
            seen.run(crash)
        if number % 3 == 0:
            queue.round()
    seen.run()
    queue.round()
    seen.drain()
    assert seen.keys == queue.written


WRITE = HadoopCheckpointStore.write


def draft_of_the_seed(store: HadoopCheckpointStore, key: str, data: bytes) -> None:
    """As `write`, but a crash before the rename of the first offset."""
    if key.startswith("sources/"):
        WRITE(store, "sources/0/offsets/.0.d.tmp", data)
        raise Crash(key)
    WRITE(store, key, data)


def test_a_batch_that_is_cut_in_half_leaves_nothing_of_it(queue: Queue, seen: Query) -> None:
    def die() -> None:
        seen.spark.sparkContext.cancelAllJobs()
        raise Crash

    with suppress(Crash):
        seen.run(during=die)
    queue.round()
    seen.run()
    assert seen.keys == queue.written[:18], "the same snapshot again"


def test_its_snapshot_is_held_from_the_plan_to_the_first_micro_batch(queue: Queue, seen: Query) -> None:
    states = []
    # Of a query that Spark started long ago, and that was stopped before it planned anything.
    stale = seen.checkpoint / "sources/0/offsets/0"
    stale.parent.mkdir(parents=True)
    stale.write_text(seed_text(Offset(4711, 0)))
    with seen.begin() as first:
        for _ in range(2):
            queue.round()
            states.append(seen.state)
        assert first.snapshot is not None and first.snapshot in main_of(queue)
        assert (seen.lag.rows, seen.lag.files > 0, seen.lag.behind > timedelta(0)) == (30, True, True)
        sinks.write(first, seen.sink, "lake", queue.clock)
    assert [state.state for state in states] == [BEGINNING, BEGINNING]
    assert seen.state.state == LIVE and seen.lag.rows == 12
    queue.round()
    seen.drain()
    assert (seen.keys, seen.lag.rows) == (queue.written, 0)


def main_of(queue: Queue) -> list[int]:
    return [item.snapshot_id for item in queue.table().metadata.snapshots]


def test_a_hold_by_a_run_that_was_killed_lasts_for_max_hold_from_its_last_renewal(queue: Queue, seen: Query) -> None:
    with suppress(Crash):
        seen.run("batch")
    held, share = seen.state, queue.settings.reaper.max_hold / timedelta(hours=10)
    queue.round()
    queue.clock.move(hours=10)
    assert seen.state.used == pytest.approx(1 / share, rel=0.05) and seen.state.first == held.first == 0
    # As an earlier reaper sees it, which knows nothing of a batch: it keeps everything.
    record = next(iter(Registry(queue.folder.store, ()).all()))
    assert {record.begins_with} < set(main_of(queue))
    queue.folder.store.replace(key_of(record.name), dumps(replace(record, begins_with=None, renewed=None)))
    assert (seen.state.state, seen.state.first) == (NEW, 0)


def test_rows_that_retention_takes_under_the_batch_are_read_and_those_before_it_are_not(
    queue: Queue, seen: Query
) -> None:
    queue.short_lived("gone", "gone too")
    queue.clock.move(hours=2)
    queue.tick_at(seconds=1)
    queue.short_lived("short")
    queue.tick_at(hours=2)

    def retention() -> None:
        queue.writer.publish("next")
        queue.tick_at(hours=2)
        queue.expire()

    seen.run(during=retention)
    seen.drain()
    assert "delete" in queue.operations()
    assert seen.keys == sorted({*queue.written} - {"gone", "gone too"})


def test_a_second_run_of_one_checkpoint_is_refused_while_the_first_reads_and_then_goes_on(
    spark: Any, lake: Any, queue: Queue, seen: Query, tmp_path: Path
) -> None:
    other, waits = Query(spark, lake, queue, tmp_path), []
    other.sink = seen.sink
    with seen.begin() as first:
        with pytest.raises(NotPossible, match=r"another run of checkpoint-\w+ reads its first batch"):
            other.run(wait=waits.append)
        assert sum(waits) >= 15
        sinks.write(first, seen.sink, "lake", queue.clock)
    other.run()
    other.drain()
    assert other.keys == queue.written


def test_an_own_output_takes_the_batch_again_and_then_the_stream(queue: Queue, seen: Query, tmp_path: Path) -> None:
    folder, ids = tmp_path / "files", []

    def written(rows: Any, number: int) -> None:
        rows.select("key").write.mode("overwrite").parquet(f"{folder}/batch={number}")

    for crash in (True, False):
        with suppress(Crash), seen.begin() as first:
            written(first.rows, -1)
            ids.append((first.id, first.snapshot))
            queue.round()
            if crash:
                raise Crash
            first.done()
    rows = read_stream.read(seen.spark, queue.spark_name)
    writer = rows.writeStream.foreachBatch(written).option("checkpointLocation", str(seen.checkpoint))
    drain(
        seen.spark,
        queue.spark_name,
        str(seen.checkpoint),
        lambda trigger: writer.trigger(**query.trigger(trigger)).start(),
    )
    assert ids[0] == ids[1]
    assert sorted(row.key for row in seen.spark.read.parquet(str(folder)).collect()) == queue.written


def test_a_block_that_ends_without_done_is_an_error(queue: Queue, seen: Query) -> None:
    with pytest.raises(NotPossible, match="was not said to be done"), seen.begin():
        pass
    seen.run()
    assert seen.keys == queue.written


def test_a_batch_that_takes_too_long_is_ended_with_the_estimate(
    queue: Queue, seen: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hours(Clock):
        """Half an hour later at each look."""

        def __call__(self) -> datetime:
            return self.move(minutes=30)

    def wait(_: Any) -> None:
        while not released.exists():
            time.sleep(0.02)

    released = tmp_path / "released"
    monkeypatch.setattr(Watch, "running", partialmethod(Watch.running, timedelta(milliseconds=50)))
    late, most = Hours(queue.clock.now), r"the 18 rows .* held for 1 d at most"
    with pytest.raises(NotPossible, match=most) as refused, seen.begin(clock=late) as first:
        first.rows.count()
        seen.spark.sparkContext.parallelize(range(40), 40).foreach(wait)
    released.touch()
    assert "max-hold" in refused.value.hint
