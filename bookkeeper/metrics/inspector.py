"""
Looks around every table in turn, from threads of its own: a table whose storage is frozen keeps only its own waiting,
and so do many of them.
"""

import logging
import shutil
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from bookkeeper.metrics.inspection import TableInspector, Usage
from bookkeeper.metrics.table_metrics import AllFigures, TableMetrics
from bookkeeper.serve.loop import TableLoop

log = logging.getLogger("bookkeeper")

EVERY = timedelta(seconds=30)
#: at once: more would take the machine from those who commit
MOST_AT_ONCE = 4
#: a look that takes longer waits for a frozen storage and takes nothing from anybody
FROZEN = timedelta(seconds=60)


class Inspector:
    """The looks of all tables; `look` does one of them, `start` repeats them until `stop`."""

    def __init__(
        self,
        figures: AllFigures,
        clock: Callable[[], datetime],
        every: timedelta = EVERY,
        usage: Usage = shutil.disk_usage,
    ) -> None:
        self.figures, self.clock, self.every, self.usage = figures, clock, every, usage
        self._stopped = threading.Event()
        #: the slots that are looked at, not their names: a table that was taken out and put back is another one
        self._under_way: dict[int, datetime] = {}

    def start(self) -> None:
        """From now on, beside everything else; the process may end in the middle of a look."""
        threading.Thread(target=self._repeat, name="looking", daemon=True).start()

    def stop(self) -> None:
        """No further look begins."""
        self._stopped.set()

    def _repeat(self) -> None:
        # The first one a moment after the start: before its first turn a table has nothing to look at.
        pause = min(2.0, self.every.total_seconds())
        while not self._stopped.wait(pause):
            tables = self.figures.now()
            # One after the other over the whole time: all at once would be felt by those who commit.
            pause = self.every.total_seconds() / max(len(tables), 1)
            for slot, figures in tables:
                self._begin(slot, figures)
                if slot is not tables[-1][0] and self._stopped.wait(pause):
                    return

    def _begin(self, slot: TableLoop, figures: TableMetrics) -> None:
        """Looks at it in a thread of its own; not in this round while it, or as many as may be, are looked at."""
        if id(slot) in self._under_way or not self._room():
            return
        self._under_way[id(slot)] = self.clock()
        threading.Thread(target=self._one, args=(slot, figures), name=f"look {slot.table}", daemon=True).start()

    def _room(self) -> bool:
        now, begun = self.clock(), list(self._under_way.values())
        return sum(abs(now - at) < FROZEN for at in begun) < MOST_AT_ONCE

    def _one(self, slot: TableLoop, figures: TableMetrics) -> None:
        try:
            self.look(slot, figures)
        except Exception:
            log.exception("look failed", extra={"action": "defect", "table": slot.table})
        finally:
            del self._under_way[id(slot)]

    def look(self, slot: TableLoop, figures: TableMetrics) -> None:
        """Looks around one table that this bookkeeper works on; nobody's business while another has it."""
        book = slot.book
        if book is None or book.view is None or slot.standby:
            return
        before = figures.looked.trouble
        figures.looked = found = TableInspector(book, self.clock(), figures.looked, self.usage).around()
        if found.trouble and found.trouble != before:
            log.warning("look not complete", extra={"action": "look", "table": slot.table, "cause": found.trouble})
