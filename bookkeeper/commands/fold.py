"""
`bookkeeper fold`: one fold of one table, planned and committed at once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import CommitConflict
from bookkeeper.folds.budget import Budget
from bookkeeper.folds.duty import Plan
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.select import select
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import load
from bookkeeper.ledger.marks_publisher import MarksPublisher

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Folded:
    """What a fold did: delete files that are gone, data files that it read, rows that it found dead, files it wrote."""

    outcome: str
    deletes: int
    left: int
    #: why, by the number of delete files
    why: str
    data_files: int
    dead_rows: int
    written: int
    snapshot: int | None = None


def fold(
    ledger: Ledger,
    folder: Folder,
    publisher: MarksPublisher,
    now: datetime,
    random: Callable[[int], bytes],
    dry_run: bool = False,
    budget: Budget | None = None,
    plan_by: Plan | None = None,
) -> Folded:
    """
    Folds what can be folded; a plan that the table has outrun is made anew, ATTEMPTS times. Raises Retry, Halt.

    A crash leaves files that nothing names, for the orphan sweep, or the fold.
    """
    if dry_run:
        found = select(ledger, load(ledger, folder)[0])
        left = Counter(found.left.values())
        return Folded("dry run", len(found.deletes), len(found.left), _shown(left), len(found.candidates), 0, 0)
    for attempt in range(ATTEMPTS):
        computed = (plan_by or plan_fold)(ledger, load(ledger, folder)[0], now, random(10), budget or Budget())
        plan, left = computed.plan, Counter(computed.left.values())
        if plan is None:
            return Folded("nothing to fold", 0, sum(left.values()), _shown(left), computed.read, 0, 0)
        try:
            after = publisher.fold(load(ledger, folder)[0], plan)
        except CommitConflict:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        written = sum(item.positions is not None for item in plan.files.values())
        about = len(plan.folded), sum(left.values()), _shown(left), computed.read, computed.dead_rows, written
        return Folded("folded", *about, after.marks.snapshot)
    raise AssertionError("no attempt was made")


def _shown(left: Counter[str]) -> str:
    return "; ".join(f"{files}: {why}" for why, files in left.most_common())
