"""
Folds as a duty of the tick: they are planned beside the ticks, and committed by a tick, after its rows.

Nothing of a tick waits for a fold that is being planned. A crash leaves position delete files that nothing names, for
the orphan sweep, or a fold that is committed. A plan that the table has outrun is dropped, and made anew.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
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

#: plans a fold as `plan_fold` does, wherever; the second one of a table of any catalog
Plan = Callable[[Ledger, View, datetime, bytes, Budget], Computed]
PlanOf = Callable[[Catalog, Ledger, View, datetime, bytes, Budget], Computed]


class Act(Protocol):
    """What a thread does: with `plan`, or with `plan_fold`."""

    def __call__(self, plan: Plan | None = None) -> None: ...


#: does it in a thread of its own; False when that is not possible now
Spawn = Callable[[Act, str], bool]


class FoldThreads:
    """
    The threads that plan folds of all tables of a process, which does not wait for them when it ends.

    Each takes one of `planners`, and puts it back: there are as many threads, and a planner belongs to one of them.
    """

    def __init__(self, planners: Iterable[PlanOf]) -> None:
        # The last that was used comes first: one process is kept while one is enough.
        self._planners = LifoQueue[PlanOf]()
        for planner in planners:
            self._planners.put(planner)

    def of(self, catalog: Catalog) -> Spawn:
        """The same threads, for tables of this catalog."""
        return partial(self._spawn, catalog)

    def _spawn(self, catalog: Catalog, act: Act, name: str) -> bool:
        try:
            planner = self._planners.get_nowait()
        except Empty:
            return False
        try:
            start(partial(self._run, act, planner, catalog), name)
        except RuntimeError:  # the process may have no more threads now
            self._planners.put(planner)
            return False
        return True

    def _run(self, act: Act, planner: PlanOf, catalog: Catalog) -> None:
        try:
            act(partial(planner, catalog))
        finally:
            self._planners.put(planner)


@dataclass
class Attempt:
    """
    A look at the table, and a plan where a fold is due: its thread alone reads and writes it, and then the tick.
    """

    settings: Table
    ledger: Ledger
    store: Store
    log: TableLog
    deletes: EqualityDeletes
    view: View
    now: datetime
    #: equality delete files that could not be folded, by `file_key`, and until when they are left alone
    left: Mapping[str, datetime]
    #: since when folds wait for a job
    paused_since: datetime | None
    #: the head, and when a fold of what it has is due
    looked: tuple[int, datetime] | None = None
    #: the fold waits for a job, or for none
    paused: bool = False
    overruled: bool = False
    computed: Computed | None = None
    failed: bool = False

    def run(self, plan: Plan) -> None:
        """Looks, and plans a fold where one is due; raises nothing."""
        try:
            files = self._look()
            if files and not self._is_paused(files, self.now):
                random, budget = os.urandom(10), Budget.of(self.settings.fold)
                computed = plan(self.ledger, self.view, self.now, random, budget)
                # A job that began meanwhile has read the table without this fold.
                if self.overruled or not self._is_paused(files, self.now):
                    self.computed = computed
        except BookkeeperError as error:
            self.failed = True
            hint = {"hint": error.hint} if error.hint else {}
            self.log.warning("fold postponed", cause=str(error), **hint)
        except Exception as error:
            # A defect of ours must not cost the table its rows.
            self.failed = True
            self.log.exception("a defect of the bookkeeper", cause=repr(error))

    def _is_paused(self, files: int, now: datetime) -> bool:
        """Whether a job rewrites data files, and may go on: see `fold_pause`."""
        self.paused = self.overruled = False
        if not fold_pause.paused(self.store, now):
            self.paused_since = None
            return False
        begins, policy = self.paused_since is None, self.settings.fold
        since = self.paused_since = self.paused_since or now
        if files >= policy.pause_files or not timedelta(0) <= now - since < policy.pause_most:
            self.paused_since, self.overruled = None, True
            cause = f"a job wants folds to pause, but {files} equality delete files are live, and since {since}"
            self.log.warning("folds go on", cause=cause, hint="The job may have to be run again.")
            return False
        if begins:
            self.log.info("folds paused", cause="a job rewrites data files", files=files)
        self.paused = True
        return True

    def _look(self) -> int:
        """
        How many files are to be folded, if a fold is due: there are enough, or one has waited for so long; else 0.
        """
        view, now, policy = self.view, self.now, self.settings.fold
        assert view.head is not None
        self.left = {key: until for key, until in self.left.items() if now < until <= now + AGAIN_AFTER}
        snapshots = [snapshot for key, snapshot in self.deletes.list(view) if key not in self.left]
        times = {item.snapshot_id: item.timestamp_ms for item in view.metadata.snapshots}
        # One whose snapshot has expired has waited long enough.
        oldest = min((times.get(snapshot, 0) for snapshot in snapshots), default=None)
        due = now + AGAIN_AFTER if oldest is None else datetime.fromtimestamp(oldest / 1000, now.tzinfo) + policy.after
        self.looked = view.head.snapshot_id, due
        return len(snapshots) if len(snapshots) >= policy.files or now >= due else 0


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
        self._under_way = False
        #: what the thread that plans folds hands over when it ends
        self._ended = SimpleQueue[Attempt]()
        self._look_at: datetime | None = None
        #: lists what is live; of the attempt that is under way
        self._deletes = EqualityDeletes(ledger)
        #: what was live at the last look, and what the last fold took out, by `file_key`
        self.look: Look | None = None
        self._folded: Set[str] = frozenset()
        self._outcomes = deque[FoldOutcome]()
        #: as in an attempt, of the last one
        self._looked: tuple[int, datetime] | None = None
        self._left: Mapping[str, datetime] = {}
        self._paused_since: datetime | None = None
        self._reported: Counter[str] = Counter()

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after the commit of a fold that is ready; None when it is unknown whether that is in.
        """
        self._take()
        if self.plan is not None:
            return self._commit(view, self.plan, now)
        if self.spawn is not None and not self._under_way and self._is_due(view, now):
            self._look_at = now + LOOK_EVERY
            act = partial(self._work, self._attempt(view, now))
            self._under_way = self.spawn(act, f"fold {self.settings.name}")
        return view

    @property
    def left(self) -> Counter[str]:
        """How many equality delete files the last plan left, by why."""
        return self._reported

    def outcomes(self) -> list[FoldOutcome]:
        """How folds ended since the last call."""
        self._take()
        ended, self._outcomes = list(self._outcomes), deque()
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
        return self._looked is None or self._looked[0] != view.head.snapshot_id or now >= self._looked[1]

    def _attempt(self, view: View, now: datetime) -> Attempt:
        what = self.settings, self.ledger, self.store, self.log, self._deletes
        return Attempt(*what, view, now, self._left, self._paused_since)

    def _work(self, attempt: Attempt, plan: Plan | None = None) -> None:
        """In a thread of its own, which writes nothing else."""
        try:
            attempt.run(plan or plan_fold)
        finally:
            self._ended.put(attempt)

    def _take(self) -> None:
        """Takes over an attempt that has ended."""
        if self._ended.empty():
            return
        attempt = self._ended.get()
        self._under_way, self.look = False, self._deletes.look
        self._looked, self._left, self._paused_since = attempt.looked, attempt.left, attempt.paused_since
        if attempt.failed:
            self._postpone(attempt.now)
        elif attempt.computed is not None:
            self._take_plan(attempt.computed, attempt.now)
        elif attempt.paused:
            self._look_at, self._looked = attempt.now + PAUSED_LOOK, None

    def _postpone(self, now: datetime) -> None:
        self._look_at, self._looked = now + FAILURE_PAUSE, None
        self._outcomes.append(FoldOutcome(FAILED))

    def _take_plan(self, computed: Computed, now: datetime) -> None:
        self.plan = computed.plan
        self._left = {**self._left, **dict.fromkeys(computed.left, now + AGAIN_AFTER)}
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
            self.plan = self._looked = None
            self._outcomes.append(FoldOutcome(OUTDATED))
            self.log.info("fold planned anew", cause=str(error))
            return view
        except (CommitConflict, CommitUnknown) as error:
            # If it is in after all, the next attempt finds none of its deletes live.
            self.log.warning("commit not confirmed", cause=str(error))
            return None
        except Retry as error:
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
        self.plan = self._looked = None
        self._folded = frozenset(item.key for item in plan.folded)
        self._outcomes.append(committed(after, len(plan.folded), self.ledger.clock() - plan.begun))
        about = {"deletes": len(plan.folded), "files": len(plan.files), "rows": plan.rows}
        self.log.info("deletes folded", **about, snapshot=after.marks.snapshot)
        return after
