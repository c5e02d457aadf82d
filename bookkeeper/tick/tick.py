"""
The bookkeeper of one table: `tick(now)` does one tick and returns what it did. Recovery is the next tick.

The order of a tick is the protocol: list, then marks, then read, check, plan, ONE commit, marks.json, delete.
A crash after any step leaves txlogs that the next tick recognises by their marks. While the commit's manifests are
written, its data files are looked up. The compare-and-swap waits for both, so no file gets in unchecked.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.config.settings import Table
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import FromTheFuture
from bookkeeper.folds.duty import Spawn
from bookkeeper.leases.lease import Lease, NoLease
from bookkeeper.ledger.build_commit import NotConfirmed
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.commit_due import CommitDue
from bookkeeper.tick.commit_retries import CommitRetries
from bookkeeper.tick.duties import Duties
from bookkeeper.tick.inbox import Inbox
from bookkeeper.tick.loaded import LoadedTable
from bookkeeper.tick.planning import Planning
from bookkeeper.tick.reject import Rejects
from bookkeeper.tick.report import Report
from bookkeeper.tick.result import Commit, TickResult
from bookkeeper.tick.select import cut, in_order, writers_left
from bookkeeper.tick.state import Attempt, Memory, Next, Tick


class Bookkeeper:
    """
    Commits the txlogs of one folder to one table.

    `now` comes with each tick. What it remembers (a view of the table) only saves work: throwing the object away
    between any two steps loses nothing.
    """

    def __init__(
        self,
        settings: Table,
        folder: Folder,
        ledger: Ledger,
        reload: timedelta = timedelta(seconds=10),
        store: Callable[[str], Store] | None = None,
        lease: Lease | None = None,
        inbox: Inbox | None = None,
        folds: Spawn | None = None,
    ) -> None:
        self.settings, self.folder, self.ledger, self.clock = settings, folder, ledger, ledger.clock
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "tick")
        self.open_store = store or ledger.open_store
        self.lease = lease or NoLease()
        self.inbox = inbox or Inbox(settings, folder, ledger)
        self.publisher = MarksPublisher(ledger, folder, settings.name)
        self.loaded = LoadedTable(settings, folder, ledger, self.publisher, reload)
        self.planning = Planning(settings, folder, ledger)
        self.rejects = Rejects(settings, folder, self.inbox.pending_index, self.clock)
        self.report = Report(settings.name)
        self.commit_due = CommitDue(folder.store.url, settings.name, settings.window)
        self.duties = Duties(settings, folder, ledger, self.open_store, folds)
        self.memory = Memory()
        self.retries = CommitRetries(settings.identifier, self.log, self.loaded, self.planning, self.memory)
        #: the result of this tick, or of the last one; kept when a tick raises, because what it did stays done
        self.result = TickResult()

    @property
    def view(self) -> View | None:
        """The table as it was loaded last, or as our last commit left it; None: it is not known."""
        return self.loaded.view

    def tick(self, now: datetime) -> TickResult:
        """
        Commits what is pending, once. Raises Retry or Halt; either way the next tick can go on.
        """
        self.clock.begin(now)
        self.result = TickResult()
        with ExitStack() as reserved:
            tick = self.inbox.find(now, reserved)
            self.result = tick.result
            self.memory.found(tick.found)
            view, fresh = self.loaded.refresh(now)
            # marks.json may be older than the table, after a crash or when the folder was restored. A load has just
            # compared it, and a commit notices by its conditional put: when neither happens, it is read again.
            self.publisher.publish(view, verify=not (tick.found or fresh))
            self.rejects.misnamed(tick, self.inbox.misnamed)
            if tick.found:
                with self.inbox.part_of_read_budget(tick):
                    view = self._commit_pending(tick, Attempt(view, fresh))
        self.rejects.oversize(tick)
        self._run_duties(tick, view)
        return tick.result

    def _commit_pending(self, tick: Tick, first: Attempt) -> View:
        """
        Tries to commit one batch; the table after it. IDLE: nothing is due. DONE: the batch is in, or empty.

        After RELOAD or LOOK_AGAIN the table is loaded again, with its marks, and everything is planned anew.
        """
        for attempt in self.retries.attempts(tick, first):
            self._delete_committed(tick, attempt)
            if self._select(tick, attempt) is Next.IDLE:
                return attempt.view
            self._read(tick, attempt)
            self._check(tick, attempt)
            step = self._plan(tick, attempt)
            if step is Next.COMMIT:
                step = self._commit(tick, attempt)
            if step is Next.DONE:
                self.publisher.publish(attempt.view)  # before the delete: writers read pending/ first, then the marks
                self._settle(tick, attempt)
                self.inbox.delete(attempt.batch.names)
                return attempt.view
            if step is Next.LOOK_AGAIN:
                tick.look_again(self.folder.pending())  # before the load: what is not pending any more is in its marks
            self.loaded.forget()
        raise self.retries.exhausted(tick)

    def _delete_committed(self, tick: Tick, attempt: Attempt) -> None:
        """Deletes what the marks say is in; the rest is left for this tick."""
        done = [item.name for item in tick.found if attempt.view.marks.is_in(item.name)]
        if done:
            self.publisher.publish(attempt.view)
            tick.result.settle(done)
            self.inbox.delete(done)
        settled = {*map(str, done), *tick.result.rejected}
        attempt.left = [item for item in tick.found if str(item.name) not in settled] if settled else tick.found
        tick.result.waiting = len(attempt.left)

    def _select(self, tick: Tick, attempt: Attempt) -> Next:
        """Takes up what is left, oldest first, once a commit is due."""
        self.clock.dated(tick.found)
        sized = [item for item in attempt.left if item.size <= self.settings.max_txlog_bytes]
        rest = in_order(sized, by_writer=attempt.view.is_keyed)
        # Incarnations that were blocked at the last plan come last, or they could take every place of each tick.
        if blocked := self.memory.blocked:
            rest.sort(key=lambda item: item.name.incarnation_key in blocked)
        due = self.commit_due.is_due(rest, tick.limits.txlogs, tick.now)
        attempt.names = cut(rest, tick.limits) if due else []
        all_read = len(attempt.names) >= tick.result.waiting
        attempt.unread_writers = frozenset() if all_read else writers_left(tick.found, attempt.names)
        return Next.COMMIT if attempt.names else Next.IDLE

    def _read(self, tick: Tick, attempt: Attempt) -> None:
        # A clock that is wrong must neither condemn a txlog nor stamp a commit.
        self.clock.check_behind(attempt.view)
        self.clock.check_ahead(tick.now)
        tick.intake.sizes = {item.name: item.size for item in tick.found}
        tick.intake.read(attempt.names)

    def _check(self, tick: Tick, attempt: Attempt) -> None:
        tick.intake.check(self.loaded.rules(attempt.view), tick.now_ms)
        defects, doubted = self.memory.defects, self.memory.doubted
        if defects:
            tick.intake.held |= {name: defects[name] for name in attempt.names if name in defects}
        if doubted:  # or each of its ticks would write a commit in vain
            self._look_up(tick, attempt, [name for name in attempt.names if name in doubted])

    def _look_up(self, tick: Tick, attempt: Attempt, names: Sequence[TxlogName]) -> None:
        if self.settings.check_files and names:
            tick.intake.check_files(attempt.view.data_store(self.open_store), names)

    def _plan(self, tick: Tick, attempt: Attempt) -> Next:
        """Rejects what is bad and plans the batch, unless a newer view or a second listing must come first."""
        bad = tick.intake.bad
        if bad and not (tick.listed and attempt.fresh):
            # The schema or the spec it names may be newer than the view.
            return Next.RELOAD if tick.listed else Next.LOOK_AGAIN
        if any(isinstance(why, FromTheFuture) for why in bad.values()):
            self.clock.check_right()
        # Only what this attempt read: others may be in the table by now.
        self.rejects.reject(tick, {name: bad[name] for name in attempt.names if name in bad})
        attempt.batch = batch = self.planning.batch(tick, attempt)
        self.memory.blocked = batch.blocked
        if batch.doubtful and not tick.listed_twice:
            # A listing may miss names. What was there before a txlog that the first one shows is in a second listing,
            # or in the marks of a later load: only these prove a gap, or a position that does not fit.
            return Next.LOOK_AGAIN
        # One that only the second listing shows is not rejected: that listing may have missed what came before it.
        batch.rejected = {name: why for name, why in batch.rejected.items() if name in tick.first_listed}
        return Next.COMMIT

    def _commit(self, tick: Tick, attempt: Attempt) -> Next:
        """Commits the batch, if it holds anything; RELOAD when the table must tell whether it is in."""
        batch = attempt.batch
        if not batch.txlogs:
            return Next.DONE
        at = self.clock.stamp(tick.now)
        marks, began = self.planning.marks(attempt, tick.now, at), self.clock()
        try:
            beside = [partial(self._confirm, tick, attempt)]
            attempt.view = self.loaded.view = self.ledger.append(attempt.view, batch.txlogs, marks, beside)
        except NotConfirmed:
            return Next.RELOAD
        except Exception as error:  # noqa: BLE001 - it is raised again, unless the next attempt can go on
            self.loaded.forget()  # the commit may be in, and others may have expired what the view names
            self.retries.failed(tick, attempt, error)
            return Next.RELOAD
        self.commit_due.committed_at = tick.now
        loose = [name for name in batch.names if name in tick.intake.loose]
        tick.result.commit = Commit.of(attempt.view, batch.txlogs, began, self.clock(), len(loose))
        self.report.loose_names(loose, tick.intake.loose)
        tick.result.settle(batch.names)
        return Next.DONE

    def _confirm(self, tick: Tick, attempt: Attempt) -> None:
        """
        What must be so before the batch may be committed, found out beside the commit's writes.

        Raises NotConfirmed when data files are missing or wrong, or cannot be looked up: the next attempt does without
        those txlogs.
        """
        self._look_up(tick, attempt, attempt.batch.names)
        good = tick.intake.good
        if any(name not in good for name in attempt.batch.names):
            raise NotConfirmed

    def _settle(self, tick: Tick, attempt: Attempt) -> None:
        """Rejects, holds and reports what did not get in."""
        batch, result = attempt.batch, tick.result
        self.rejects.reject(tick, batch.rejected)
        self.report.held(batch.held)
        self.report.missing(batch.holes)
        result.held, result.holes = list(batch.held), batch.holes
        result.waiting -= len(batch.names)
        result.trouble = result.trouble or next(iter(tick.intake.troubles.values()), None)
        self.memory.doubted = set(tick.intake.troubles)

    def _run_duties(self, tick: Tick, view: View) -> None:
        done = self.duties.run(view, tick.now, rows_came=tick.result.commit is not None)
        self.loaded.view = done.after
        tick.result.rewrites, tick.result.columns, tick.result.folds = done.rewrites, done.columns, done.folds
        if done.after is not None and done.after is not view:
            tick.result.dropped_files = done.dropped_files
            self.publisher.publish(done.after)
