"""
Inspects every table in turn, each in a thread of its own: a table whose storage hangs delays only its own inspection.
"""

import logging
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.observe.metrics.inspection import TableInspector, Usage
from bookkeeper.observe.metrics.table_metrics import AllMetrics, TableMetrics
from bookkeeper.serve.loop import TableLoop
from bookkeeper.threads import begin, start

log = logging.getLogger("bookkeeper")

EVERY = timedelta(seconds=30)
#: at once: more would take the processor from the ticks
MOST_AT_ONCE = 4
#: an inspection that takes longer waits for a hanging storage, and no longer counts among those at once
FROZEN = timedelta(seconds=60)


class Inspector:
    """The inspections of all tables; `inspect` does one, `start` repeats them until `stop`."""

    def __init__(
        self,
        metrics: AllMetrics,
        clock: Callable[[], datetime],
        every: timedelta = EVERY,
        usage: Usage = shutil.disk_usage,
    ) -> None:
        self.metrics, self.clock, self.every, self.usage = metrics, clock, every, usage
        self._stopped = threading.Event()
        #: since when, by loop and not by name: a table that was removed and added again has another loop
        self._under_way: dict[int, tuple[Future[None], datetime]] = {}

    def start(self) -> None:
        """Repeats inspections in the background; the process may end in the middle of one."""
        start(self._repeat, "inspector")

    def stop(self) -> None:
        """Stops: no further inspection begins."""
        self._stopped.set()

    def _repeat(self) -> None:
        # The first one a moment after the start: before its first tick a table has nothing to inspect.
        pause = min(2.0, self.every.total_seconds())
        while not self._stopped.wait(pause):
            tables = self.metrics.now()
            # Spread over the whole time: all at once would slow the ticks down.
            pause = self.every.total_seconds() / max(len(tables), 1)
            for loop, metrics in tables:
                self._begin(loop, metrics)
                if loop is not tables[-1][0] and self._stopped.wait(pause):
                    return

    def _begin(self, loop: TableLoop, metrics: TableMetrics) -> None:
        """Inspects it in a thread of its own; skipped while its last inspection, or too many others, are under way."""
        now = self.clock()
        self._under_way = {key: (work, at) for key, (work, at) in self._under_way.items() if not work.done()}
        young = sum(abs(now - at) < FROZEN for _, at in self._under_way.values())
        if id(loop) not in self._under_way and young < MOST_AT_ONCE:
            work = begin(partial(self._in_thread, loop, metrics), f"inspect {loop.table}")
            self._under_way[id(loop)] = work, now

    def _in_thread(self, loop: TableLoop, metrics: TableMetrics) -> None:
        try:
            self.inspect(loop, metrics)
        except Exception:
            log.exception("inspection failed", extra={"action": "defect", "table": loop.table})

    def inspect(self, loop: TableLoop, metrics: TableMetrics) -> None:
        """Inspects one table that this bookkeeper works on; none that another one works on."""
        book = loop.book
        if book is None or book.view is None or loop.standby:
            return
        problem = metrics.inspection.problem
        found = metrics.inspected.replace(lambda last: TableInspector(book, self.clock(), last, self.usage).inspect())
        if found.problem and found.problem != problem:
            log.warning(
                "inspection not complete", extra={"action": "look", "table": loop.table, "cause": found.problem}
            )
