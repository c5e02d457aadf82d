"""
The metrics of every table, counted tick by tick.

A table's metrics are written by the thread that ticks it and read by any thread; a tick costs a few additions. The
metrics of a table whose loop is gone are dropped.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client import Histogram

from bookkeeper.config.maintained import is_by_catalog
from bookkeeper.config.units import from_epoch_ms
from bookkeeper.contract import keyed
from bookkeeper.contract.marks import PROPERTY
from bookkeeper.ledger.view import View
from bookkeeper.observe.metrics.fold_metrics import FoldMetrics
from bookkeeper.observe.metrics.history import History
from bookkeeper.observe.metrics.inspection import Inspected, Inspection, RejectedTxlog
from bookkeeper.serve.loop import TableLoop
from bookkeeper.tick.result import RewritesDone, TickResult
from bookkeeper.tick.tick import Bookkeeper

log = logging.getLogger("bookkeeper")

COMMIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
VISIBLE_SECONDS = (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 1800)
TICK_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
#: what is counted of committed rewrites
REWRITTEN = ("committed", "replaced_files", "added_files", "rows", "bytes")
COMMITTED, IDLE, STANDBY, FAILED = "committed", "idle", "standby", "failed"


@dataclass
class TableStats:
    """What grows with a table's history, as of the last view of its metadata."""

    snapshots: int = 0
    manifests: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    writers: int = 0
    marks: int = 0
    marks_bytes: int = 0
    #: of a keyed table: all its live delete files, and what these delete by key and by position
    keyed: bool = False
    delete_files: int = 0
    equality_deletes: int = 0
    position_deletes: int = 0


class TableMetrics:
    """The metrics of one table."""

    #: when the catalog's service may delete files of txlogs that wait; None: it deletes none
    files_last: timedelta | None = None

    def __init__(self, table: str, began: float) -> None:
        self.table = table
        #: when its last tick ended, at first when it could have begun, by a clock that only goes forward
        self.last_tick = began
        #: the loop of `last_tick`: a loop that replaces another starts with its own time
        self.loop: TableLoop | None = None
        self.ticks, self.commits, self.added = Counter[str](), Counter[str](), Counter[str]()
        self.rejections: Counter[str] = Counter()
        self.holes = self.dropped_files = 0
        self.last_hole: datetime | None = None
        #: of rewrites: how many were committed, and their files, rows and bytes
        self.rewritten: Counter[str] = Counter()
        self.rewrite_rejections: Counter[str] = Counter()
        #: columns added and widened on request, and requests refused
        self.columns: Counter[str] = Counter()
        self.last_rewrite: datetime | None = None
        self.rewrites_pending = 0
        self.oldest_rewrite: datetime | None = None
        self.folds = FoldMetrics()
        self.tick_seconds = Histogram("tick_seconds", "", buckets=TICK_SECONDS, registry=None)
        self.commit_seconds = Histogram("commit_seconds", "", buckets=COMMIT_SECONDS, registry=None)
        self.visibility_seconds = Histogram("visibility_seconds", "", buckets=VISIBLE_SECONDS, registry=None)
        #: None when it is unknown
        self.pending: int | None = 0
        self.held = 0
        self.oldest: datetime | None = None
        self.last_commit: datetime | None = None
        #: of the snapshot that the table had last, also when this process has committed nothing yet
        self.head_at: datetime | None = None
        self.brake = ""
        self.window = timedelta(0)
        self.pending_limit: int | None = None
        self.stats: TableStats | None = None
        self.inspected = Inspected()
        self.history = History()
        self._seen: View | None = None
        #: counting failed once, and is not tried again
        self.defect = False

    def note(self, loop: TableLoop, took: float | None, now: datetime) -> None:
        """Counts a tick that has ended."""
        tick = loop.last_result
        self.ticks[_outcome(loop, tick)] += 1
        self.tick_seconds.observe(took or 0.0)
        if tick is not None:
            self._count(tick, now)
        elif loop.failures and loop.book is None and loop.waiting is not None:
            self.pending = self.oldest = None
        if loop.book is not None:
            self._see(loop.book)
        last = {"pending": self.pending, "rejected": self.inspection.rejected, "lag": self.inspection.behind}
        if self.stats is not None:
            last |= {name: getattr(self.stats, name) for name in ("snapshots", "files", "manifests")}
        last["unfolded"] = self.folds.unfolded.files if self.folds.unfolded else None
        self.history.note(last, self.age(now), tick.commit if tick else None, now)

    @property
    def inspection(self) -> Inspection:
        """What the last inspection found, and what was rejected since."""
        return self.inspected.now()

    def age(self, now: datetime) -> float:
        """Seconds that the oldest pending txlog has been pending; it goes on growing while no tick succeeds."""
        return max((now - self.oldest).total_seconds(), 0.0) if self.oldest else 0.0

    def waiting_age(self, now: datetime) -> timedelta:
        """How long the oldest txlog has been pending or rejected: no snapshot names its files."""
        oldest = self.inspection.oldest_rejected
        return max(timedelta(seconds=self.age(now)), now - oldest if oldest else timedelta(0))

    def waiting_share(self, now: datetime) -> float | None:
        """Of the age at which the catalog's service may delete such files, None where it deletes none."""
        return None if self.files_last is None else self.waiting_age(now) / self.files_last

    def rewrite_age(self, now: datetime) -> float:
        """Seconds that the oldest pending rewrite has been pending."""
        return max((now - self.oldest_rewrite).total_seconds(), 0.0) if self.oldest_rewrite else 0.0

    def delete_files(self) -> dict[str, int]:
        """Live delete files by kind; none when it is unknown."""
        if self.stats is None or self.folds.unfolded is None:
            return {}
        equality = self.folds.unfolded.files
        return {"equality": equality, "position": max(self.stats.delete_files - equality, 0)}

    def deletes(self) -> dict[str, int]:
        """How many keys, and rows by position, the live delete files delete."""
        stats = self.stats or TableStats()
        return {"equality": stats.equality_deletes, "position": stats.position_deletes}

    def _count(self, tick: TickResult, now: datetime) -> None:
        self.pending, self.oldest, self.held = len(tick.left), tick.oldest, len(tick.held)
        self.commits["refused"] += tick.refused
        if tick.holes:
            self.holes, self.last_hole = self.holes + len(tick.holes), now
        self.dropped_files += tick.dropped_files
        self._count_rewrites(tick.rewrites, now)
        self.folds.count(tick.folds)
        self.columns.update(vars(tick.columns))
        for name, why in tick.reasons.items():
            self.rejections[type(why).__name__] += 1
            self.inspected.add(RejectedTxlog(name, type(why).__name__, str(why), why.hint, now))
        if (commit := tick.commit) is None:
            return
        self.last_commit = now
        self.commits["committed"] += 1
        for what in ("txlogs", "files", "rows", "bytes", "deletes", "loose_names"):
            self.added[what] += getattr(commit, what)
        self.commit_seconds.observe(commit.took.total_seconds())
        for age in commit.visible_after:
            self.visibility_seconds.observe(max(age, timedelta(0)).total_seconds())

    def _count_rewrites(self, done: RewritesDone, now: datetime) -> None:
        self.rewrite_rejections.update(done.rejected)
        if done.committed:
            self.last_rewrite = now
            self.rewritten.update({name: getattr(done, name) for name in REWRITTEN})

    def _see(self, book: Bookkeeper) -> None:
        view, self.brake = book.view, book.duties.retention.held_back
        pending = book.duties.rewrites.pending
        self.rewrites_pending, self.oldest_rewrite = len(pending), min(pending.values(), default=None)
        self.window, self.pending_limit = book.settings.window, book.settings.pending_limit
        self.files_last = book.settings.service.orphan_age if is_by_catalog(book.settings) else None
        if view is not None and view is not self._seen:
            self._seen, self.stats = view, stats_of(view)
            with suppress(ValueError, OverflowError):  # a clock may have stamped it with any year
                self.head_at = from_epoch_ms(view.head.timestamp_ms) if view.head else None
        if view is not None:
            is_keyed = self.stats is not None and self.stats.keyed
            self.folds.see(book, view, is_keyed, self.inspection.deletes.look)


