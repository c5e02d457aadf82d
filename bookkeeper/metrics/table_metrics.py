"""
The figures of every table, counted turn by turn.

Each table's are written by the thread that turns it and read by any; a turn costs a few additions. Whose slot is gone
is forgotten.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client import Histogram

from bookkeeper.core.marks import PROPERTY
from bookkeeper.ledger.view import View
from bookkeeper.metrics.history import History
from bookkeeper.metrics.inspection import Inspection, Rejected
from bookkeeper.serve.loop import TableLoop
from bookkeeper.tick.result import Commit, TickResult
from bookkeeper.tick.tick import Bookkeeper

log = logging.getLogger("bookkeeper")

COMMIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
VISIBLE_SECONDS = (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 1800)
TICK_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
COMMITTED, IDLE, STANDBY, FAILED = "committed", "idle", "standby", "failed"


@dataclass
class TableStats:
    """A table as it was when somebody last looked at its metadata: what grows with its history."""

    snapshots: int = 0
    manifests: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    writers: int = 0
    marks: int = 0
    marks_bytes: int = 0


class TableMetrics:
    """What is counted of one table."""

    def __init__(self, table: str, began: float) -> None:
        self.table = table
        #: when it last turned, and since when it could have, by a clock that only goes forward
        self.turned = began
        #: whose turns these are: one that takes another's place is given its own time
        self.slot: TableLoop | None = None
        self.ticks: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        self.added: Counter[str] = Counter()
        self.rejections: Counter[str] = Counter()
        self.holes = 0
        self.last_hole: datetime | None = None
        self.dropped_files = 0
        self.tick_seconds = Histogram("tick_seconds", "", buckets=TICK_SECONDS, registry=None)
        self.commit_seconds = Histogram("commit_seconds", "", buckets=COMMIT_SECONDS, registry=None)
        self.visibility_seconds = Histogram("visibility_seconds", "", buckets=VISIBLE_SECONDS, registry=None)
        #: None when nobody can tell
        self.pending: int | None = 0
        self.held = 0
        self.oldest: datetime | None = None
        self.last_commit: datetime | None = None
        self.brake = ""
        self.window = timedelta(0)
        self.pending_limit: int | None = None
        self.stand: TableStats | None = None
        self.looked = Inspection()
        self.history = History()
        self._seen: View | None = None
        #: counting failed once, and is not tried again
        self.defect = False

    def note(self, slot: TableLoop, took: float | None, now: datetime) -> None:
        """One turn is over."""
        turn = slot.begun
        self.ticks[_outcome(slot, turn)] += 1
        self.tick_seconds.observe(took or 0.0)
        if turn is not None:
            self._count(turn, now)
        elif slot.failures and slot.book is None and slot.waiting is not None:
            self.pending = self.oldest = None
        if slot.book is not None:
            self._see(slot.book)
        self._draw(turn.commit if turn else None, now)

    def _draw(self, commit: Commit | None, now: datetime) -> None:
        last = {"pending": self.pending, "rejected": self.looked.rejected, "lag": self.looked.behind}
        if self.stand is not None:
            last |= {name: getattr(self.stand, name) for name in ("snapshots", "files", "manifests")}
        self.history.note(last, self.age(now), commit, now)

    def age(self, now: datetime) -> float:
        """Seconds that the oldest pending txlog has been pending; it goes on growing while no tick succeeds."""
        return max((now - self.oldest).total_seconds(), 0.0) if self.oldest else 0.0

    def _count(self, turn: TickResult, now: datetime) -> None:
        self.pending, self.oldest, self.held = len(turn.left), turn.oldest, len(turn.held)
        self.commits["refused"] += turn.refused
        if turn.holes:
            self.holes, self.last_hole = self.holes + len(turn.holes), now
        self.dropped_files += turn.dropped_files
        for name, why in turn.reasons.items():
            self.rejections[type(why).__name__] += 1
            self.looked.add(Rejected(name, type(why).__name__, str(why), why.hint, now))
        if turn.commit is not None:
            self._add(turn.commit, now)

    def _add(self, commit: Commit, now: datetime) -> None:
        self.last_commit = now
        self.commits["committed"] += 1
        for what in ("txlogs", "files", "rows", "bytes"):
            self.added[what] += getattr(commit, what)
        self.commit_seconds.observe(commit.took.total_seconds())
        for age in commit.visible_after:
            self.visibility_seconds.observe(max(age, timedelta(0)).total_seconds())

    def _see(self, book: Bookkeeper) -> None:
        view, self.brake = book.view, book.upkeep.warned
        self.window, self.pending_limit = book.settings.window, book.settings.pending_limit
        if view is not None and view is not self._seen:
            self._seen, self.stand = view, stand_of(view)


def _outcome(slot: TableLoop, turn: TickResult | None) -> str:
    if slot.failures:
        return FAILED
    if slot.standby or turn is None:
        return STANDBY
    return COMMITTED if turn.commit is not None else IDLE


def stand_of(view: View) -> TableStats:
    """
    What the metadata says of the table; reads nothing.
    """
    counts = view.head.summary.additional_properties if view.head and view.head.summary else {}
    files, rows, size = (int(counts.get(key, 0)) for key in ("total-data-files", "total-records", "total-files-size"))
    marks = sum(len(known.incarnations) for known in view.marks.writers.values())
    return TableStats(
        snapshots=len(view.metadata.snapshots),
        manifests=None if view.manifests is None else len(view.manifests),
        files=files,
        rows=rows,
        bytes=size,
        writers=len(view.marks.writers),
        marks=marks,
        marks_bytes=len(view.metadata.properties.get(PROPERTY, "")),
    )


@dataclass
class AllFigures:
    """
    The figures of all tables that have a slot; `told` is what a slot tells after each turn.

    `monotonic` is a clock in seconds that nobody sets.
    """

    slots: Callable[[], Collection[TableLoop]]
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    _tables: dict[str, TableMetrics] = field(default_factory=dict)

    def of(self, table: str) -> TableMetrics:
        """The figures of this table, from nought when it is new."""
        found = self._tables.get(table)
        return found or self._tables.setdefault(table, TableMetrics(table, self.monotonic()))

    def told(self, slot: TableLoop, done: TickResult | None, started: datetime, took: float | None) -> None:
        """A slot's turn is over."""
        found = self.of(slot.table)
        # Whatever becomes of the figures: who is turned is alive, and must not be killed for a defect in counting.
        found.turned, found.slot = self.monotonic(), found.slot or slot
        if found.defect:
            return
        try:
            found.note(slot, took, self.clock())
        except Exception:
            found.defect = True
            log.exception("figures failed", extra={"action": "defect", "table": slot.table})

    def now(self) -> list[tuple[TableLoop, TableMetrics]]:
        """Every table that has a slot, and its figures; those of others are gone."""
        slots = list(self.slots())
        for table in self._tables.keys() - {slot.table for slot in slots}:
            self._tables.pop(table, None)
        return [(slot, self._followed(slot)) for slot in slots]

    def _followed(self, slot: TableLoop) -> TableMetrics:
        """A table that changed waits for its old self: it is still from when it was first seen, not from before."""
        found = self.of(slot.table)
        if found.slot is not slot:
            found.turned = self.monotonic() if found.slot else found.turned
            found.slot = slot
        return found
