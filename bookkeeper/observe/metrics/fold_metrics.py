"""
The metrics of folds of one keyed table; a table that is not keyed has none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from bookkeeper.folds.stats import COMMITTED, FAILED, OUTDATED, FoldOutcome, Look, Unfolded, behind_after
from bookkeeper.ledger.view import View
from bookkeeper.tick.tick import Bookkeeper

#: how folds end, and what is counted of committed ones
FOLD_OUTCOMES = (COMMITTED, OUTDATED, FAILED)
FOLDED = ("delete_files", "data_files", "rows")


class FoldMetrics:
    """How folds ended, what they took out, and what waits to be folded."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.folded: Counter[str] = Counter()
        #: folds that left deletes as they are, by why
        self.refusals: Counter[str] = Counter()
        self.last_seconds = 0.0
        #: None when it is unknown
        self.unfolded: Unfolded | None = None
        #: files that the last plan left, by why
        self.left: Mapping[str, int] = {}
        #: folds are behind when the oldest unfolded file is older
        self.limit = timedelta(0)

    def age(self, now: datetime) -> float | None:
        """Seconds that the oldest equality delete file has waited to be folded; None when it is unknown."""
        return None if self.unfolded is None else self.unfolded.age(now).total_seconds()

    def count(self, folds: Sequence[FoldOutcome]) -> None:
        """Counts folds that have ended."""
        for item in folds:
            # Of a reason as it is logged, what comes before the colon: the rest may name a file.
            self.refusals.update(why.partition(":")[0] for why in item.reasons)
            if item.outcome in FOLD_OUTCOMES:
                self.outcomes[item.outcome] += 1
            if item.outcome == COMMITTED:
                self.folded.update({name: getattr(item, name) for name in FOLDED})
                self.last_seconds = item.seconds

    def see(self, book: Bookkeeper, view: View, is_keyed: bool, seen: Look | None) -> None:
        """Takes over what the duty knows, and what an inspection has `seen` where nothing is folded; reads nothing."""
        folds = book.duties.folds
        self.unfolded, self.left = (folds.unfolded(view, seen), folds.left) if is_keyed else (None, {})
        self.limit = behind_after(book.settings)
