"""
Renews the marks: their snapshot must stay a kept ancestor of `main`, or a rollback cannot be told from expiry.
"""

import logging
from datetime import datetime

from bookkeeper.config.settings import Table
from bookkeeper.config.units import from_epoch_ms
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.retention.apply import with_commit_time

log = logging.getLogger("bookkeeper")


def renew(ledger: Ledger, view: View, settings: Table, now: datetime) -> View:
    """
    The view, after an empty commit when only others have committed for `marks_renew`. Raises Retry.
    """
    marks, head = view.marks, view.head
    if head is None or marks.snapshot in (None, head.snapshot_id):
        return view
    kept = view.metadata.snapshot_by_id(marks.snapshot) if marks.snapshot is not None else None
    if kept is not None and now - from_epoch_ms(kept.timestamp_ms) < settings.marks_renew:
        return view
    marks = with_commit_time(marks, view.metadata.last_sequence_number + 1, settings.retention, ledger.clock.stamp(now))
    after = ledger.record(view, marks, "renew")
    log.info("marks renewed", extra={"action": "renew", "table": settings.name, "snapshot": after.marks.snapshot})
    return after
