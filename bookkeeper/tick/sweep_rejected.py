"""
The sweep of the folder: rejected txlogs that are not needed any more, and what a crash left of local writes.
"""

import logging
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.errors import BookkeeperError
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.view import View
from bookkeeper.tick.duty_timer import DutyTimer

SWEEP_EVERY = timedelta(minutes=1)
UNFINISHED_EVERY = timedelta(hours=1)


class Sweep:
    """Sweeps rejected/ every minute, and unfinished writes every hour; trouble postpones it and nothing else."""

    def __init__(self, settings: Table, folder: Folder, clock: CommitClock) -> None:
        self.settings, self.folder, self.clock = settings, folder, clock
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "sweep")
        self.due, self.unfinished_due = DutyTimer(), DutyTimer()

    def run(self, view: View, now: datetime) -> None:
        """Sweeps what is due."""
        if not self.due.take(SWEEP_EVERY, now):
            return
        try:
            self._sweep_rejected(view, now)
            self._sweep_unfinished(now)
        except BookkeeperError as error:
            self.log.warning("sweep postponed", cause=str(error))

    def _sweep_rejected(self, view: View, now: datetime) -> None:
        """
        Removes rejected txlogs that are in the table (a replay), and those that lost their position long ago: the
        winner has their rows.
        """
        rejected = self.folder.rejected()
        unneeded = [item.name for item in rejected if view.marks.is_in(item.name)]
        lost = [item.name for item in rejected if self._lost_its_position(item, now)]
        if lost and self.clock.allows_destroying():
            unneeded += lost
        if unneeded:
            self.folder.discard_rejected(unneeded)
            self.log.info("rejected txlogs swept", txlogs=len(unneeded))

    def _sweep_unfinished(self, now: datetime) -> None:
        if not self.unfinished_due.take(UNFINISHED_EVERY, now):
            return
        left = self.folder.unfinished(now - self.settings.orphan_age)
        if left and self.clock.allows_destroying():
            self.folder.store.delete_many(left)
            self.log.info("unfinished writes swept", files=len(left))

    def _lost_its_position(self, item: Found, now: datetime) -> bool:
        old = item.modified < now - self.settings.orphan_age
        return old and self.folder.reason(item.name).get("error") == "PositionTaken"