def _outcome(loop: TableLoop, tick: TickResult | None) -> str:
    if loop.failures:
        return FAILED
    if loop.standby or tick is None:
        return STANDBY
    return COMMITTED if tick.commit is not None else IDLE


def stats_of(view: View) -> TableStats:
    """
    What the metadata says of the table; reads nothing.
    """
    return TableStats(
        snapshots=len(view.metadata.snapshots),
        manifests=None if view.manifests is None else len(view.manifests),
        files=view.total("total-data-files"),
        rows=view.total("total-records"),
        bytes=view.total("total-files-size"),
        writers=len(view.marks.writers),
        marks=sum(len(known.incarnations) for known in view.marks.writers.values()),
        marks_bytes=len(view.metadata.properties.get(PROPERTY, "")),
        keyed=keyed.PROPERTY in view.metadata.properties,
        delete_files=view.total("total-delete-files"),
        equality_deletes=view.total("total-equality-deletes"),
        position_deletes=view.total("total-position-deletes"),
    )


@dataclass
class AllMetrics:
    """
    The metrics of all tables that have a loop; each loop calls `on_tick` after each tick.

    `monotonic` is a clock in seconds that is never set.
    """

    loops: Callable[[], Collection[TableLoop]]
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    _tables: dict[str, TableMetrics] = field(default_factory=dict)

    def of(self, table: str) -> TableMetrics:
        """The metrics of this table; all 0 when it is new."""
        found = self._tables.get(table)
        return found or self._tables.setdefault(table, TableMetrics(table, self.monotonic()))

    def on_tick(self, loop: TableLoop, done: TickResult | None, started: datetime, took: float | None) -> None:
        """A loop's tick has ended."""
        found = self.of(loop.table)
        # First: a loop that ticks is alive, and must not be killed for a defect in counting.
        found.last_tick, found.loop = self.monotonic(), found.loop or loop
        if found.defect:
            return
        try:
            found.note(loop, took, self.clock())
        except Exception:
            found.defect = True
            log.exception("metrics failed", extra={"action": "defect", "table": loop.table})

    def now(self) -> list[tuple[TableLoop, TableMetrics]]:
        """Every table that has a loop, and its metrics; drops those of others."""
        loops = list(self.loops())
        for table in self._tables.keys() - {loop.table for loop in loops}:
            self._tables.pop(table, None)
        return [(loop, self._of_loop(loop)) for loop in loops]

    def _of_loop(self, loop: TableLoop) -> TableMetrics:
        """
        The metrics of this loop. A new loop waits for the old one of its table to end, so its time counts from now.
        """
        found = self.of(loop.table)
        if found.loop is not loop:
            found.last_tick = self.monotonic() if found.loop else found.last_tick
            found.loop = loop
        return found
