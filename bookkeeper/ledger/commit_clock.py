"""
The clock that stamps commits: this machine's, compared with the storage's before anything is stamped, rejected or
deleted by time.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from bookkeeper.config.units import epoch_ms, format_duration
from bookkeeper.contract.steady_clock import SMALL, Steady, keeps_time
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.errors import BookkeeperError, ClockAhead, ClockBehind
from bookkeeper.ledger.view import View

#: of this clock behind the table's last update: a clock that is further behind commits nothing
CLOCK_BEHIND = timedelta(seconds=30)
CLOCK_SKEW = timedelta(minutes=5)
CLOCK_AHEAD = timedelta(hours=1)
#: a tick that is older than this may take a txlog for one from the future: its machine slept
STALE = timedelta(minutes=30)


class CommitClock:
    """
    Shows this machine's time (UTC), called; stamps commits by what it knows of the storage's, at `folder`.

    Without a folder no storage is compared, so nothing may be deleted by age: for programs that only read.
    """

    def __init__(self, clock: Callable[[], datetime], table: str = "", folder: Folder | None = None) -> None:
        """`table` is the table's name in the log."""
        self.steady, self.table, self.folder = clock if isinstance(clock, Steady) else Steady(clock), table, folder
        self.log = TableLog(logging.getLogger("bookkeeper"), table, "clock")
        self.now = self.began = self()
        #: the time of the last comparison, and how far our clock was ahead then
        self.compared: datetime | None = None
        self.ahead = timedelta(0)
        self.jumped = False

    def __call__(self) -> datetime:
        return self.steady()

    def begin(self, now: datetime) -> None:
        """A tick begins at `now`: the time it takes is added when clocks are compared."""
        self.now, self.began = now, self()

    def check_behind(self, view: View) -> datetime:
        """The time now; raises ClockBehind when the table was updated in the future of this clock."""
        now = self()
        behind = view.metadata.last_updated_ms - epoch_ms(now)
        if behind > CLOCK_BEHIND / timedelta(milliseconds=1):
            late = format_duration(timedelta(milliseconds=behind))
            raise ClockBehind(f"{view.name} was last updated {late} in the future of this clock")
        return now

    def stamp(self, now: datetime) -> datetime:
        """
        `now` less what this clock is known to be ahead; a snapshot from the future would stop every commit until then.

        Raises ClockAhead when that is too much to go on.
        """
        return now - max(self.steady.ahead(), self.check_ahead(now))

    def snapshot_ms(self, view: View, now: datetime) -> int:
        """The time of a snapshot that is made now, in milliseconds since 1970; raises ClockAhead."""
        now_ms = epoch_ms(self.stamp(now))
        # Spark refuses a snapshot log that is not sorted, so time never goes back in it.
        parent_ms = view.head.timestamp_ms + 1 if view.head else 0
        return max(now_ms, view.metadata.last_updated_ms, parent_ms)

    def check_right(self) -> None:
        """A txlog from the future is its writer's fault only if our own clock is right; raises ClockBehind."""
        if self() - self.began > STALE:
            raise ClockBehind("a txlog was created hours after this tick began", hint="The next tick reads it again.")
        if not self.agrees():
            cause = "a txlog is from the future, and this clock differs from the storage's, which may be unknown"
            raise ClockBehind(cause, hint="Synchronise the clock (NTP). The log names the difference: action=clock.")

    def dated(self, found: Sequence[Found]) -> None:
        """
        A txlog that the storage dates about now proves for nothing that our clock is not ahead. One of the future
        proves nothing: a copy may have kept the time of another machine.
        """
        if any(abs(item.modified - self.now) <= SMALL for item in found):
            self._compared(self.now, timedelta(0))

    def check_ahead(self, now: datetime) -> timedelta:
        """
        How far our clock is ahead of the storage's; asks the storage only after a jump, a pause or a backlog.

        Raises ClockAhead when it is too far ahead to go on.
        """
        if self.folder is None:
            return timedelta(0)
        if self.compared is None or not timedelta(0) <= now - self.compared < CLOCK_SKEW:
            began = self()
            skew = self.folder.clock_skew(began)
            # The storage dated its object at some moment in between: rather too far ahead than too little.
            self._compared(now, self() - began - skew)
        if self.ahead > CLOCK_AHEAD:
            raise ClockAhead(f"{self.table}: this clock is {format_duration(self.ahead)} ahead of the storage's")
        return self.ahead

    @property
    def is_suspect(self) -> bool:
        """Whether our clock was set ahead, by more than NTP corrects, since it was last trusted; asks nothing."""
        return self.steady.ahead() > CLOCK_SKEW

    def allows_destroying(self) -> bool:
        """
        Whether files may be deleted by age: our clock did not jump ahead, and agrees with the storage's.
        """
        return self.agrees() and not self._has_jumped()

    def agrees(self) -> bool:
        """Whether our clock is within five minutes of the storage's; False also when that cannot be told."""
        if self.folder is None:
            return False
        try:
            skew = self.folder.clock_skew(self.now + (self() - self.began))
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
        elif abs(ahead) <= SMALL and self.folder is not None and keeps_time(self.folder.store):
            self.steady.trust()

    def _has_jumped(self) -> bool:
        ahead = self.steady.ahead()
        before, self.jumped = self.jumped, self.is_suspect
        if self.jumped and not before:
            cause = f"this machine's clock went {format_duration(ahead)} further ahead than time passed"
            hint = "Set the clock right (NTP). If it is right: restart the bookkeeper. Until then nothing is dropped."
            self.log.warning("clock jumped", cause=cause, hint=hint)
        elif before and not self.jumped:
            self.log.info("clock is right again")
        return self.jumped
