"""
Whether a commit is due: the window has passed or one tick's share is full, and the storage takes another one already.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from bookkeeper.config.units import format_duration
from bookkeeper.contract.txlog_folder import Found

log = logging.getLogger("bookkeeper")

#: Google takes about one write a second of one object, and a commit replaces marks.json (retention once more)
GOOGLE_COMMITS_APART = timedelta(seconds=2)


class CommitDue:
    """Of one table, whose `window` says how long a txlog waits for others. Logs once that it slows commits down."""

    def __init__(self, url: str, table: str, window: timedelta) -> None:
        self.table, self.window = table, window
        self.apart = GOOGLE_COMMITS_APART if url.startswith("gs://") else timedelta(0)
        self.committed_at: datetime | None = None
        self.reported = False

    def is_due(self, pending: Sequence[Found], most: int, now: datetime) -> bool:
        """Whether what is pending is committed now; `most`: the txlogs of one commit."""
        # The storage's clock may be ahead of ours: then the age is negative, and says nothing.
        waited = pending and abs(now - min(item.modified for item in pending)) >= self.window
        return bool(pending and (len(pending) >= most or waited)) and not self._too_soon(now)

    def _too_soon(self, now: datetime) -> bool:
        """Whether the storage would refuse to have the same objects replaced again so soon."""
        soon = self.committed_at is not None and timedelta(0) <= now - self.committed_at < self.apart
        if soon and not self.reported:
            self.reported = True
            cause = (
                f"Google takes about one write a second of one object: commits are {format_duration(self.apart)} apart"
            )
            hint = "Set `every` or `window` to 2s or more: what is published meanwhile goes in with one commit."
            about = {"action": "pace", "table": self.table, "cause": cause, "hint": hint}
            log.warning("commits slowed down", extra=about)
        return soon
