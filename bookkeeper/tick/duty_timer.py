"""
When a duty of the tick is due.
"""

from datetime import datetime, timedelta


class DutyTimer:
    """Due at first, and then once in every `every`; a clock that was set back makes it due."""

    def __init__(self) -> None:
        self.last: datetime | None = None

    def take(self, every: timedelta, now: datetime) -> bool:
        """Whether it is due; it then counts as done now."""
        if self.last is not None and timedelta(0) <= now - self.last < every:
            return False
        self.last = now
        return True

    def again(self) -> None:
        """Makes it due at the next tick."""
        self.last = None
