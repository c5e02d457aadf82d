"""
Folds as a duty of the tick: they are planned beside the ticks, and committed by a tick, after its rows.

Nothing of a tick waits for a fold that is being planned. A crash leaves position delete files that nothing names, for
the orphan sweep, or a fold that is committed. A plan that the table has outrun is dropped, and made anew.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, LifoQueue, SimpleQueue
from typing import Protocol

from pyiceberg.manifest import ManifestContent

from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract import fold_pause, keyed
from bookkeeper.contract.table_log import TableLog
from bookkeeper.errors import BookkeeperError, CommitConflict, CommitUnknown, FoldOutdated, Retry
from bookkeeper.folds.budget import Budget, Computed, advice
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.stats import (
    FAILED,
    OUTDATED,
    REFUSED,
    EqualityDeletes,
    FoldOutcome,
    Look,
    Unfolded,
    committed,
    newest,
    unfolded,
)
from bookkeeper.ledger.fold_commit import commit_fold
from bookkeeper.ledger.fold_plan import FoldPlan
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.threads import start

#: pause between two looks at a table that changes, after a failure, and before what could not be folded is tried again
LOOK_EVERY, FAILURE_PAUSE, AGAIN_AFTER = timedelta(seconds=2), timedelta(seconds=60), timedelta(minutes=10)
#: pause between two looks whether a job still wants folds to pause
PAUSED_LOOK = timedelta(seconds=10)
#: folds of all tables of a process at once: each may take the memory of a budget
MOST_AT_ONCE = 2

#: plans a fold as `plan_fold` does, wherever
Plan = Callable[[Ledger, View, datetime, bytes, Budget], Computed]
#: the same, of a table of this catalog
PlanOf = Callable[[Catalog, Ledger, View, datetime, bytes, Budget], Computed]


class Work(Protocol):
    """Looks, and plans a fold where one is due, by `plan` or else by `plan_fold`."""

    def __call__(self, plan: Plan | None = None) -> None: ...


#: does it in a thread of its own; False when that is not possible now
Spawn = Callable[[Work, str], bool]


class FoldThreads:
    """
    The threads in which folds of all tables of a process are planned; the process does not wait for them when it ends.

    Each has one of the `seats`: what plans there, None where the thread does. A seat is in the queue or its thread's.
    """

    def __init__(self, seats: Iterable[PlanOf | None] = (None,) * MOST_AT_ONCE) -> None:
        #: the one that was used last comes first: so others that have a process give it up
        self._seats = LifoQueue[PlanOf | None]()
        for seat in seats:
            self._seats.put(seat)

    def of(self, catalog: Catalog) -> Spawn:
        """The threads, for tables of this catalog."""
        return partial(self._spawn, catalog)

    def _spawn(self, catalog: Catalog, work: Work, name: str) -> bool:
        try:
            seat = self._seats.get_nowait()
        except Empty:
            return False
        try:
            start(partial(self._run, seat, catalog, work), name)
        except RuntimeError:  # the process may have no more threads now
            self._seats.put(seat)
            return False
        return True

    def _run(self, seat: PlanOf | None, catalog: Catalog, work: Work) -> None:
        try:
            work(None if seat is None else partial(seat, catalog))
        finally:
            self._seats.put(seat)


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether folds wait for a job, and since when; `overruled`: one asks, and is not waited for any longer."""

    since: datetime | None = None
    overruled: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What an attempt leaves to the next one, as a value: the table's thread has the last one."""

    deletes: EqualityDeletes = field(default_factory=EqualityDeletes)
    #: equality delete files that could not be folded, by `file_key`, and until when they are left alone
    left: Mapping[str, datetime] = field(default_factory=dict)
    #: since when folds wait for a job
    paused_since: datetime | None = None
    #: the head, and when a fold of what it has is due
    looked: tuple[int, datetime] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt that began at `at` ended."""

    memory: Memory
    at: datetime
    #: None where no fold was due, or it failed, or it waits for a job
    computed: Computed | None = None
    failed: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    A look at the table, and a plan where a fold is due. It changes nothing: what it found is what it returns.
    """

    settings: Table
    ledger: Ledger
    store: Store
    log: TableLog
    view: View
    now: datetime
    before: Memory

    def run(self, plan: Plan) -> Ended:
        """Looks, and plans a fold where one is due; raises nothing."""
        memory = self.before
        try:
            files, memory = self._look()
            if not files:
                return Ended(memory, self.now)
            pause = self._pause(files, memory.paused_since)
            memory = replace(memory, paused_since=pause.since)
            if pause.since is not None:
                return Ended(memory, self.now, waits=True)
            computed = plan(self.ledger, self.view, self.now, os.urandom(10), Budget.of(self.settings.fold))
            pause = self._pause_since_the_plan(files, pause)
            if pause.since is not None:
                return Ended(replace(memory, paused_since=pause.since), self.now, waits=True)
            return Ended(memory, self.now, computed)
        except BookkeeperError as error:
            hint = {"hint": error.hint} if error.hint else {}
            self.log.warning("fold postponed", cause=str(error), **hint)
        except Exception as error:
            # A defect of ours must not cost the table its rows.
            self.log.exception("a defect of the bookkeeper", cause=repr(error))
        return Ended(memory, self.now, failed=True)

    def _pause_since_the_plan(self, files: int, before: Pause) -> Pause:
        """A job that began meanwhile has read the table without this fold."""
        return before if before.overruled else self._pause(files, None)

    def _pause(self, files: int, before: datetime | None) -> Pause:
        """Whether a job rewrites data files, and may go on: see `fold_pause`."""
        if not fold_pause.paused(self.store, self.now):
            return Pause()
        since, policy = before or self.now, self.settings.fold
        if files >= policy.pause_files or not timedelta(0) <= self.now - since < policy.pause_most:
            cause = f"a job wants folds to pause, but {files} equality delete files are live, and since {since}"
            self.log.warning("folds go on", cause=cause, hint="The job may have to be run again.")
            return Pause(overruled=True)
        if before is None:
            self.log.info("folds paused", cause="a job rewrites data files", files=files)
        return Pause(since)

    def _look(self) -> tuple[int, Memory]:
        """
        How many files are to be folded, if a fold is due: there are enough, or one has waited for so long; else 0.
        """
        view, now, policy = self.view, self.now, self.settings.fold
        assert view.head is not None
        left = {key: until for key, until in self.before.left.items() if now < until <= now + AGAIN_AFTER}
        deletes = self.before.deletes.seen(self.ledger, view)
        snapshots = [snapshot for key, snapshot in deletes.files if key not in left]
        times = {item.snapshot_id: item.timestamp_ms for item in view.metadata.snapshots}
        # One whose snapshot has expired has waited long enough.
        oldest = min((times.get(snapshot, 0) for snapshot in snapshots), default=None)
        due = now + AGAIN_AFTER if oldest is None else datetime.fromtimestamp(oldest / 1000, now.tzinfo) + policy.after
        memory = Memory(deletes, left, self.before.paused_since, (view.head.snapshot_id, due))
        return (len(snapshots) if len(snapshots) >= policy.files or now >= due else 0), memory


