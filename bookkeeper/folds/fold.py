"""
Plans a fold: what may be folded, and what it makes of it. Nothing is committed here.
"""

from datetime import datetime

from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.folds.select import select
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View


def plan_fold(ledger: Ledger, view: View, now: datetime, random: bytes, budget: Budget | None = None) -> Computed:
    """
    The plan of a fold of this head, its position delete files durable; `random`: 10 bytes.

    A crash leaves files that nothing names, for the orphan sweep. Raises Retry, ManifestCorrupt.
    """
    # Imports pyarrow, 100 MB that a daemon of append-only tables never needs.
    from bookkeeper.folds.compute import compute

    return compute(select(ledger, view), ledger.data_store(view), now, random, budget)
