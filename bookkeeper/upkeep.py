"""
What a tick does besides committing: the card, retention, pruning of marks, the sweep of rejected/.

Everything destructive first compares our clock with the storage's and counts what it would take away.
"""

import logging
from datetime import datetime, timedelta

from pyiceberg.manifest import ManifestContent

from bookkeeper import retention
from bookkeeper.cards import card_of
from bookkeeper.core.card import Card
from bookkeeper.core.errors import BookkeeperError, ConfigInvalid, Retry
from bookkeeper.core.folder import Folder
from bookkeeper.core.marks import Marks
from bookkeeper.core.settings import Table
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View

log = logging.getLogger("bookkeeper")

CLOCK_SKEW = timedelta(minutes=5)
SWEEP_EVERY = timedelta(minutes=1)
PRUNE_EVERY = timedelta(minutes=10)


class Upkeep:
    """Does each of its duties when it is due; remembers only when it last did."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger) -> None:
        self.settings = settings
        self.folder = folder
        self.ledger = ledger
        self.done: dict[str, datetime] = {}
        self.warned = ""

    def run(self, view: View, now: datetime) -> View | None:
        """
        Retention and the sweep, when due: the view after it, or None when the table must be loaded again.
        """
        if self._due("sweep", SWEEP_EVERY, now):
            self._sweep(view, now)
        if not self._due("retention", self.settings.retention.every, now):
            return view
        try:
            return self._retain(view, now)
        except Retry as error:
            # The commit may have been applied or not: the next look sees which files are still there.
            log.warning("retention postponed", extra=self._about("retain", cause=str(error)))
            return None

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

    def pruned(self, marks: Marks, now: datetime) -> Marks:
        """`marks` without incarnations that are long idle and that no name in the folder needs, when due."""
        if not self._due("prune", PRUNE_EVERY, now) or not self._clocks_agree(now):
            return marks
        named = [item.name for item in (*self.folder.pending(), *self.folder.rejected())]
        idle = int((now - self.settings.marks_keep).timestamp() * 1000)
        return marks.pruned(idle, named)

    def _sweep(self, view: View, now: datetime) -> None:
        """Removes from rejected/ what is in the table (a replay), and what lost its position long ago."""
        old = now - self.settings.orphan_age
        gone = [
            item.name
            for item in self.folder.rejected()
            if view.marks.is_in(item.name)
            or (item.modified < old and self.folder.reason(item.name).get("error") == "PositionTaken")
        ]
        if gone:
            self.folder.discard_rejected(gone)
            log.info("rejected txlogs swept", extra=self._about("sweep", txlogs=len(gone)))

    def _retain(self, view: View, now: datetime) -> View:
        try:
            rule = retention.rule(self.settings.retention, view.metadata.schema(), view.marks.times, now)
        except ConfigInvalid as error:
            return self._stay(view, str(error))
        if rule is None or view.head is None or not self._clocks_agree(now):
            return view
        doomed = self.ledger.find(view, rule.column, rule.may_drop, rule.drops)
        files = sum(len(item.dropped) for item in doomed)
        if not files:
            return view
        if retention.braked(files, self._live(view), self.settings.retention.brake):
            return self._stay(
                view, f"{files} of {self._live(view)} live files would go, more than retention.brake allows"
            )
        after = self.ledger.drop(view, doomed)
        log.info("files dropped", extra=self._about("retain", files=files, snapshot=after.marks.snapshot))
        return after

    def _live(self, view: View) -> int:
        data = [item for item in self.ledger.manifests(view) if item.content == ManifestContent.DATA]
        return sum((item.added_files_count or 0) + (item.existing_files_count or 0) for item in data)

    def _stay(self, view: View, why: str) -> View:
        if why != self.warned:
            self.warned = why
            log.warning("retention held back", extra=self._about("brake", cause=why))
        return view

    def _clocks_agree(self, now: datetime) -> bool:
        try:
            skew = self.folder.clock_skew(now)
        except BookkeeperError as error:
            log.warning("storage clock unknown", extra=self._about("clock", cause=str(error)))
            return False
        if abs(skew) > CLOCK_SKEW:
            log.warning("clocks differ", extra=self._about("clock", seconds=skew.total_seconds()))
        return abs(skew) <= CLOCK_SKEW

    def _about(self, action: str, **more: object) -> dict[str, object]:
        return {"action": action, "table": self.settings.name, **more}
