"""
What a fold may take, and what it leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.config import settings
from bookkeeper.folds.select import Candidate
from bookkeeper.ledger.fold_plan import FoldPlan

OVER_BUDGET = "it is more than a fold takes: maintain folds it on Spark"
#: of a delete file; what is wrong with it follows
UNREADABLE = "it cannot be read"


def advice(why: str) -> str:
    """
    What a person can do about deletes that stay for this reason.
    """
    if why == OVER_BUDGET:
        return "Run spark_jobs.maintain fold, or write fewer keys at once."
    if why.startswith(UNREADABLE):
        return "It goes on applying. `bookkeeper drop-delete-file` takes it out, and says what that means for rows."
    return ""


@dataclass(frozen=True, slots=True)
class Budget:
    """
    What one fold may take: deleted keys in memory and their bytes there, and data files, their bytes and their rows to
    read. It writes at most one position delete file for each data file.
    """

    deleted_keys: int = 10_000_000
    deleted_bytes: int = 2**30
    files: int = 5_000
    bytes: int = 4 * 2**30
    rows: int = 100_000_000

    @classmethod
    def of(cls, fold: settings.Fold) -> "Budget":
        """The budget that `[tables.NAME.fold]` sets."""
        return cls(fold.max_keys, fold.max_key_bytes, fold.max_files, fold.max_bytes, fold.max_rows)

    def fits(self, files: Sequence[Candidate]) -> bool:
        """Whether these data files are not too much together."""
        size, rows = sum(item.file.size_bytes for item in files), sum(item.file.record_count for item in files)
        return len(files) <= self.files and size <= self.bytes and rows <= self.rows


@dataclass(frozen=True, slots=True)
class Computed:
    """A plan, None where nothing can be folded, and the equality delete files that stay, by `file_key`, and why."""

    plan: FoldPlan | None
    left: Mapping[str, str]
    #: data files that were read
    read: int = 0
    dead_rows: int = 0
