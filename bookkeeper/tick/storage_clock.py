"""
Compares this machine's clock with the storage's, before anything is stamped, rejected or deleted by time.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.config.units import format_duration
from bookkeeper.core.folder import Folder, Found
from bookkeeper.core.steady_clock import SMALL, keeps_time
from bookkeeper.core.table_log import TableLog
from bookkeeper.errors import BookkeeperError, ClockAhead
from bookkeeper.ledger.ledger import Ledger

CLOCK_SKEW = timedelta(minutes=5)
CLOCK_AHEAD = timedelta(hours=1)
#: a tick that is older than this may take a txlog for one from the future: its machine slept
STALE = timedelta(minutes=30)


class StorageClock:
    """Compares the ledger's clock with the folder's; from then on the ledger stamps commits by what was found."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger) -> None:
        self.settings, self.folder, self.ledger = settings, folder, ledger
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "clock")
        self.now = self.began = ledger.clock()
        #: the time of the last comparison, and how far our clock was ahead then
        self.compared: datetime | None = None
        self.ahead = timedelta(0)
        self.jumped = False
        ledger.ahead = self.check_ahead

    def begin(self, now: datetime) -> None:
        """A tick begins at `now`: the time it takes is added when clocks are compared."""
        self.now, self.began = now, self.ledger.clock()

    def is_stale(self) -> bool:
        """Whether the tick began so long ago that what was written since may seem to be from the future."""
        return self.ledger.clock() - self.began > STALE

    def dated(self, found: Sequence[Found]) -> None:
        """A txlog that the storage dates not long before now proves for nothing that our clock is not ahead."""
        newest = max((item.modified for item in found), default=None)
        if newest is not None and newest >= self.now - SMALL:
            self._compared(self.now, timedelta(0))

    def check_ahead(self, now: datetime) -> timedelta:
        """
        How far our clock is ahead of the storage's; asks the storage only after a jump, a pause or a backlog.

        Raises ClockAhead when it is too far ahead to go on.
        """
        if self.compared is None or not timedelta(0) <= now - self.compared < CLOCK_SKEW:
            began = self.ledger.clock()
            skew = self.folder.clock_skew(began)
            # The storage dated its object at some moment in between: rather too far ahead than too little.
            self._compared(now, self.ledger.clock() - began - skew)
        if self.ahead > CLOCK_AHEAD:
            raise ClockAhead(
                f"{self.settings.identifier}: this clock is {format_duration(self.ahead)} ahead of the storage's"
            )
        return self.ahead

    @property
    def is_suspect(self) -> bool:
        """Whether our clock was set ahead, by more than NTP corrects, since it was last trusted; asks nothing."""
        return self.ledger.steady.ahead() > CLOCK_SKEW

    def allows_destroying(self) -> bool:
        """
        Whether files may be deleted by age: our clock did not jump ahead, and agrees with the storage's.
        """
        return self.agrees() and not self._has_jumped()

    def agrees(self) -> bool:
        """Whether our clock is within five minutes of the storage's; False also when that cannot be told."""
        try:
            skew = self.folder.clock_skew(self.now + (self.ledger.clock() - self.began))
        except BookkeeperError as error:
            self.log.warning("storage clock unknown", cause=str(error))
            return False
        if abs(skew) > CLOCK_SKEW:
            self.log.warning("clocks differ", seconds=skew.total_seconds())
        self._compared(self.now, -skew)
        return abs(skew) <= CLOCK_SKEW

    def _compared(self, now: datetime, ahead: timedelta) -> None:
        """Notes how far our clock is ahead; up to 30 s, which NTP leaves and other bookkeepers let pass, is nothing."""
        before, self.compared = self.ahead, now
        self.ahead = ahead if ahead > SMALL else timedelta(0)
        if self.ahead > CLOCK_AHEAD:
            self.compared = None  # ask again at the next tick
        elif self.ahead and not before:
            cause = (
                f"this clock is {format_duration(ahead)} ahead of the storage's: "
                "commits are stamped with the storage's time"
            )
            self.log.warning("clock ahead", cause=cause, hint=ClockAhead.hint)
        elif abs(ahead) <= SMALL and keeps_time(self.folder.store):
            self.ledger.steady.trust()

    def _has_jumped(self) -> bool:
        ahead = self.ledger.steady.ahead()
        before, self.jumped = self.jumped, self.is_suspect
        if self.jumped and not before:
            cause = f"this machine's clock went {format_duration(ahead)} further ahead than time passed"
            hint = "Set the clock right (NTP). If it is right: restart the bookkeeper. Until then nothing is dropped."
            self.log.warning("clock jumped", cause=cause, hint=hint)
        elif before and not self.jumped:
            self.log.info("clock is right again")
        return self.jumped
