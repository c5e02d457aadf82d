"""
Which objects of a tray a run takes up, and the sweep of those that were rejected.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.tray import FoundObject, Tray
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError, Hold
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.tick.duty_timer import DutyTimer
from bookkeeper.tick.intake import defect

_NEVER = datetime.min.replace(tzinfo=UTC)


class Turns:
    """
    What a process remembers of the objects of one tray.

    A run takes at most `most` of them: never a held one, and a postponed one after the others. Log lines call an object
    `kind`, and give its name as `field`.
    """

    def __init__(self, log: TableLog, kind: str, field: str, most: int) -> None:
        self._log, self._kind, self._field, self._most = log, kind, field, most
        self.due, self.at_once = DutyTimer(), most
        #: names of objects that are of a newer version, or that a defect of this program keeps it from answering
        self.held: set[str] = set()
        #: when the storage last kept one from being read, looked up or rejected
        self.postponed: dict[str, datetime] = {}

    def take(self, listed: Sequence[FoundObject]) -> list[FoundObject]:
        """Those of the listed objects that this run takes, at most `at_once`."""
        names = {item.name for item in listed}
        self.postponed = {name: at for name, at in self.postponed.items() if name in names}
        # One that can never be settled would take its place in each run.
        return sorted(self.free(listed), key=lambda item: self.postponed.get(item.name, _NEVER))[: self.at_once]

    def free(self, listed: Sequence[FoundObject]) -> list[FoundObject]:
        """Those of the listed objects that are not held."""
        return [item for item in listed if item.name not in self.held]

    def postpone(self, name: str, why: BookkeeperError, now: datetime) -> None:
        """Leaves an object for a later run."""
        self.postponed[name] = now
        self._log.warning(f"{self._kind} postponed", **{self._field: name[:200]}, cause=str(why))

    def hold(self, name: str, why: Hold) -> None:
        """Leaves an object where it is, for as long as this process lives."""
        self.held.add(name)
        self._log.warning(f"{self._kind} held", **{self._field: name[:200]}, cause=str(why), hint=why.hint)

    def set_aside(self, taken: Sequence[FoundObject], error: Exception) -> None:
        """Holds an object that our code fails on; of several, one at a time is tried from then on to find it."""
        self._log.error("a defect of the bookkeeper", cause=repr(error), **{f"{self._field}s": len(taken)})
        if len(taken) == 1:
            self.hold(taken[0].name, defect(error))
        elif taken:
            self.at_once = 1
            self.due.again()

    def fewer(self) -> None:
        """After a conflict: half as many in the next run, which is due at once."""
        self.at_once = max(self.at_once // 2, 1)
        self.due.again()

    def more(self) -> None:
        """After a run that went through: twice as many, until it is as many as a run may take."""
        self.at_once = min(2 * self.at_once, self._most)


def sweep_rejected(tray: Tray, folder: Folder, before: datetime, clock: CommitClock) -> int:
    """
    Deletes what was rejected before that time, by the storage's clock, where files may be deleted by age; returns how
    many objects.
    """
    old = [item.name for item in tray.rejected(folder) if item.modified < before]
    if not old or not clock.allows_destroying():
        return 0
    folder.discard_rejected(old)
    return len(old)
