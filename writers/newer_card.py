"""
Whether a table has changed since a run began to write by its card: rows may have columns that are new.
"""

from datetime import datetime, timedelta

from writers.timing import Clock
from writers.writer import Writer

#: each question is a read of card.json, and ends the open data files
_EVERY = timedelta(seconds=1)


class NewerCard:
    """Asks for a newer card at most once a second, for one run of a writer."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer, self._clock = writer, clock
        self._asked_at: datetime | None = None

    @property
    def may_ask(self) -> bool:
        """Whether it was not asked within the last second."""
        return self._asked_at is None or not timedelta(0) <= self._clock() - self._asked_at < _EVERY

    def ask(self) -> bool:
        """Whether the writer has another card now; False where it may not ask. Raises StorageUnavailable."""
        if not self.may_ask:
            return False
        self._asked_at, before = self._clock(), self._writer.card
        self._writer.roll()
        return self._writer.card is not before
