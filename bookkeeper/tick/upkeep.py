"""
What a tick does besides committing: the card, retention, pruning and renewal of marks, the sweep of rejected/.

Everything destructive first compares our clock with the storage's and counts what it would take away.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.config.units import format_duration
from bookkeeper.core import marks as marks_format
from bookkeeper.core.card import Card
from bookkeeper.core.clock import SMALL, keeps_time
from bookkeeper.core.folder import Folder, Found, MarksCopy
from bookkeeper.core.marks import Marks
from bookkeeper.errors import BookkeeperError, ClockAhead, Retry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import is_behind
from bookkeeper.ledger.view import View
from bookkeeper.retention.apply import apply_retention, with_commit_time
from bookkeeper.tick.card import card_of

log = logging.getLogger("bookkeeper")

CLOCK_SKEW = timedelta(minutes=5)
CLOCK_AHEAD = timedelta(hours=1)
SWEEP_EVERY = timedelta(minutes=1)
UNFINISHED_EVERY = timedelta(hours=1)
PRUNE_EVERY = timedelta(minutes=10)
#: entries, after a start: a fifth of a second, where all of a million would be seven
READ_AT_ONCE = 20_000
#: marks are written with every commit, and read by everybody who loads the table
LARGE_MARKS_BYTES = 256 * 1024


class Upkeep:
    """Does each of its duties when it is due; remembers only when it last did."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger) -> None:
        self.settings = settings
        self.folder = folder
        self.ledger = ledger
        self.done: dict[str, datetime] = {}
        self.warned = ""
        self.heavy = False
        #: how often in a row retention had to leave manifests unread
        self.looks = 0
        #: what we last made sure marks.json says, and the highest sequence number it ever showed
        self.published: MarksCopy | None = None
        self.seen = -1
        #: our time when it was last held against the storage's, and how far it was ahead then
        self.compared: datetime | None = None
        self.ahead = timedelta(0)
        self.jumped = False
        ledger.ahead = self.check_ahead

    def run(self, view: View, now: datetime) -> View | None:
        """
        Retention and the sweep, when due: the view after it, or None when the table must be loaded again.
        """
        if self._due("sweep", SWEEP_EVERY, now):
            try:
                self._sweep(view, now)
                self._sweep_unfinished(now)
            except BookkeeperError as error:
                log.warning("sweep postponed", extra=self._about("sweep", cause=str(error)))
        if self._due("weigh", PRUNE_EVERY, now):
            self._weigh(view.marks)
        try:
            view = self._renewed(view, now)
            return self._retain(view, now) if self._due("retention", self.settings.retention.every, now) else view
        except Retry as error:
            # The commit may have been applied or not: the next look sees which files are still there.
            log.warning("upkeep postponed", extra=self._about("retain", cause=str(error)))
            return None
        except BookkeeperError as error:
            return self._stay(view, f"a manifest cannot be read: {error}")

    def _due(self, duty: str, every: timedelta, now: datetime) -> bool:
        last = self.done.get(duty)
        if last is not None and timedelta(0) <= now - last < every:
            return False
        self.done[duty] = now
        return True

    def write_card(self, view: View, card: Card) -> None:
        """Tells writers when something about the table changed."""
        if self.folder.write_card(card_of(view, self.settings, card.folder)):
            log.info("card changed", extra=self._about("card"))

    def see(self, view: View, copy: MarksCopy | None) -> None:
        """Says that marks.json is not what it should be, before the tick mends it."""
        sequence = -1 if copy is None else copy.sequence_number
        lost = copy is None and view.marks.snapshot is not None
        if (self.seen < 0 or sequence < self.seen) and (lost or is_behind(view, copy)):
            self._say_behind("it is gone" if lost else f"it tells of sequence number {sequence}")
            self.published = None
        self.seen = max(sequence, 0)

    def publish_marks(self, view: View) -> None:
        """Makes marks.json say what the table says; raises StorageUnavailable."""
        if view.marks.snapshot is None:
            return
        copy = view.marks_copy
        if self.folder.publish_marks(copy) and copy == self.published:
            self._say_behind("it has changed since we wrote it")
        self.published, self.seen = copy, max(self.seen, copy.sequence_number)

    def _say_behind(self, cause: str) -> None:
        hint = "After a crash that is nothing; else somebody may have put back an old copy of the folder."
        log.warning("marks.json is behind the table", extra=self._about("mend", cause=cause, hint=hint))

    def pruned(self, marks: Marks, now: datetime) -> Marks:
        """`marks` without incarnations that are long idle and that no name in the folder needs, when due."""
        if not self._due("prune", PRUNE_EVERY, now) or not self.clocks_agree(now):
            return marks
        waiting = [item.name for item in self.folder.pending()]
        named = [*waiting, *(item.name for item in self.folder.rejected())]
        idle = int((now - self.settings.marks_keep).timestamp() * 1000)
        return marks.pruned(idle, named, waiting)

    def _weigh(self, marks: Marks) -> None:
        """Says once that marks have become large: whose they are, a person must decide."""
        size, heavy = len(marks_format.dumps(marks)), self.heavy
        self.heavy = size > LARGE_MARKS_BYTES
        if self.heavy and not heavy:
            hint = "Give writers stable names; `bookkeeper writers` lists them, `bookkeeper forget` drops one."
            about = self._about("marks-large", bytes=size, writers=len(marks.writers), hint=hint)
            log.warning("marks are large: every commit writes them", extra=about)

    def _sweep(self, view: View, now: datetime) -> None:
        """Removes from rejected/ what is in the table (a replay), and what lost its position long ago."""
        rejected = self.folder.rejected()
        gone = [item.name for item in rejected if view.marks.is_in(item.name)]
        lost = [item.name for item in rejected if self._lost_its_position(item, now)]
        if lost and self.clocks_agree(now):
            gone += lost
        if gone:
            self.folder.discard_rejected(gone)
            log.info("rejected txlogs swept", extra=self._about("sweep", txlogs=len(gone)))

    def _sweep_unfinished(self, now: datetime) -> None:
        if self._due("unfinished", UNFINISHED_EVERY, now) and self.clocks_agree(now):
            count = self.folder.sweep_unfinished(now - self.settings.orphan_age)
            if count:
                log.info("unfinished writes swept", extra=self._about("sweep", files=count))

    def _lost_its_position(self, item: Found, now: datetime) -> bool:
        old = item.modified < now - self.settings.orphan_age
        return old and self.folder.reason(item.name).get("error") == "PositionTaken"

    def _renewed(self, view: View, now: datetime) -> View:
        """
        The view, after an empty commit when only others have committed for so long that expiry may come too near.

        The marks' snapshot must stay an ancestor of `main` that is kept: else nobody can tell a rollback from expiry.
        """
        marks, head = view.marks, view.head
        if head is None or marks.snapshot in (None, head.snapshot_id):
            return view
        kept = view.metadata.snapshot_by_id(marks.snapshot) if marks.snapshot is not None else None
        age = now - datetime.fromtimestamp(kept.timestamp_ms / 1000, UTC) if kept else self.settings.marks_renew
        if age < self.settings.marks_renew:
            return view
        at = self.ledger.stamp(now)
        after = self.ledger.record(view, with_commit_time(marks, view, self.settings.retention, at), "renew")
        log.info("marks renewed", extra=self._about("renew", snapshot=after.marks.snapshot))
        return after

    def _retain(self, view: View, now: datetime) -> View:
        if not self.clocks_agree(now):
            return self._stay(view, "the clock cannot be relied on: see action=clock in the log")
        # More each time: what is committed meanwhile must be read too.
        self.looks += 1
        found = apply_retention(self.ledger, view, self.settings.retention, now, most=self.looks * READ_AT_ONCE)
        if found.unread:
            del self.done["retention"]  # the next tick goes on: rows do not wait for it
            return view
        self.looks = 0
        if found.after is None:
            return self._stay(view, found.held_back)
        log.info("files dropped", extra=self._about("retain", files=found.files, snapshot=found.after.marks.snapshot))
        return found.after

    def _stay(self, view: View, why: str) -> View:
        if why and why != self.warned:
            log.warning("retention held back", extra=self._about("brake", cause=why))
        self.warned = why
        return view

    def listed(self, now: datetime, found: Sequence[Found]) -> None:
        """A txlog that the storage dates not long before `now` proves for nothing that this clock is not ahead."""
        # A txlog that a hint told of is dated by our own clock.
        newest = max((item.modified for item in found if item.modified != now), default=None)
        if newest is not None and newest >= now - SMALL:
            self._compared(now, timedelta(0))

    def check_ahead(self, now: datetime) -> timedelta:
        """
        How far our clock is ahead of the storage's; asks only after a jump, a pause or a backlog.

        Raises ClockAhead when it is so far ahead that nothing it says can be relied on.
        """
        if self.compared is None or not timedelta(0) <= now - self.compared < CLOCK_SKEW:
            self._measured(now)
        if self.ahead > CLOCK_AHEAD:
            raise ClockAhead(
                f"{self.settings.identifier}: this clock is {format_duration(self.ahead)} ahead of the storage's"
            )
        return self.ahead

    def _measured(self, now: datetime) -> timedelta:
        """How far the storage's clock is ahead of ours; `now` may be old, for a tick may have waited. Raises Retry."""
        began = self.ledger.clock()
        skew = self.folder.clock_skew(began)
        # The storage dated its object at some moment in between: for a stamp rather too far ahead than too little.
        self._compared(now, self.ledger.clock() - began - skew)
        return skew

    def _compared(self, now: datetime, ahead: timedelta) -> None:
        """Remembers how far our clock is ahead; as little as NTP leaves, and other bookkeepers let pass, is nothing."""
        before, self.compared = self.ahead, now
        self.ahead = ahead if ahead > SMALL else timedelta(0)
        if self.ahead > CLOCK_AHEAD:
            self.compared = None  # ask again at the next tick
        elif self.ahead and not before:
            cause = (
                f"this clock is {format_duration(ahead)} ahead of the storage's: "
                "commits are stamped with the storage's time"
            )
            log.warning("clock ahead", extra=self._about("clock", cause=cause, hint=ClockAhead.hint))
        elif abs(ahead) <= SMALL and keeps_time(self.folder.store):
            self.ledger.steady.trust()

    def clocks_agree(self, now: datetime) -> bool:
        """
        Whether what is destroyed by age may be: our clock did not jump ahead, and it agrees with the storage's.
        """
        return self.storage_agrees(now) and not self._has_jumped()

    def _has_jumped(self) -> bool:
        ahead = self.ledger.steady.ahead()
        jumped, before = ahead > CLOCK_SKEW, self.jumped
        self.jumped = jumped
        if jumped and not before:
            cause = f"this machine's clock went {format_duration(ahead)} further ahead than time passed"
            hint = "Set the clock right (NTP). If it is right: restart the bookkeeper. Until then nothing is dropped."
            log.warning("clock jumped", extra=self._about("clock", cause=cause, hint=hint))
        elif before and not jumped:
            log.info("clock is right again", extra=self._about("clock"))
        return jumped

    def storage_agrees(self, now: datetime) -> bool:
        """Whether our clock is within five minutes of the storage's; False also when that cannot be told."""
        try:
            skew = self._measured(now)
        except BookkeeperError as error:
            log.warning("storage clock unknown", extra=self._about("clock", cause=str(error)))
            return False
        if abs(skew) > CLOCK_SKEW:
            log.warning("clocks differ", extra=self._about("clock", seconds=skew.total_seconds()))
        return abs(skew) <= CLOCK_SKEW

    def _about(self, action: str, **more: object) -> dict[str, object]:
        return {"action": action, "table": self.settings.name, **more}
