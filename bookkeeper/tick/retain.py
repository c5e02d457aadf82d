"""
Retention as a duty of the tick: when it is due, how much it reads at once, and why it is held back.
"""

import logging
from datetime import datetime

from bookkeeper.config.settings import Table
from bookkeeper.errors import Retry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.retention.apply import UNRELIABLE_CLOCK, apply_retention
from bookkeeper.tick.duty_timer import DutyTimer

log = logging.getLogger("bookkeeper")

#: entries of manifests that were never read, per tick: a fifth of a second, where all of a million would be seven
READ_AT_ONCE = 20_000


class Retain:
    """Drops what is past retention; `held_back` says why nothing goes, empty when nothing holds it."""

    def __init__(self, settings: Table, ledger: Ledger) -> None:
        self.settings, self.ledger, self.clock = settings, ledger, ledger.clock
        self.due = DutyTimer()
        self.held_back = ""
        #: files that the last run dropped
        self.dropped = 0
        #: how often in a row manifests had to be left unread
        self.unread = 0
        #: by manifest: the bytes of its live files
        self.sizes = dict[str, int]()

    def run(self, view: View, now: datetime) -> View:
        """The view, without what is past retention when it is due; raises Retry."""
        if not self.due.take(self.settings.retention.every, now):
            return view
        # A clock that is known to be wrong is asked about first: by it everything may seem past retention.
        wrong = self.held_back == UNRELIABLE_CLOCK or self.clock.is_suspect
        if wrong and not self.clock.allows_destroying():
            return self.hold(view, UNRELIABLE_CLOCK)
        # More each time: what is committed meanwhile must be read too.
        most = (self.unread + 1) * READ_AT_ONCE
        try:
            found = apply_retention(
                self.ledger, view, self.settings.retention, now, most, self.clock.allows_destroying, self.sizes
            )
        except Retry as error:
            # Where each run ends so, as by a manifest that may not be read, only this says that nothing goes.
            self.held_back = f"it is tried again: {error}"
            raise
        if found.unread:
            self.unread += 1
            self.due.again()  # rows do not wait for it
            return view
        self.unread = 0
        if found.after is None:
            return self.hold(view, found.held_back)
        self.dropped = found.files
        about = {"files": found.files, "snapshot": found.after.marks.snapshot}
        log.info("files dropped", extra={"action": "retain", "table": self.settings.name, **about})
        return self.hold(found.after, "")

    def hold(self, view: View, why: str, hint: str = "") -> View:
        """Holds retention back: returns the view unchanged, and logs a new reason."""
        if why and why != self.held_back:
            about = {"action": "brake", "table": self.settings.name, "cause": why} | ({"hint": hint} if hint else {})
            log.warning("retention held back", extra=about)
        self.held_back = why
        return view
