"""
What a tick does after committing: sweep, the size of marks, renewal of marks, columns, rewrites, folds, retention.
Each knows when it is due.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from bookkeeper.config.settings import Table
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError, Retry
from bookkeeper.folds.duty import Folds, Spawn
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.answer_column_requests import Columns
from bookkeeper.tick.prune import MarksSize
from bookkeeper.tick.renew import renew
from bookkeeper.tick.result import ColumnsDone, DutiesDone, RewritesDone
from bookkeeper.tick.retain import Retain
from bookkeeper.tick.sweep_rejected import Sweep
from bookkeeper.tick.take_rewrites import Rewrites

log = logging.getLogger("bookkeeper")


class Duties:
    """The duties of one table; trouble with one of them never undoes what the tick committed."""

    def __init__(
        self,
        settings: Table,
        folder: Folder,
        ledger: Ledger,
        store: Callable[[str], Store],
        spawn: Spawn | None = None,
    ) -> None:
        self.settings, self.ledger = settings, ledger
        self.sweep = Sweep(settings, folder, ledger.clock)
        self.marks_size = MarksSize(settings)
        self.columns = Columns(settings, folder, ledger)
        self.rewrites = Rewrites(settings, folder, ledger, store)
        self.folds = Folds(settings, ledger, spawn, folder.store)
        self.retention = Retain(settings, ledger)

    def run(self, view: View, now: datetime, rows_came: bool = False) -> DutiesDone:
        """Does what is due, after a commit of rows or without one; returns what was done."""
        if rows_came:
            self.rewrites.rows_came()
        # Of this run, also when it ends before they do: else what the last one did would be counted twice.
        self.columns.done, self.rewrites.done, self.retention.dropped = ColumnsDone(), RewritesDone(), 0
        after = self._run(view, now)
        outcomes, dropped = self.folds.outcomes(), self.retention.dropped
        return DutiesDone(after, self.rewrites.done, self.columns.done, outcomes, dropped)

    def _run(self, view: View, now: datetime) -> View | None:
        """The view after it, or None when the table must be loaded again."""
        self.sweep.run(view, now)
        self.marks_size.check(view.marks, now)
        try:
            view = renew(self.ledger, view, self.settings, now)
            for run in (self.columns.run, self.rewrites.run, self.folds.run, self.retention.run):
                after = run(view, now)
                if after is None:
                    return None
                view = after
            return view
        except Retry as error:
            # The commit may have been applied or not: the next load shows which files are still there.
            about = {"action": "retain", "table": self.settings.name, "cause": str(error)}
            log.warning("retention postponed", extra=about)
            return None
        except BookkeeperError as error:
            return self.retention.hold(view, f"a manifest cannot be read: {error}", error.hint)
