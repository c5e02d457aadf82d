"""
The bookkeeper of one table: `tick(now)` does one tick and returns what it did. Recovery is the next tick.

The order of a tick is the protocol: list, then marks, then read, check, plan, ONE commit, marks.json, delete.
A crash after any step leaves txlogs that the next tick recognises by their marks. While the commit's manifests are
written, its data files are looked up. The compare-and-swap waits for both, so no file gets in unchecked.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.config.settings import Table
from bookkeeper.config.units import epoch_ms
from bookkeeper.core.delete_scope import is_unpartitioned
from bookkeeper.core.file_names import LOOSE
from bookkeeper.core.folder import Folder, Found
from bookkeeper.core.keyed import keyed_of
from bookkeeper.core.names import IncarnationKey, TxlogName
from bookkeeper.core.table_log import TableLog
from bookkeeper.core.txlog import Txlog
from bookkeeper.discover.discovery import Discovery, Listing
from bookkeeper.discover.pending_index import PendingIndex
from bookkeeper.errors import (
    BookkeeperError,
    ClockBehind,
    CommitConflict,
    CommitUnknown,
    FromTheFuture,
    Hold,
    Missing,
    StorageUnavailable,
    Unfit,
)
from bookkeeper.fold.duty import Spawn
from bookkeeper.leases.lease import Lease, NoLease
from bookkeeper.ledger.keys import mend_delete_spec
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.numbers import committed_number
from bookkeeper.ledger.txlog_groups import grouped_by_spec
from bookkeeper.ledger.view import View
from bookkeeper.retention.apply import with_commit_time
from bookkeeper.stores.store import Store
from bookkeeper.tick.card import card_of, is_strict
from bookkeeper.tick.check import rules_of
from bookkeeper.tick.consumed import Consumed
from bookkeeper.tick.culprits import culprits
from bookkeeper.tick.duties import Duties
from bookkeeper.tick.intake import Intake, defect
from bookkeeper.tick.pace import Pace
from bookkeeper.tick.plan import CheckedTxlogs, gaps, plan, resumed
from bookkeeper.tick.prune import Prune
from bookkeeper.tick.read_budget import ReadBudget
from bookkeeper.tick.reject import Rejects
from bookkeeper.tick.result import Commit, TickResult
from bookkeeper.tick.select import Limits, cut, in_order, writers_left
from bookkeeper.tick.state import Next, Tick
from bookkeeper.tick.writer_order import WriterOrder
from bookkeeper.tick.writer_room import WriterRoom

ATTEMPTS = 5
#: what is read beside the listed sizes: a second listing may show more than the first
MORE_BYTES = 2**20
#: of a txlog that is hinted and was never listed: a larger one is listed first, so that its room is known
UNLISTED_BYTES = 2**20
_MISSING = (
    "It was deleted from pending/ before it was committed, and its rows are not in the table. If there is a copy, put "
    "it back into pending/ under its own name: it gets in once. Nothing but the bookkeeper may delete there."
)
_RENAME = (
    "Two txlogs of its run may name one file, which readers then see twice. Upgrade the writer, or let it call files "
    '<writer>-<incarnation>-<sequence>-...; then set file-names = "strict".'
)


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
        discovery: Discovery | None = None,
        read_budget: ReadBudget | None = None,
        folds: Spawn | None = None,
    ) -> None:
        self.settings, self.folder, self.ledger, self.reload = settings, folder, ledger, reload
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "tick")
        self.open_store = store or ledger.open_store
        self.lease = lease or NoLease()
        self.read_budget = read_budget or ReadBudget()
        self.limits = Limits(settings.max_files, settings.max_bytes, settings.max_txlogs)
        self.pending_index = PendingIndex(discovery or Listing(), settings.look_every)
        self.publisher = MarksPublisher(ledger, folder, settings.name)
        self.clock = ledger.clock
        self.rejects = Rejects(settings, folder, self.pending_index, self.clock)
        self.pace = Pace(folder.store.url, settings.name)
        self.consumed = Consumed(folder, settings.name)
        self.prune = Prune(settings, folder, self.clock)
        self.duties = Duties(settings, folder, ledger, self.open_store, folds)
        self.view: View | None = None
        self.loaded_at: datetime | None = None
        #: whether each data file must be called after its txlog
        self.strict_names = False
        #: incarnations that could not go on at the last plan
        self.blocked: set[IncarnationKey] = set()
        #: txlogs whose files could not be looked up last time: these are looked up before the next plan
        self.doubted: set[TxlogName] = set()
        #: pending txlogs that the engine fails on, found once for as long as this process lives
        self.defects: dict[TxlogName, Hold] = {}
        #: held txlogs and the causes that the log has named
        self.reported: set[tuple[str, str]] = set()
        #: the result of this tick, or of the last one; kept when a tick raises, because what it did stays done
        self.result = TickResult()

    def tick(self, now: datetime) -> TickResult:
        """
        Commits what is pending, once. Raises Retry or Halt; either way the next tick can go on.
        """
        with ExitStack() as reserved:
            tick = self._discover(now, reserved)
            self._refresh(tick)
            # marks.json may be older than the table, after a crash or when the folder was restored. A load has just
            # compared it, and a commit notices by its conditional put: when neither happens, it is read again.
            self.publisher.publish(tick.view, verify=not (tick.found or tick.fresh))
            self.rejects.misnamed(tick, self.pending_index.misnamed)
            if tick.found:
                with self._part_of_read_budget(tick):
                    self._commit_pending(tick)
        self.rejects.oversize(tick)
        self._run_duties(tick)
        return tick.result

    def _commit_pending(self, tick: Tick) -> None:
        """
        Tries to commit one batch. IDLE: nothing is due. DONE: the batch is in, or empty.

        After RELOAD or LOOK_AGAIN the table is loaded again, with its marks, and everything is planned anew.
        """
        for _ in range(ATTEMPTS):
            self._refresh(tick)
            self._delete_committed(tick)
            if self._select(tick) is Next.IDLE:
                return
            self._read(tick)
            self._check(tick)
            step = self._plan(tick)
            if step is Next.COMMIT:
                step = self._commit(tick)
            if step is Next.DONE:
                self.publisher.publish(tick.view)  # before the delete: writers read pending/ first, then the marks
                self._settle(tick)
                self._delete(tick.batch.names)
                return
            if step is Next.LOOK_AGAIN:
                tick.look_again(self.folder.pending())  # before the load: what is not pending any more is in its marks
            self.view = None  # makes _refresh load the table again
        what = f"{self.settings.identifier}: {ATTEMPTS} commits in a row were refused; the last one: {tick.refusal}"
        raise CommitConflict(what, hint=tick.refusal.hint)

    def _discover(self, now: datetime, reserved: ExitStack) -> Tick:
        """Finds what is pending; what is hinted is read at once, into room that stays `reserved` until the commit."""
        self.clock.begin(now)
        self.result = TickResult()
        intake = Intake(self.folder, self.settings.max_txlog_bytes)
        self.consumed.before_listing()
        read = partial(self._read_unlisted, now, intake, reserved)
        found = self.consumed.without(self.pending_index.found(self.folder, read))
        if self.defects:
            self.defects = {item.name: self.defects[item.name] for item in found if item.name in self.defects}
        self.result = TickResult.of(found)
        names = frozenset(item.name for item in found)
        return Tick(now, found, names, self.result, intake, self.limits, self.pending_index.listed)

    def _read_unlisted(
        self, now: datetime, intake: Intake, reserved: ExitStack, names: Sequence[TxlogName]
    ) -> Mapping[TxlogName, Found | Missing | Unfit | StorageUnavailable]:
        """Reads txlogs whose sizes no listing has said, each as far as an equal part of the room goes."""
        most = min(self.settings.max_txlog_bytes, UNLISTED_BYTES)
        with self.read_budget.part(most * len(names), now) as room:
            answers = intake.read_unlisted(names, min(most, room // len(names)))
            size = sum(answer.size for answer in answers.values() if isinstance(answer, Found))
            reserved.enter_context(self.read_budget.part(size, now))
        return answers

    @contextmanager
    def _part_of_read_budget(self, tick: Tick) -> Iterator[None]:
        wanted = sum(item.size for item in tick.found if item.size <= self.settings.max_txlog_bytes)
        with self.read_budget.part(wanted + MORE_BYTES, tick.now) as most:
            tick.limits = replace(self.limits, reads=most)
            yield

    def _refresh(self, tick: Tick) -> None:
        """
        Loads the table again when the view is older than `reload`: others may have committed.

        After a commit that failed and before each further attempt there is no view: then what the folder remembers of
        card.json and marks.json is forgotten as well.
        """
        known = self.view
        if known is None:
            self.folder.forget()
        if known is None or self.loaded_at is None or abs(tick.now - self.loaded_at) >= self.reload:
            self.view = None
            view, card, marks_copy = load(self.ledger, self.folder, known=known)
            if mend_delete_spec(view.table):
                self.log.warning("the delete spec was gone or does not fit; another is used", action="keys")
                view, card, marks_copy = load(self.ledger, self.folder, known=known)
            self.publisher.compare(view, marks_copy)
            if self.folder.write_card(card_of(view, self.settings, card.folder, card.file_names)):
                self.log.info("card changed", action="card")
            self.strict_names = is_strict(self.settings, card)
            self.view, self.loaded_at, tick.fresh = view, tick.now, True
            known = view
        tick.view = known

    def _delete_committed(self, tick: Tick) -> None:
        """Deletes what the marks say is in; the rest is left for this tick."""
        done = [item.name for item in tick.found if tick.view.marks.is_in(item.name)]
        if done:
            self.publisher.publish(tick.view)
            tick.result.settle(done)
            self._delete(done)
        settled = {*map(str, done), *tick.result.rejected}
        tick.left = [item for item in tick.found if str(item.name) not in settled] if settled else tick.found
        tick.result.waiting = len(tick.left)

    def _select(self, tick: Tick) -> Next:
        """Takes up what is left, oldest first, once the window has passed or one tick's share is full."""
        self.clock.dated(tick.found)
        sized = [item for item in tick.left if item.size <= self.settings.max_txlog_bytes]
        rest = in_order(sized, by_writer=keyed_of(tick.view.metadata) is not None)
        # Incarnations that were blocked at the last plan come last, or they could take every place of each tick.
        if self.blocked:
            rest.sort(key=lambda item: item.name.incarnation_key in self.blocked)
        full = len(rest) >= tick.limits.txlogs
        # The storage's clock may be ahead of ours: then the age is negative, and says nothing.
        due = rest and (full or abs(tick.now - min(item.modified for item in rest)) >= self.settings.window)
        tick.names = cut(rest, tick.limits) if due and not self.pace.too_soon(tick.now) else []
        all_read = len(tick.names) >= tick.result.waiting
        tick.unread_writers = frozenset() if all_read else writers_left(tick.found, tick.names)
        return Next.COMMIT if tick.names else Next.IDLE

    def _read(self, tick: Tick) -> None:
        # A clock that is wrong must neither condemn a txlog nor stamp a commit.
        self.clock.check_behind(tick.view)
        self.clock.check_ahead(tick.now)
        tick.intake.sizes = {item.name: item.size for item in tick.found}
        tick.intake.read(tick.names)

    def _check(self, tick: Tick) -> None:
        tick.intake.check(rules_of(tick.view, self.strict_names), tick.now_ms)
        if self.defects:
            tick.intake.held |= {name: self.defects[name] for name in tick.names if name in self.defects}
        if self.doubted:  # or each of its ticks would write a commit in vain
            self._look_up(tick, [name for name in tick.names if name in self.doubted])

    def _look_up(self, tick: Tick, names: Sequence[TxlogName]) -> None:
        if self.settings.check_files and names:
            tick.intake.check_files(tick.view.data_store(self.open_store), names)

    def _check_own_clock(self) -> None:
        """A txlog from the future is its writer's fault only if our own clock is right; raises ClockBehind."""
        if self.clock.is_stale():
            raise ClockBehind("a txlog was created hours after this tick began", hint="The next tick reads it again.")
        if not self.clock.agrees():
            cause = "a txlog is from the future, and this clock differs from the storage's, which may be unknown"
            raise ClockBehind(cause, hint="Synchronise the clock (NTP). The log names the difference: action=clock.")

    def _plan(self, tick: Tick) -> Next:
        """Rejects what is bad and plans the batch, unless a newer view or a second listing must come first."""
        intake, view = tick.intake, tick.view
        if intake.bad and not (tick.listed and tick.fresh):
            # The schema or the spec it names may be newer than the view.
            return Next.RELOAD if tick.listed else Next.LOOK_AGAIN
        if any(isinstance(why, FromTheFuture) for why in intake.bad.values()):
            self._check_own_clock()
        # Only what this attempt read: others may be in the table by now.
        self.rejects.reject(tick, {name: intake.bad[name] for name in tick.names if name in intake.bad})
        missing, rejected = intake.look_for(gaps(tick.names, view.marks))
        not_pending = missing | rejected
        marks = resumed(view.marks, tick.names, intake.good, not_pending, self.folder.rejected)
        totals = view.total("total-records"), view.total("total-files-size")
        checked = CheckedTxlogs(
            intake.good,
            intake.bad,
            not_pending,
            *totals,
            self._writer_order(tick, rejected),
            lambda: self.ledger.live_specs(view),
            frozenset(number for number, spec in view.specs.items() if not is_unpartitioned(spec)),
            self._writer_room(tick),
        )
        tick.batch = batch = plan(tick.names, checked, marks, tick.limits, tick.unread_writers)
        batch.holes = [name for name in batch.holes if name in missing]
        batch.held |= intake.held
        batch.resumed = marks is not view.marks
        self.blocked = batch.blocked
        if batch.doubtful and not tick.listed_twice:
            # A listing may miss names. What was there before a txlog that the first one shows is in a second listing,
            # or in the marks of a later load: only these prove a gap, or a position that does not fit.
            return Next.LOOK_AGAIN
        # One that only the second listing shows is not rejected: that listing may have missed what came before it.
        batch.rejected = {name: why for name, why in batch.rejected.items() if name in tick.first_listed}
        return Next.COMMIT

    def _writer_order(self, tick: Tick, rejected: Set[TxlogName]) -> WriterOrder | None:
        """The order of writers, on a keyed table; `rejected` are gaps that lie in rejected/."""
        marks = tick.view.marks
        if keyed_of(tick.view.metadata) is None:
            return None
        # Pending txlogs were listed before: one that was rejected meanwhile is in this listing.
        begins = any(marks.mark(name) is None for name in tick.names)
        listed = [item.name for item in self.folder.rejected()] if begins else []
        before = tick.first_listed if tick.listed_twice else None
        return WriterOrder(marks, [item.name for item in tick.left], {*rejected, *listed}, before)

    def _writer_room(self, tick: Tick) -> WriterRoom:
        marks, keyed = tick.view.marks, keyed_of(tick.view.metadata) is not None
        return WriterRoom(marks, self.settings.max_writers, lambda: self.prune.without_idle(marks, tick.now, keyed))

    def _commit(self, tick: Tick) -> Next:
        """Commits the batch, if it holds anything; RELOAD when the table must tell whether it is in."""
        batch, view = tick.batch, tick.view
        if not batch.txlogs:
            return Next.DONE
        at = self.clock.stamp(tick.now)
        marks = batch.before.advanced(batch.names, batch.positions, epoch_ms(at))
        marks = self.prune.pruned(marks, tick.now, keyed_of(view.metadata) is not None)
        number = committed_number(view.metadata.last_sequence_number, batch.txlogs)
        marks = with_commit_time(marks, number, self.settings.retention, at)
        began = self.clock()
        try:
            groups, beside = grouped_by_spec(batch.txlogs), [partial(self._confirm, tick)]
            self.view = tick.view = self.ledger.append(view, groups, marks, batch.names, beside)
        except _NotConfirmed:
            return Next.RELOAD
        except Exception as error:  # noqa: BLE001 - it is raised again, unless the next attempt can go on
            self.view = None  # the commit may be in, and others may have expired what the view names
            self._recover(tick, error)
            return Next.RELOAD
        self.pace.committed_at = tick.now
        loose = [name for name in batch.names if name in tick.intake.loose]
        tick.result.commit = _commit_of(tick.view, batch.txlogs, began, self.clock(), len(loose))
        self._warn_of_names(tick, loose)
        tick.result.settle(batch.names)
        return Next.DONE

    def _confirm(self, tick: Tick) -> None:
        """
        What must be so before the batch may be committed, found out beside the commit's writes.

        Raises _NotConfirmed when data files are missing or wrong, or cannot be looked up: the next attempt does without
        those txlogs.
        """
        self._look_up(tick, tick.batch.names)
        good = tick.intake.good
        if any(name not in good for name in tick.batch.names):
            raise _NotConfirmed

    def _recover(self, tick: Tick, error: Exception) -> None:
        """Notes a refusal, or holds the txlogs that the engine fails on; raises the error when neither explains it."""
        if isinstance(error, CommitConflict | CommitUnknown):
            tick.refusal = error
            tick.result.refused += 1
            self.log.warning("commit not confirmed", action="retry", cause=str(error))
            return
        found = (
            {}
            if isinstance(error, BookkeeperError)
            else culprits(tick.batch.txlogs, partial(self.ledger.rehearse, tick.view))
        )
        if not found:
            raise error
        self.defects |= {name: defect(why) for name, why in found.items()}

    def _settle(self, tick: Tick) -> None:
        """Rejects, holds and reports what did not get in."""
        batch, result = tick.batch, tick.result
        self.rejects.reject(tick, batch.rejected)
        for name, why in batch.held.items():
            if (str(name), str(why)) not in self.reported:
                self.reported.add((str(name), str(why)))
                self.log.warning("txlog held", action="hold", txlog=str(name), cause=str(why), hint=why.hint)
        for name in batch.holes:
            self.log.warning("txlog missing", action="gap", txlog=str(name), hint=_MISSING)
        result.held, result.holes = list(batch.held), batch.holes
        result.waiting -= len(batch.names)
        result.trouble = result.trouble or next(iter(tick.intake.troubles.values()), None)
        self.doubted = set(tick.intake.troubles)

    def _delete(self, names: Sequence[TxlogName]) -> None:
        self.pending_index.forget(names)
        self.consumed.delete(names)

    def _run_duties(self, tick: Tick) -> None:
        if tick.result.commit is not None:
            self.duties.rewrites.rows_came()
        after = self.view = self.duties.run(tick.view, tick.now)
        tick.result.rewrites, tick.result.columns = self.duties.rewrites.done, self.duties.columns.done
        tick.result.folds = self.duties.folds.outcomes()
        if after is not None and after is not tick.view:
            tick.result.dropped_files = self.duties.retention.dropped
            self.publisher.publish(after)

    def _warn_of_names(self, tick: Tick, names: Sequence[TxlogName]) -> None:
        for name in names:
            if (name.writer, LOOSE) not in self.reported:
                self.reported.add((name.writer, LOOSE))
                about = {"txlog": str(name), "file": tick.intake.loose[name][:300], "hint": _RENAME}
                self.log.warning(
                    "data files of a writer are not called after their txlog", action="file-names", **about
                )


class _NotConfirmed(Exception):
    """A txlog of the batch is not what it says, or cannot be looked up: nothing was committed."""


def _commit_of(view: View, txlogs: Sequence[Txlog], began: datetime, done: datetime, loose: int) -> Commit:
    done_ms = epoch_ms(done)
    ages = tuple(timedelta(milliseconds=done_ms - txlog.created_ms) for txlog in txlogs)
    rows, size = sum(txlog.row_count for txlog in txlogs), sum(txlog.data_bytes for txlog in txlogs)
    files = sum(len(txlog.rows) for txlog in txlogs)
    assert view.head is not None
    keys = [row.record_count for txlog in txlogs if txlog.deletes is not None for row in txlog.deletes.rows]
    return Commit(
        view.head.snapshot_id, len(txlogs), files, rows, size, done - began, ages, len(keys), sum(keys), loose
    )
