"""
What one tick did, filled in while it goes on: what it found, committed, rejected and left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.errors import BookkeeperError
from bookkeeper.folds.stats import FoldOutcome
from bookkeeper.ledger.view import View


@dataclass(frozen=True, slots=True)
class Commit:
    """
    One commit: what it added to the table.

    `took` is what building and sending it took, `visible_after` the age of each of its txlogs when it was done;
    `delete_files` are equality delete files, and `deletes` the keys in them; `loose_names` are txlogs with data files
    that are not called after them.
    """

    snapshot_id: int
    txlogs: int
    files: int
    rows: int
    bytes: int
    took: timedelta = timedelta(0)
    visible_after: tuple[timedelta, ...] = ()
    delete_files: int = 0
    deletes: int = 0
    loose_names: int = 0

    @classmethod
    def of(cls, view: View, txlogs: Sequence[Txlog], began: datetime, done: datetime, loose_names: int) -> "Commit":
        """The commit of these txlogs, after which the table is `view`."""
        done_ms = epoch_ms(done)
        ages = tuple(timedelta(milliseconds=done_ms - txlog.created_ms) for txlog in txlogs)
        rows, size = sum(txlog.row_count for txlog in txlogs), sum(txlog.data_bytes for txlog in txlogs)
        files = sum(len(txlog.rows) for txlog in txlogs)
        assert view.head is not None
        keys = [row.record_count for txlog in txlogs if txlog.deletes is not None for row in txlog.deletes.rows]
        return cls(
            view.head.snapshot_id, len(txlogs), files, rows, size, done - began, ages, len(keys), sum(keys), loose_names
        )


@dataclass
class RewritesDone:
    """What a tick did with rewrites: those it committed, their files, rows and bytes; and those it rejected."""

    committed: int = 0
    replaced_files: int = 0
    added_files: int = 0
    rows: int = 0
    bytes: int = 0
    #: the names of the errors
    rejected: list[str] = field(default_factory=list)


@dataclass
class ColumnsDone:
    """What a tick did with requests for columns: the columns it added and widened, and the requests it refused."""

    added: int = 0
    widened: int = 0
    refused: int = 0


@dataclass
class DutiesDone:
    """What the duties of a tick did, and the table after them; None: it must be loaded again."""

    after: View | None
    rewrites: RewritesDone
    columns: ColumnsDone
    #: how folds ended since the last tick
    folds: list[FoldOutcome]
    dropped_files: int


@dataclass
class TickResult:
    """What one tick did; `waiting` is how many txlogs are left pending, `trouble` why some of them are."""

    pending: int = 0
    waiting: int = 0
    commit: Commit | None = None
    rejected: list[str] = field(default_factory=list)
    held: list[TxlogName] = field(default_factory=list)
    holes: list[TxlogName] = field(default_factory=list)
    dropped_files: int = 0
    rewrites: RewritesDone = field(default_factory=RewritesDone)
    #: how folds ended since the last tick
    folds: list[FoldOutcome] = field(default_factory=list)
    columns: ColumnsDone = field(default_factory=ColumnsDone)
    trouble: BookkeeperError | None = None
    #: why each rejected txlog was rejected
    reasons: dict[str, BookkeeperError] = field(default_factory=dict)
    #: attempts to commit that were refused, or whose answer was lost
    refused: int = 0
    #: what was found and is not settled, with the time of its creation by the storage's clock
    left: dict[TxlogName, datetime] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Sequence[Found]) -> "TickResult":
        """A tick that found these txlogs and has done nothing yet."""
        return cls(len(found), len(found), left={item.name: item.modified for item in found})

    def settle(self, names: Iterable[TxlogName]) -> None:
        """Takes these names out of what is left: they are in the table, or rejected."""
        for name in names:
            self.left.pop(name, None)

    @property
    def oldest(self) -> datetime | None:
        """Since when the oldest txlog that is left has been pending."""
        return min(self.left.values(), default=None)
