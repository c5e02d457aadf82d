"""
When a commit is tried again in one tick: after a conflict or an unknown outcome, at most ATTEMPTS times.

No library retries a commit. Each further attempt loads the table again and plans anew: its marks say what is in.
"""

from collections.abc import Iterator

from bookkeeper.contract.table_log import TableLog
from bookkeeper.errors import BookkeeperError, CommitConflict, CommitUnknown
from bookkeeper.tick.loaded import LoadedTable
from bookkeeper.tick.planning import Planning
from bookkeeper.tick.state import Attempt, Memory, Tick

ATTEMPTS = 5


class CommitRetries:
    """Of one table, which is called `identifier` in its catalog."""

    def __init__(self, identifier: str, log: TableLog, loaded: LoadedTable, planning: Planning, memory: Memory) -> None:
        self._identifier, self._log = identifier, log
        self._loaded, self._planning, self._memory = loaded, planning, memory

    def attempts(self, tick: Tick, first: Attempt) -> Iterator[Attempt]:
        """`first`, then others: each on the table as it is loaded when the one before has ended."""
        yield first
        for _ in range(ATTEMPTS - 1):
            yield Attempt(*self._loaded.refresh(tick.now))

    def exhausted(self, tick: Tick) -> CommitConflict:
        """The error of a tick whose attempts were all refused, or had to be made anew."""
        what = f"{self._identifier}: {ATTEMPTS} commits in a row were refused; the last one: {tick.refusal}"
        return CommitConflict(what, hint=tick.refusal.hint)

    def failed(self, tick: Tick, attempt: Attempt, error: Exception) -> None:
        """Notes a refusal, or holds the txlogs that the engine fails on; raises the error when neither explains it."""
        if isinstance(error, CommitConflict | CommitUnknown):
            tick.refusal = error
            tick.result.refused += 1
            self._log.warning("commit not confirmed", action="retry", cause=str(error))
            return
        if isinstance(error, BookkeeperError):
            raise error
        defects = self._planning.defects(attempt)
        if not defects:
            raise error
        self._memory.defects |= defects
