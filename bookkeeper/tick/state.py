"""
The state of one tick and of each attempt in it, and what it does next.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import IncarnationKey, TxlogName
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.errors import BookkeeperError, CommitConflict, Hold
from bookkeeper.ledger.view import View
from bookkeeper.tick.intake import Intake
from bookkeeper.tick.plan_batch import Batch
from bookkeeper.tick.result import TickResult
from bookkeeper.tick.select import Limits


class Next(Enum):
    """What a tick does next."""

    #: commit the batch
    COMMIT = auto()
    #: load the table again and plan anew: the view may be older than the listing, or its commit unknown
    RELOAD = auto()
    #: list pending/ again, then load and plan anew: one listing is no snapshot
    LOOK_AGAIN = auto()
    #: the batch is in the table, or holds nothing to commit: publish the marks, settle and delete
    DONE = auto()
    #: nothing is due
    IDLE = auto()


@dataclass
class Memory:
    """What ticks leave for the next ones: it saves work, and losing it loses nothing."""

    #: incarnations that could not go on at the last plan
    blocked: Set[IncarnationKey] = frozenset()
    #: txlogs whose files could not be looked up last time: these are looked up before the next plan
    doubted: Set[TxlogName] = frozenset()
    #: pending txlogs that the engine fails on, found once for as long as this process lives
    defects: dict[TxlogName, Hold] = field(default_factory=dict)

    def found(self, found: Sequence[Found]) -> None:
        """Forgets the defects of txlogs that are not pending any more."""
        if self.defects:
            self.defects = {item.name: self.defects[item.name] for item in found if item.name in self.defects}


@dataclass
class Attempt:
    """One try to commit: the table as it was loaded, and what is planned on it; to start over, another one is made."""

    #: the table as it was loaded, and once its commit is in, as that left it
    view: View
    #: whether the view was loaded after the latest listing: only then may it condemn a txlog
    fresh: bool
    #: found, and neither in the table nor rejected
    left: Sequence[Found] = ()
    #: what it reads, in order
    names: list[TxlogName] = field(default_factory=list)
    #: writers of pending txlogs that it does not read: another one may continue from those
    unread_writers: Set[str] = frozenset()
    batch: Batch = field(default_factory=lambda: Batch(Marks("")))


@dataclass
class Tick:
    """What one tick found and knows, whatever it attempts; dropped when it ends."""

    now: datetime
    #: what the latest listing shows, and the names that the first one showed, or that were read before any
    found: Sequence[Found]
    first_listed: frozenset[TxlogName]
    result: TickResult
    intake: Intake
    limits: Limits
    #: whether `found` is a listing: only then may what is in it be refused
    listed: bool
    #: whether `found` was listed after what is in `first_listed` was there
    listed_twice: bool = False
    #: why the last commit was not confirmed
    refusal: BookkeeperError = field(default_factory=lambda: CommitConflict("others committed each time"))

    @property
    def now_ms(self) -> int:
        """Its time in milliseconds since 1970."""
        return epoch_ms(self.now)

    def look_again(self, found: Sequence[Found]) -> None:
        """A listing after what was listed or read by name before."""
        self.found, self.listed, self.listed_twice = found, True, True
