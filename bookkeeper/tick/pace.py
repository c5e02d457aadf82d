"""
Keeps commits apart on a storage that refuses to have one object replaced too often.
"""

import logging
from datetime import datetime, timedelta

from bookkeeper.config.units import format_duration

log = logging.getLogger("bookkeeper")

#: Google takes about one write a second of one object, and a commit replaces marks.json (retention once more)
GOOGLE_COMMITS_APART = timedelta(seconds=2)


class Pace:
    """Logs once that it slows commits down."""

    def __init__(self, url: str, table: str) -> None:
        self.table = table
        self.apart = GOOGLE_COMMITS_APART if url.startswith("gs://") else timedelta(0)
        self.committed_at: datetime | None = None
        self.reported = False

    def too_soon(self, now: datetime) -> bool:
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
