"""
Repeats runs: every table by its own interval, one run of it at a time, until a stop is requested.

An error of one table ends neither the loop nor the runs of other tables; the table is tried again by its interval.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor  # type: ignore[import-untyped]
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]
from apscheduler.schedulers.base import BaseScheduler  # type: ignore[import-untyped]

from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import BookkeeperError, Halt, Hold

log = logging.getLogger(__name__)
#: how often the clock is looked at
_LOOK = 60.0

#: threads: one for each table that is reaped; one for all compactions, but for those that would keep other tables
#: waiting: with a limit of bytes a second, and on Spark
REAP, COMPACT, PACED, ON_SPARK = "reap", "compact", "paced", "spark"


@dataclass
class Round:
    """
    One table in the loop: what a run does, how often, in which thread, and the last error, "" after a run without one.
    """

    table: str
    every: timedelta
    act: Callable[[datetime], object]
    thread: str = REAP
    trouble: str = ""

    @property
    def kind(self) -> str:
        """REAP or COMPACT."""
        return REAP if self.thread == REAP else COMPACT

    def run(self, now: datetime) -> None:
        """
        One run; never raises. The same error is logged once, until a run succeeds.
        """
        try:
            self.act(now)
        except BookkeeperError as exc:
            if self._is_news(exc):
                self._log(exc)
        except Exception as exc:
            # A defect of the reaper must not stop the other tables.
            if self._is_news(exc):
                log.exception("run failed", extra={"action": "defect", "table": self.table, "run": self.kind})
        else:
            if self.trouble:
                log.info("table works again", extra={"action": "recover", "table": self.table, "run": self.kind})
            self.trouble = ""

    def _is_news(self, exc: Exception) -> bool:
        before, self.trouble = self.trouble, f"{type(exc).__name__}: {exc}"
        return self.trouble != before

    def _log(self, exc: BookkeeperError) -> None:
        facts = {"table": self.table, "run": self.kind, "cause": self.trouble, "hint": exc.hint}
        if isinstance(exc, (Halt, Hold)):
            log.error("table halted", extra={"action": "halt", **facts})
        else:
            log.warning("run postponed", extra={"action": "postpone", **facts})


def scheduled(
    rounds: Sequence[Round],
    clock: Callable[[], datetime],
    begin_compacting: Callable[[], object] = lambda: None,
    stopped: Callable[[], bool] = lambda: False,
) -> BaseScheduler:
    """
    A scheduler with one interval job per round, the first run of each at once.

    Tables are reaped at the same time. They are compacted one after the other, so that memory and CPU are those of one,
    and so are those of PACED beside them; `begin_compacting` is called in these two threads first. Jobs on Spark also
    run one after the other. No run begins once `stopped`: many may wait for one thread.
    """
    reaped = sum(item.kind == REAP for item in rounds)
    most, first = {REAP: max(reaped, 1)}, {name: {"initializer": begin_compacting} for name in (COMPACT, PACED)}
    names = (REAP, COMPACT, PACED, ON_SPARK)
    executors = {name: ThreadPoolExecutor(most.get(name, 1), first.get(name)) for name in names}

    def begin(item: Round) -> None:
        if not stopped():
            item.run(clock())

    scheduler = BackgroundScheduler(timezone=UTC, executors=executors)
    for item in rounds:
        scheduler.add_job(
            begin,
            "interval",
            args=(item,),
            seconds=item.every.total_seconds(),
            id=item.table if item.kind == REAP else f"{item.kind} {item.table}",
            name=f"{item.kind} {item.table}",
            executor=item.thread,
            next_run_time=clock(),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )
    return scheduler


def run(
    rounds: Sequence[Round],
    clock: Callable[[], datetime],
    stop: StopSignal,
    begin_compacting: Callable[[], object] = lambda: None,
) -> None:
    """
    Runs every table by its interval until a stop is requested; ends after the current steps, and begins no other.
    """
    scheduler = scheduled(rounds, clock, begin_compacting, lambda: stop.requested)
    scheduler.start()
    while not stop.wait(_LOOK):
        _follow_clock(scheduler, clock())
    scheduler.shutdown(wait=True)


def _follow_clock(scheduler: BaseScheduler, now: datetime) -> None:
    """Once the clock is put back, what is due at the time that it showed before is due now."""
    for job in scheduler.get_jobs():
        if job.next_run_time - now > job.trigger.interval:
            job.modify(next_run_time=now)