class Folds:
    """
    Folds the equality deletes of one keyed table; without `spawn` it folds nothing. To be used by one thread.
    """

    def __init__(self, settings: Table, ledger: Ledger, spawn: Spawn | None, store: Store) -> None:
        """`store` holds the txlog folder."""
        self.settings, self.ledger, self.spawn, self.store = settings, ledger, spawn, store
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "fold")
        #: a fold that is ready to be committed
        self.plan: FoldPlan | None = None
        #: whether its last commit failed: the next run leaves the turn to the duties that come after folds
        self._failed = False
        self._under_way = False
        #: what the thread that plans folds hands over when it ends
        self._ended = SimpleQueue[Ended]()
        self._look_at: datetime | None = None
        #: of the last attempt that was taken over
        self._memory = Memory()
        #: what the last fold took out, by `file_key`
        self._folded: Set[str] = frozenset()
        self._outcomes = list[FoldOutcome]()
        self._reported: Counter[str] = Counter()

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after the commit of a fold that is ready; None when it is unknown whether that is in.
        """
        self._take()
        if self.plan is not None:
            self._failed, failed = False, self._failed
            return view if failed else self._commit(view, self.plan, now)
        if self.spawn is not None and not self._under_way and self._is_due(view, now):
            self._look_at = now + LOOK_EVERY
            what = self.settings, self.ledger, self.store, self.log
            work = partial(_work, Attempt(*what, view, now, self._memory), self._ended)
            self._under_way = self.spawn(work, f"fold {self.settings.name}")
        return view

    @property
    def look(self) -> Look | None:
        """The live delete files at the last look."""
        return self._memory.deletes.look

    @property
    def left(self) -> Counter[str]:
        """How many equality delete files the last plan left, by why."""
        return self._reported

    def outcomes(self) -> list[FoldOutcome]:
        """How folds ended since the last call."""
        self._take()
        ended, self._outcomes = self._outcomes, []
        return ended

    def unfolded(self, view: View, seen: Look | None) -> Unfolded | None:
        """What is unfolded in this view, by the last look, or what another one has `seen`; None when it is unknown."""
        return unfolded(view, newest(self.look, seen), self._folded)

    def _is_due(self, view: View, now: datetime) -> bool:
        if view.head is None or keyed.PROPERTY not in view.metadata.properties or not self.settings.fold.enabled:
            return False
        if view.manifests is not None and all(item.content == ManifestContent.DATA for item in view.manifests):
            return False
        if self._look_at is not None and now < self._look_at <= now + FAILURE_PAUSE:
            return False
        looked = self._memory.looked
        return looked is None or looked[0] != view.head.snapshot_id or now >= looked[1]

    def _take(self) -> None:
        """Takes over an attempt that has ended."""
        if self._ended.empty():
            return
        ended = self._ended.get()
        self._under_way, self._memory = False, ended.memory
        if ended.failed:
            self._postpone(ended.at)
        elif ended.computed is not None:
            self._take_plan(ended.computed, ended.at)
        elif ended.waits:
            self._look_again(ended.at + PAUSED_LOOK)

    def _look_again(self, at: datetime | None = None) -> None:
        """Looks even if the head is the same; not before `at`."""
        self._look_at, self._memory = at or self._look_at, replace(self._memory, looked=None)

    def _postpone(self, now: datetime) -> None:
        self._look_again(now + FAILURE_PAUSE)
        self._outcomes.append(FoldOutcome(FAILED))

    def _take_plan(self, computed: Computed, now: datetime) -> None:
        self.plan = computed.plan
        left = {**self._memory.left, **dict.fromkeys(computed.left, now + AGAIN_AFTER)}
        self._memory = replace(self._memory, left=left)
        reasons = Counter(computed.left.values())
        if reasons:
            self._outcomes.append(FoldOutcome(REFUSED, reasons=tuple(reasons)))
        if reasons != self._reported:
            self._reported = reasons
            for why, files in reasons.items():
                self.log.warning("deletes not folded", cause=why, files=files, hint=advice(why))

    def _commit(self, view: View, plan: FoldPlan, now: datetime) -> View | None:
        try:
            after = commit_fold(self.ledger, view, plan)
        except FoldOutdated as error:
            self.plan = None
            self._look_again()
            self._outcomes.append(FoldOutcome(OUTDATED))
            self.log.info("fold planned anew", cause=str(error))
            return view
        except (CommitConflict, CommitUnknown) as error:
            # If it is in after all, the next attempt finds none of its deletes live.
            self._failed = True
            self.log.warning("commit not confirmed", cause=str(error))
            return None
        except Retry as error:
            self._failed = True
            self.log.warning("fold postponed", cause=str(error))
            return None
        except BookkeeperError as error:
            self.plan = None
            self._postpone(now)
            self.log.warning("fold given up", cause=str(error))
            return view
        except Exception as error:
            # A defect of ours: with the plan kept, each tick would fail on it. Whether it is in, the next load says.
            self.plan = None
            self._postpone(now)
            self.log.exception("a defect of the bookkeeper", cause=repr(error))
            return None
        self.plan = None
        self._look_again()
        self._folded = frozenset(item.key for item in plan.folded)
        self._outcomes.append(committed(after, len(plan.folded), self.ledger.clock() - plan.begun))
        about = {"deletes": len(plan.folded), "files": len(plan.files), "rows": plan.rows}
        self.log.info("deletes folded", **about, snapshot=after.marks.snapshot)
        return after


def _work(attempt: Attempt, ended: "SimpleQueue[Ended]", plan: Plan | None = None) -> None:
    """Runs in a thread of its own: puts the outcome into the queue."""
    ended.put(attempt.run(plan or plan_fold))
