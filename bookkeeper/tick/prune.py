"""
Keeps marks small: incarnations that are long idle are pruned, and marks that grow large are reported.
"""

import logging
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract import marks_json
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.tick.duty_timer import DutyTimer

log = logging.getLogger("bookkeeper")

PRUNE_EVERY = timedelta(minutes=10)
#: marks are written with every commit, and read by every program that loads the table
LARGE_MARKS_BYTES = 256 * 1024


class Prune:
    """Leaves idle incarnations out of the marks of the next commit."""

    def __init__(self, settings: Table, folder: Folder, clock: CommitClock) -> None:
        self.settings, self.folder, self.clock = settings, folder, clock
        self.due = DutyTimer()

    def pruned(self, marks: Marks, now: datetime, keyed: bool = False) -> Marks:
        """
        `marks` without incarnations that are long idle, when due, or when they know more writers than they may.
        """
        if len(marks.writers) <= self.settings.max_writers and not self.due.take(PRUNE_EVERY, now):
            return marks
        return self.without_idle(marks, now, keyed)

    def without_idle(self, marks: Marks, now: datetime, keyed: bool) -> Marks:
        """
        `marks` without incarnations that are long idle and that no name in the folder needs.

        Of a keyed table each writer's newest one stays: by that a txlog of an earlier one is known to be late.
        """
        idle = epoch_ms(now - self.settings.marks_keep)
        if marks.pruned(idle, ()) == marks:
            return marks
        pending = [item.name for item in self.folder.pending()]
        named = [*pending, *(item.name for item in self.folder.rejected())]
        newest = [TxlogName(writer, max(of.incarnations), 1) for writer, of in marks.writers.items() if of.incarnations]
        left = marks.pruned(idle, [*named, *newest] if keyed else named, pending)
        # The clock is asked only where something goes: that writes an object.
        return left if left != marks and self.clock.allows_destroying() else marks


class MarksSize:
    """Reports once that marks have become large: which of them can go, a person must decide."""

    def __init__(self, settings: Table) -> None:
        self.settings = settings
        self.due = DutyTimer()
        self.large = False

    def check(self, marks: Marks, now: datetime) -> None:
        """Measures them, when due."""
        if not self.due.take(PRUNE_EVERY, now):
            return
        size, before = len(marks_json.dumps(marks)), self.large
        self.large = size > LARGE_MARKS_BYTES
        if self.large and not before:
            hint = "Give writers stable names; `bookkeeper writers` lists them, `bookkeeper forget` drops one."
            about: dict[str, object] = {"action": "marks-large", "table": self.settings.name, "hint": hint}
            about |= {"bytes": size, "writers": len(marks.writers)}
            log.warning("marks are large: every commit writes them", extra=about)
