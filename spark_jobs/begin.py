"""
Begins a query on a table: the rows that the table holds by a batch, and what is committed after them by its stream.

Iceberg's stream begins at the oldest snapshot that is kept: rows of expired snapshots are live in the table and never
read. So a new query reads a snapshot S in a batch first, and its checkpoint is made to begin behind S. In this order:

1. The query is registered with the reaper, which then keeps everything.
2. A first offset that Spark wrote and no batch used is removed. A crash behind 1 or 2 leaves a registered query without
   an offset: it holds snapshots for max-hold, and the next start is like the first.
3. S is chosen: the newest append of main, of a table that was loaded after 1. `bookkeeper-begin.json` in the checkpoint
   is written: the plan, with an id of its own. A crash leaves a plan whose id is in no output: the next start reads the
   same S again, and another one only if S is not on main any more.
4. The record in the registry names S, and is renewed while the batch runs: S and all after it are kept.
5. The batch. A table sink has the plan's id in the summary of the commit with the rows. A crash before that commit
   leaves files that nothing names, and the next start repeats the batch; behind it, the next start finds the id and
   reads nothing again. Other outputs have to take the batch twice, or tell whether they have it (`Output`).
6. S is looked for on main once more: only a stream from there misses nothing. Then `sources/0/offsets/0` is written,
   the offset behind S's own files. A crash in between is one before it.
7. From now on the checkpoint itself tells the reaper what is held. A first offset that is the plan's counts as begun: a
   crash before the first micro-batch leaves a query that starts there.

One run at a time does this, by a lease in the txlog folder. Plan and first offset are written whole or not at all, by
Spark's own filesystem; a crash in that leaves a small file whose name begins with a dot, which Spark passes over.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

from bookkeeper.console.options import pick_table
from bookkeeper.errors import NotPossible
from spark_jobs import begin_hold, register, session
from spark_jobs import start_option as starts
from spark_jobs.begin_hold import Clock
from spark_jobs.begin_plan import PLAN, Plan, dumps, has_begun, plan_in, seed_text
from spark_jobs.columns_now import rows_of
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.start_option import BEGINNING, Loaded, Start, left_out, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bookkeeper.config.settings import Settings
    from bookkeeper.leases.lease import Lease

UNREGISTERED = "none"


@dataclass(frozen=True, slots=True)
class Has:
    """What an output has already: the rows of this snapshot (None: of an empty table)."""

    snapshot: int | None


class Output(Protocol):
    """
    Tells what the output of a query has, so that a batch that was interrupted is not written twice.

    `anew` is the advice for one whose rows fit to nothing that the table has kept.
    """

    @property
    def anew(self) -> str: ...

    def note(self) -> int | None:
        """What `has` will need to know of the output as it is before the batch."""

    def has(self, plan: Plan | None) -> Has | None:
        """Whose rows it has: those of this plan, or without one of its own knowledge. Raises NotPossible."""


class Unknown:
    """An output that takes the batch as often as it comes."""

    anew = "Empty the output, or take a new one, and take a new checkpoint."

    def note(self) -> int | None:
        return None

    def has(self, plan: Plan | None) -> Has | None:
        return None


class Beginning:
    """
    The beginning of a query: `rows` are to be written before its stream is started, then `done` is called.

    `rows` is None where there is nothing to write: the checkpoint has begun, or begins without the table's rows.
    `snapshot` is the one whose rows they are, `count` how many by its summary, which deletes of a keyed table do not
    lower. `id` names the attempt: the same for the same rows. `goes_on` says that the checkpoint had begun before.
    """

    def __init__(
        self,
        plan: Plan | None = None,
        rows: DataFrame | None = None,
        count: int = 0,
        seed: Callable[[Plan], None] | None = None,
    ) -> None:
        self.rows, self.count, self._plan, self._seed = rows, count, plan, seed
        self.goes_on = plan is None
        self.snapshot, self.id = (plan.snapshot, plan.id) if plan else (None, "")
        self.is_done = rows is None

    def done(self) -> None:
        """
        The rows are written: the checkpoint's stream begins behind them. Raises NotPossible when it cannot any more.
        """
        if self._plan is not None and self._seed is not None and not self.is_done:
            self._seed(self._plan)
            self.is_done = True


@contextmanager
def begin(
    spark: SparkSession,
    settings: Settings,
    table: str | None,
    checkpoint: str,
    *,
    start: Start | None = None,
    consumer: str | None = None,
    output: Output | None = None,
    clock: Clock = lambda: datetime.now(UTC),
    wait: Callable[[float], object] = time.sleep,
    step: Callable[[str], None] = lambda name: None,
) -> Iterator[Beginning]:
    """
    Begins the query of `checkpoint` on a table (a section of the configuration; None: the only one), which is
    registered as `consumer` (None: by a name made of the checkpoint; "none": not at all).

    `start` is "beginning" (also None), "oldest", "end" or an aware time. A checkpoint that has begun goes on whatever
    it is. The block writes the rows and calls `done`, by jobs of this thread; the stream is started after the block.
    `step` is called with the name of each step before it.

    Raises ConfigInvalid; NotPossible when the checkpoint is another table's or cannot begin there, when another run is
    at it, or when the batch would take longer than its snapshot may be held; Retry, StorageUnavailable.
    """
    starts.check(BEGINNING if start is None else start, clock())
    run = _Run(spark, settings, table, checkpoint, consumer, output or Unknown(), clock, step)
    run.register()
    if run.has_begun(start):
        yield Beginning()
        return
    with begin_hold.alone(run.lease(), run.registered_name, clock, wait):
        # Another run may have begun while this one waited.
        if run.has_begun(start):
            yield Beginning()
            return
        with run.prepared(BEGINNING if start is None else start) as beginning:
            yield beginning


class _Run:
    """One run of `begin`."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        table: str | None,
        checkpoint: str,
        consumer: str | None,
        output: Output,
        clock: Clock,
        step: Callable[[str], None],
    ) -> None:
        self.spark, self.settings, self.output, self.clock, self.step = spark, settings, output, clock, step
        self.about, self.name = pick_table(settings, table), session.table_name(settings, table)
        self.store, self.consumer = HadoopCheckpointStore(spark, checkpoint), consumer
        self.record = begin_hold.Record(None, None, clock)
        self._lease: Lease | None = None
        self._watch: begin_hold.Watch | None = None

    @property
    def registered_name(self) -> str:
        return self.record.consumer.name if self.record.consumer else self.store.url

    def register(self) -> None:
        """1. From here on nothing is expired that the query will need."""
        self.step("register")
        if self.consumer == UNREGISTERED:
            return
        # To drain it needs no more than its newest offset: only Spark's own trigger available-now goes back to the
        # first.
        found = register.register(
            self.spark, self.settings, self.about, self.name, self.store.url, self.clock(), available_now=False,
            consumer=self.consumer,
        )  # fmt: skip
        registry = register.registry_of(self.spark, self.settings, self.about, self.name)
        self.record = begin_hold.Record(registry, found, self.clock)

    def lease(self) -> Lease:
        """Of the checkpoint, whatever name a run has; a query that is not registered has none."""
        from bookkeeper.history.registry import FOLDER, name_for
        from bookkeeper.leases.lease import NoLease, lease_on

        self._lease = NoLease()
        if self.record.consumer is not None:
            folder = register.folder_of(self.spark, self.settings, self.about, self.name)
            holder = f"{socket.gethostname()} {os.getpid()}"
            self._lease = lease_on(folder, f"{FOLDER}{name_for(self.store.url)}.lease", holder)
        return self._lease

    def has_begun(self, start: Start | None) -> bool:
        """Whether the checkpoint goes on by itself."""
        if not has_begun(self.store):
            return False
        if start is not None:
            click.echo(f"-- {self.store.url} has begun and goes on: --start {start} counts for a new one", err=True)
        return True

    def load(self) -> Loaded:
        return load(self.spark, self.name)

    @contextmanager
    def prepared(self, start: Start) -> Iterator[Beginning]:
        """2. to 6. for a query that has not begun, around the block that writes."""
        from bookkeeper.history.checkpoint import initial_key

        self._check_sources()
        self.step("clean")
        self.store.delete(initial_key(None))
        plan, loaded = self._planned(start)
        self.step("hold")
        self.record.hold(plan.snapshot)
        if not plan.batch:
            self.seed(plan)
            yield Beginning(plan)
            return
        files, count = loaded.total(plan.snapshot)
        beginning = Beginning(plan, self._rows(plan, loaded), count, self.seed)
        if count:
            click.echo(f"-- first a batch: {count:,} rows in {files:,} files, snapshot {plan.snapshot}", err=True)
        self.step("batch")
        with self._watched(plan, loaded):
            yield beginning
        if not beginning.is_done:
            raise NotPossible(
                f"the first batch of {self.name} was not said to be done: {self.store.url} has not begun",
                hint="Call done() once its rows are written, inside of the block.",
            )

    def _check_sources(self) -> None:
        others = [item.key for item in self.store.list("sources/") if item.key.rpartition("/")[2] not in ("0", "")]
        if others:
            raise NotPossible(
                f"{self.store.url} is of a query with several sources ({', '.join(sorted(others))})",
                hint="A query that begins with the rows of a table reads this table alone: give each a query.",
            )

    def _planned(self, start: Start) -> tuple[Plan, Loaded]:
        """3. The plan that is in the checkpoint, if it can still be carried out, or a new one."""
        plan, loaded = plan_in(self.store), self.load()
        if plan is not None and plan.table != loaded.uuid:
            raise NotPossible(
                f"{self.store.url} begins the table {plan.table}, and {self.name} is {loaded.uuid}",
                hint="Each table has a checkpoint of its own; of a table that was made anew, take a new one.",
            )
        is_in_doubt = plan is not None and plan.batch
        has = self.output.has(plan) if is_in_doubt or start == BEGINNING else None
        if has is None and plan is not None and plan.start == str(start) and loaded.has_all_after(plan.offset):
            return plan, loaded
        # What is held for an old plan says nothing of another one: everything is held, then it is chosen.
        if self.record.hold(None):
            loaded = self.load()
        if has is None:
            return self._written(self._new(start, loaded)), loaded
        return self._behind(has, plan, loaded), loaded

    def _written(self, plan: Plan) -> Plan:
        self.step("plan")
        self.store.write(PLAN, dumps(plan))
        return plan

    def _behind(self, has: Has, plan: Plan | None, loaded: Loaded) -> Plan:
        """The plan for an output that has its rows already."""
        what = "an empty table" if has.snapshot is None else f"snapshot {has.snapshot}"
        is_there = has.snapshot is None or has.snapshot in loaded.history.index
        offset = loaded.after(has.snapshot) if is_there else None
        if offset is None or not loaded.has_all_after(offset):
            raise NotPossible(
                f"the output has the rows of {what}, and {self.name} has not kept what was committed after it",
                hint=self.output.anew,
            )
        click.echo(f"-- the output has the rows of {what}: the stream begins behind it", err=True)
        if plan is not None and plan.offset == offset:
            return replace(plan, batch=False)  # it stays as it is written: by its id the output was asked
        return self._written(Plan(loaded.uuid, BEGINNING, uuid.uuid4().hex, offset, batch=False))

    def _new(self, start: Start, loaded: Loaded) -> Plan:
        offset = loaded.first_of(start)
        is_batch = start == BEGINNING
        note = self.output.note() if is_batch else None
        if start == starts.OLDEST:
            _say_left_out(self.spark, loaded)
        return Plan(loaded.uuid, str(start), uuid.uuid4().hex, offset, is_batch, note)

    def _rows(self, plan: Plan, loaded: Loaded) -> DataFrame:
        if plan.snapshot is None:
            return self.spark.table(self.name).limit(0)
        return rows_of(self.spark, loaded, plan.snapshot)

    @contextmanager
    def _watched(self, plan: Plan, loaded: Loaded) -> Iterator[None]:
        if plan.snapshot is None:
            yield
            return
        assert self._lease is not None, "a batch is read by the run that has the lease"
        context: Any = self.spark.sparkContext
        batch = begin_hold.batch_of(self.spark, plan.id, loaded.history, plan.snapshot, self.clock())
        watch = begin_hold.Watch(self.record, self._lease, batch, self.about.reaper, lambda: self.load().history)
        self._watch = watch
        context.setJobGroup(plan.id, f"first batch of {self.name}")
        try:
            with watch.running():
                yield
        except Exception as exc:
            if watch.verdict is not None:
                raise watch.verdict from exc
            raise
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
            context.setLocalProperty("spark.job.description", None)

    def seed(self, plan: Plan) -> None:
        """6. The first offset of the stream; raises NotPossible when the table does not hold any more what it needs."""
        from bookkeeper.history.checkpoint import initial_key

        if self._watch is not None:
            self._watch.check()
        if not self.load().has_all_after(plan.offset):
            raise NotPossible(
                f"{self.name} was rolled back or expired behind snapshot {plan.snapshot} while its rows were read",
                hint=self.output.anew,
            )
        self.step("seed")
        self.store.write(initial_key(None), seed_text(plan.offset).encode())
        self.step("seeded")
        if plan.batch:
            self.record.hold(plan.snapshot)  # max-hold of the stream counts from now on


def _say_left_out(spark: SparkSession, loaded: Loaded) -> None:
    gone, rewritten = left_out(spark, loaded)
    if gone or rewritten:
        more = f"; and of {rewritten:,} rows that were rewritten since, those that were, too" if rewritten else ""
        click.echo(
            f"-- --start oldest leaves out {gone:,} rows that {loaded.name} holds: they were committed before the "
            f"oldest commit that is kept{more}",
            err=True,
        )
