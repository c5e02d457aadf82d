"""
Repeats runs: every table by its own interval, one run of it at a time, until a stop is requested.

An error of one table ends neither the loop nor the runs of other tables; the table is tried again by its interval.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_SCHEDULER_STARTED
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.schedulers.blocking import BlockingScheduler

from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import BookkeeperError, Halt, Hold

log = logging.getLogger(__name__)
_LONG = 3600.0


@dataclass
class Round:
    """One table in the loop: what a run does, how often, and the last error, "" after a run without one."""

    table: str
    every: timedelta
    act: Callable[[datetime], object]
    trouble: str = ""

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
                log.exception("run failed", extra={"action": "defect", "table": self.table})
        else:
            if self.trouble:
                log.info("table works again", extra={"action": "recover", "table": self.table})
            self.trouble = ""

    def _is_news(self, exc: Exception) -> bool:
        before, self.trouble = self.trouble, f"{type(exc).__name__}: {exc}"
        return self.trouble != before

    def _log(self, exc: BookkeeperError) -> None:
        facts = {"table": self.table, "cause": self.trouble, "hint": exc.hint}
        if isinstance(exc, (Halt, Hold)):
            log.error("table halted", extra={"action": "halt", **facts})
        else:
            log.warning("run postponed", extra={"action": "postpone", **facts})


def scheduled(rounds: Sequence[Round], clock: Callable[[], datetime]) -> BlockingScheduler:
    """
    A scheduler with one interval job per table, the first run of each at once.
    """
    scheduler = BlockingScheduler(timezone=UTC, executors={"default": ThreadPoolExecutor(max(len(rounds), 1))})
    for item in rounds:
        scheduler.add_job(
            lambda item=item: item.run(clock()),
            "interval",
            seconds=item.every.total_seconds(),
            id=item.table,
            name=f"reap {item.table}",
            next_run_time=clock(),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )
    return scheduler


def run(rounds: Sequence[Round], clock: Callable[[], datetime], stop: StopSignal) -> None:
    """
    Runs every table by its interval until a stop is requested; ends after the current steps.
    """
    scheduler = scheduled(rounds, clock)
    watch = threading.Thread(target=_end, args=(scheduler, stop), name="stop")
    # Only once it runs: a scheduler that is not running cannot be shut down.
    scheduler.add_listener(lambda event: watch.start(), EVENT_SCHEDULER_STARTED)
    scheduler.start()
    watch.join()


def _end(scheduler: BaseScheduler, stop: StopSignal) -> None:
    while not stop.wait(_LONG):
        pass
    scheduler.shutdown(wait=True)
