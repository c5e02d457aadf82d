"""
Keeps the snapshot whose rows a batch reads: its record for the reaper, the lease of its run, and how long it will take.

The record says when the batch was last seen running, and a consumer's max-hold counts from then. So a batch holds its
snapshot for as long as it runs, and a stream has all of max-hold behind it. Two things bound that: what the snapshots
behind it take up in metadata.json (max-hold-bytes), by the reaper, and max-hold itself, here: a batch that would take
longer by the rate so far is ended with the estimate, before hours are lost.

A crash leaves the record, which holds the snapshot for max-hold from its last renewal, and a lease that ends by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.config.units import format_duration, spoken_size
from bookkeeper.errors import BookkeeperError, NotPossible, Retry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Reaper
    from bookkeeper.history.main_history import MainHistory
    from bookkeeper.history.registry import Consumer, Registry
    from bookkeeper.leases.lease import Lease

Clock = Callable[[], datetime]
#: less than a third of a lease
BEAT = timedelta(seconds=4)
RENEW_EVERY = timedelta(minutes=1)
#: a run that was killed leaves its lease on an object store for 15 s
LEASE_PATIENCE, LEASE_PAUSE = timedelta(seconds=20), timedelta(seconds=1)
#: Spark's JVM outlives a killed driver in Python by moments, in which it may commit
GRACE = timedelta(seconds=3)


@dataclass
class Record:
    """The record of the query in the txlog folder. There is none without a registry, or for a configured consumer."""

    registry: Registry | None
    consumer: Consumer | None
    clock: Clock

    def hold(self, snapshot: int | None) -> bool:
        """
        Hold this snapshot and all after it (None: everything) from now on; False where everything is held already.

        Raises StorageUnavailable.
        """
        from bookkeeper.history.registry import JOB

        if self.registry is None or self.consumer is None or self.consumer.by != JOB:
            return False
        if snapshot is None and self.consumer.begins_with is None:
            return False
        renewed = None if snapshot is None else self.clock()
        wanted = replace(self.consumer, begins_with=snapshot, renewed=renewed)
        self.registry.add(wanted)
        self.consumer = wanted
        return True


@contextmanager
def alone(lease: Lease, name: str, clock: Clock, wait: Callable[[float], object]) -> Iterator[None]:
    """
    The lease for the block; raises NotPossible while another run has it.
    """
    tries = LEASE_PATIENCE // LEASE_PAUSE
    for number in range(tries + 1):
        if lease.hold(clock()):
            break
        if number == tries:
            hint = "Wait for it. Of two runs with one checkpoint each would write all rows."
            raise NotPossible(f"another run of {name} reads its first batch", hint=hint)
        wait(LEASE_PAUSE.total_seconds())
    if number:
        wait(GRACE.total_seconds())
    try:
        yield
    finally:
        lease.release()


@dataclass
class Batch:
    """
    A batch that runs: its snapshot and rows, the share of its tasks that is done (0 while unknown), and how to end it.
    """

    snapshot: int
    rows: int
    bytes: int
    began: datetime
    done: Callable[[], float]
    cancel: Callable[[], None]

    def trouble(self, history: MainHistory, settings: Reaper, now: datetime) -> NotPossible | None:
        """Why it will take longer than its snapshot may be held, by the rate so far."""
        share, elapsed = self.done(), now - self.began
        if elapsed < RENEW_EVERY or not share or self.snapshot not in history.index:
            return None
        whole = elapsed / share
        taken = history.bytes_after[history.index[self.snapshot]] * (whole / elapsed)
        rate = spoken_size(self.bytes * share / elapsed.total_seconds())
        what = (
            f"the {self.rows:,} rows ({spoken_size(self.bytes)}) of snapshot {self.snapshot} take about "
            f"{format_duration(_rounded(whole))} at {rate}/s so far"
        )
        more = "Give Spark more cores or executors"
        instead = "`--start end`, or a time, begins without these rows."
        if whole > settings.max_hold:
            cause = f"{what}: a snapshot is held for {format_duration(settings.max_hold)} at most (max-hold)"
            return NotPossible(cause, hint=f"{more}, or raise max-hold in [reaper]. {instead}")
        if taken > settings.max_hold_bytes:
            cause = (
                f"{what}: the commits of that time take about {spoken_size(taken)} of metadata.json, and a consumer "
                f"holds back {spoken_size(settings.max_hold_bytes)} at most (max-hold-bytes)"
            )
            return NotPossible(cause, hint=f"{more}, let the table commit less often (window). {instead}")
        return None


def _rounded(span: timedelta) -> timedelta:
    return timedelta(minutes=max(1, round(span / timedelta(minutes=1))))


@dataclass
class Watch:
    """
    Looks after a batch from a thread of its own; `verdict` is why it was ended.
    """

    record: Record
    lease: Lease
    batch: Batch
    settings: Reaper
    history: Callable[[], MainHistory]
    verdict: BookkeeperError | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    #: of the lease, which the batch's own thread asks too
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self, beat: timedelta = BEAT) -> Iterator[None]:
        """The thread, for the block."""
        thread = threading.Thread(target=self._run, args=(beat,), name="begin", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def check(self) -> None:
        """Raises why the batch was ended, or will be."""
        self.verdict = self.verdict or self._lost(self.record.clock())
        if self.verdict is not None:
            raise self.verdict

    def _run(self, beat: timedelta) -> None:
        renewed = self.record.clock()
        while self.verdict is None and not self._over.wait(beat.total_seconds()):
            now = self.record.clock()
            try:
                self.verdict = self._lost(now)
                if self.verdict is None and now - renewed >= RENEW_EVERY:
                    renewed = now
                    self.record.hold(self.batch.snapshot)
                    if self.record.registry is not None:
                        self.verdict = self.batch.trouble(self.history(), self.settings, now)
            except BookkeeperError as exc:
                # What is held stays held: max-hold counts from the last renewal.
                click.echo(f"-- the hold on snapshot {self.batch.snapshot} was not renewed: {exc}", err=True)
        if self.verdict is not None:
            self.batch.cancel()

    def _lost(self, now: datetime) -> Retry | None:
        with self._lock:
            if self.lease.hold(now):
                return None
        hint = "Run it once. If this machine was suspended: the other run goes on."
        return Retry("another run with this checkpoint has taken over the first batch", hint=hint)


def tasks_done(spark: SparkSession, group: str) -> float:
    """
    The share of the tasks of a job group that is done; 0 while none is known.
    """
    tracker: Any = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    tasks = sum(stage.numTasks for stage in known)
    return sum(stage.numCompletedTasks for stage in known) / tasks if tasks else 0.0


def batch_of(spark: SparkSession, group: str, history: MainHistory, snapshot: int, now: datetime) -> Batch:
    """
    The batch that reads this snapshot of main by the jobs of `group`, from now on.
    """
    from bookkeeper.history.main_history import counted

    held = history.snapshots[history.index[snapshot]]
    rows, size = counted(held, "total-records"), counted(held, "total-files-size")
    cancel = spark.sparkContext.cancelJobGroup
    return Batch(snapshot, rows, size, now, lambda: tasks_done(spark, group), lambda: cancel(group))
