"""
The bookkeeper of one table: `tick(now)` does one turn and says what it did. Recovery is the next tick.

The order of a tick is the protocol: list, then marks, then read, check, plan, ONE commit, marks.json, delete.
A crash after any step leaves txlogs that the next tick recognises by their marks.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from bookkeeper.config.settings import Table
from bookkeeper.config.units import format_duration
from bookkeeper.core.folder import Folder, Found
from bookkeeper.core.names import TxlogName
from bookkeeper.core.txlog import Txlog
from bookkeeper.discover.discovery import Discovery, Listing
from bookkeeper.discover.pending_index import PendingIndex
from bookkeeper.errors import (
    BookkeeperError,
    ClockBehind,
    CommitConflict,
    CommitUnknown,
    DuplicatePath,
    FromTheFuture,
    Hold,
    Missing,
    NameMismatch,
    NotMoved,
    TxlogTooLarge,
)
from bookkeeper.leases.lease import Lease, NoLease
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import load
from bookkeeper.ledger.txlog_groups import grouped_by_spec
from bookkeeper.ledger.view import View
from bookkeeper.retention.apply import with_commit_time
from bookkeeper.stores.store import Store
from bookkeeper.tick.check import rules_of
from bookkeeper.tick.culprits import culprits
from bookkeeper.tick.intake import Intake, defect
from bookkeeper.tick.order import Limits, cut, gaps, in_turn, writers_left
from bookkeeper.tick.plan import Batch, IncarnationKey, Known, plan, resumed
from bookkeeper.tick.read_budget import ReadBudget
from bookkeeper.tick.result import Commit, TickResult
from bookkeeper.tick.upkeep import Upkeep

log = logging.getLogger("bookkeeper")

ATTEMPTS = 5
#: after this long a tick leaves what is refused by its size alone to the next one
MOVING = timedelta(seconds=2)
_GONE = (
    "It was deleted from pending/ before it was committed, and its rows are not in the table. If there is a copy, put "
    "it back into pending/ under its own name: it gets in once. Nothing but the bookkeeper may delete there."
)
#: Google takes about one write a second of one object, and a commit replaces marks.json (retention once more)
GOOGLE_COMMITS_APART = timedelta(seconds=2)
#: room for what a second listing may show beyond the first
MORE_BYTES = 2**20
#: paths of which a later double is noticed at once, of all tables of a process together; and at least of each
RECENT_PATHS, LEAST_RECENT_PATHS = 20_000, 200


class Bookkeeper:
    """
    Commits the txlogs of one folder to one table.

    `now` comes with each tick. What it remembers (a view of the table, recent paths) only saves work: throwing the
    object away between any two steps loses nothing.
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
        room: ReadBudget | None = None,
        tables: int = 1,
    ) -> None:
        self.room = room or ReadBudget()
        self.remembers = max(LEAST_RECENT_PATHS, RECENT_PATHS // max(tables, 1))
        self.lease = lease or NoLease()
        self.noticed = PendingIndex(discovery or Listing(), settings.look_every)
        self.settings = settings
        self.folder = folder
        self.ledger = ledger
        self.reload = reload
        self.open_store = store or ledger.open_store
        self.apart = GOOGLE_COMMITS_APART if folder.store.url.startswith("gs://") else timedelta(0)
        self.committed_at: datetime | None = None
        self.said_pace = False
        self.limits = Limits(settings.max_files, settings.max_bytes, settings.max_txlogs)
        self.upkeep = Upkeep(settings, folder, ledger)
        self.view: View | None = None
        #: whether the view was loaded after this tick's listing: only then may it condemn a txlog
        self.fresh = False
        self.loaded_at: datetime | None = None
        self.recent: dict[str, TxlogName] = {}
        #: refused, and too large to be moved out of the way: neither is tried again at every tick
        self.unmoved: set[str] = set()
        self.stuck: set[IncarnationKey] = set()  # incarnations that could not go on at the last plan
        self.said: set[tuple[str, str]] = set()
        #: pending txlogs that the engine fails on, found once for as long as this process lives
        self.defects: dict[TxlogName, Hold] = {}
        self.refusal: BookkeeperError = CommitConflict("others committed each time")
        #: the present tick's, or the last one's: what it did is done, also when it ended by an error
        self.turn = TickResult()

    def tick(self, now: datetime) -> TickResult:
        """
        One turn: commits what is pending, once. Raises Retry or Halt; either way the next tick can go on.
        """
        self.turn = TickResult()
        found = self.noticed.found(self.folder, now)
        if self.defects:
            self.defects = {item.name: self.defects[item.name] for item in found if item.name in self.defects}
        self.fresh = False
        self.turn = turn = TickResult.of(found)
        view = self._current(now)
        self.upkeep.publish_marks(view)
        self._reject_strangers(turn, now)
        if found:
            wanted = sum(item.size for item in found if item.size <= self.settings.max_txlog_bytes)
            with self.room.part(wanted + MORE_BYTES, now) as most:
                self.limits = replace(self.limits, reads=most)
                self._commit_pending(found, turn, now)
            self._reject_large(found, turn, now)
        self._keep_up(turn, now)
        return turn

    def _commit_pending(self, found: Sequence[Found], turn: TickResult, now: datetime) -> None:
        intake = Intake(self.folder, self.settings.max_txlog_bytes)
        listed, sure = {item.name for item in found}, False
        for _ in range(ATTEMPTS):
            view = self._current(now)
            self.upkeep.listed(now, found)
            todo = self._todo(found, view, turn, now)
            if not todo:
                return
            left = writers_left(found, todo) if len(todo) < turn.waiting else frozenset()
            intake.sizes = {item.name: item.size for item in found}
            batch = self._prepare(intake, todo, left, view, turn, now)
            if batch is None:
                self._load(now)
                continue
            if batch.doubtful and not sure:
                # Whatever came before a txlog that a first listing shows, a second listing or the marks must show.
                found, sure = self.folder.pending(), True
                self._load(now)
                continue
            batch.refused = {name: why for name, why in batch.refused.items() if name in listed}
            if batch.txlogs and not self._append(view, batch, turn, now):
                continue
            self._settle(batch, turn, now)
            turn.trouble = turn.trouble or next(iter(intake.unsure.values()), None)
            return
        what = f"{self.settings.identifier}: {ATTEMPTS} commits in a row were refused; the last one: {self.refusal}"
        raise CommitConflict(what, hint=self.refusal.hint)

    def _todo(self, found: Sequence[Found], view: View, turn: TickResult, now: datetime) -> list[TxlogName]:
        """Deletes what is in already; the rest, oldest first, once the window has passed."""
        done = [item.name for item in found if view.marks.is_in(item.name)]
        if done:
            self.upkeep.publish_marks(view)
            turn.settle(done)
            self._delete(done)
        settled = {*map(str, done), *turn.rejected}
        left = [item for item in found if str(item.name) not in settled] if settled else found
        rest = in_turn([item for item in left if item.size <= self.settings.max_txlog_bytes])
        # What could not go on comes last next time, or enough of it would take every place.
        rest.sort(key=lambda item: (item.name.writer, item.name.incarnation) in self.stuck)
        turn.waiting = len(left)
        full = len(rest) >= self.limits.txlogs
        # The storage's clock may be ahead of ours: then the age is negative, and says nothing.
        due = rest and (full or abs(now - min(item.modified for item in rest)) >= self.settings.window)
        return cut(rest, self.limits) if due and not self._too_soon(now) else []

    def _too_soon(self, now: datetime) -> bool:
        """Whether the storage would refuse to have the same objects replaced again so soon."""
        soon = self.committed_at is not None and timedelta(0) <= now - self.committed_at < self.apart
        if soon and not self.said_pace:
            self.said_pace = True
            cause = (
                f"Google takes about one write a second of one object: commits are {format_duration(self.apart)} apart"
            )
            hint = "Set `every` or `window` to 2s or more: what is published meanwhile goes in with one commit."
            log.warning("commits slowed down", extra=self._about("pace", cause=cause, hint=hint))
        return soon

    def _prepare(
        self, intake: Intake, todo: Sequence[TxlogName], left: Set[str], view: View, turn: TickResult, now: datetime
    ) -> Batch | None:
        """The batch, or None when the table must be loaded again first."""
        self.ledger.check_clock(view)
        self.upkeep.check_ahead(now)
        intake.read(todo)
        intake.judge(rules_of(view), _ms(now))
        intake.held |= {name: self.defects[name] for name in todo if name in self.defects}
        if self.settings.check_files:
            intake.look_up(self.open_store(view.data_root))
        if intake.bad and not self.fresh:
            return None
        self._check_future(intake, now)
        self._reject(intake.bad, turn, now)
        missing, gone = intake.look_for(gaps(todo, view.marks))
        marks = resumed(view.marks, todo, intake.good, missing | gone, self.folder.rejected)
        totals = view.total("total-records"), view.total("total-files-size")
        known = Known(intake.good, intake.bad, missing | gone, *totals)
        batch = plan(todo, known, marks, self.limits, self.recent, left)
        batch.holes = [name for name in batch.holes if name in missing]
        batch.held |= intake.held
        batch.resumed = marks is not view.marks
        self.stuck = batch.stuck
        return batch

    def _check_future(self, intake: Intake, now: datetime) -> None:
        early = any(isinstance(why, FromTheFuture) for why in intake.bad.values())
        if early and not self.upkeep.storage_agrees(now):
            raise ClockBehind("a txlog is from the future, and this clock differs from the storage's")

    def _append(self, view: View, batch: Batch, turn: TickResult, now: datetime) -> bool:
        """Commits the batch; False when the outcome must be read from the table."""
        # A path named twice must be out of the way before the commit: after a crash nobody remembers the first.
        self._reject({name: why for name, why in batch.refused.items() if isinstance(why, DuplicatePath)}, turn, now)
        at = self.ledger.stamp(now)
        marks = batch.before.advanced(batch.names, batch.positions, _ms(at))
        marks = self.upkeep.pruned(marks, now)
        marks = with_commit_time(marks, view, self.settings.retention, at)
        self._remember(batch.txlogs)
        began = self.ledger.clock()
        try:
            self.view = self.ledger.append(view, grouped_by_spec(batch.txlogs), marks, batch.names)
        except BookkeeperError as error:
            self.view = None  # what it names may be gone: others expire snapshots and delete their files
            if not isinstance(error, CommitConflict | CommitUnknown):
                raise
            self.refusal, turn.refused = error, turn.refused + 1
            log.warning("commit not confirmed", extra=self._about("retry", cause=str(error)))
            return False
        except Exception as error:  # noqa: BLE001 - it is raised again, unless a txlog explains it
            self.view = None  # it may have been raised by what follows the commit
            self._hold_culprits(view, batch, error)
            return False
        self.committed_at = now
        turn.commit = self._committed(self.view, batch, began)
        turn.settle(batch.names)
        return True

    def _hold_culprits(self, view: View, batch: Batch, error: Exception) -> None:
        """Holds the txlogs that the engine fails on; raises the error when none of them explains it."""
        found = culprits(batch.txlogs, partial(self.ledger.rehearse, view))
        if not found:
            raise error
        self.defects |= {name: defect(why) for name, why in found.items()}

    def _committed(self, view: View, batch: Batch, began: datetime) -> Commit:
        done = self.ledger.clock()
        done_ms = _ms(done)
        ages = tuple(timedelta(milliseconds=done_ms - txlog.created_ms) for txlog in batch.txlogs)
        rows, size = sum(txlog.row_count for txlog in batch.txlogs), sum(txlog.data_bytes for txlog in batch.txlogs)
        files = sum(len(txlog.rows) for txlog in batch.txlogs)
        return Commit(view.head.snapshot_id, len(batch.txlogs), files, rows, size, done - began, ages)

    def _settle(self, batch: Batch, turn: TickResult, now: datetime) -> None:
        """What follows a commit: marks.json first, for a writer reads pending/ before it reads the marks."""
        self.upkeep.publish_marks(self.view)
        self._reject(batch.refused, turn, now)
        for name, why in batch.held.items():
            self._say_once("txlog held", "hold", name, why)
        for name in batch.holes:
            log.warning("txlog missing", extra=self._about("gap", txlog=str(name), hint=_GONE))
        turn.held, turn.holes = list(batch.held), batch.holes
        self._delete(batch.names)
        turn.waiting -= len(batch.names)

    def _delete(self, names: Sequence[TxlogName]) -> None:
        self.noticed.forget(names)
        try:
            self.folder.delete(names)
        except BookkeeperError as error:  # what stays is recognised by its mark next time
            log.warning("consumed txlogs not deleted", extra=self._about("delete", cause=str(error)))

    def _reject_large(self, found: Sequence[Found], turn: TickResult, now: datetime) -> None:
        """
        Refuses, by its size and unread, what is larger than a txlog may be.

        After the commit, and for a moment only: an object store takes seconds to move one, no good one waits for it.
        """
        most, began = self.settings.max_txlog_bytes, self.ledger.clock()
        for item in found:
            if item.size > most and item.name in turn.left and self.ledger.clock() - began < MOVING:
                self._reject_one(item.name, TxlogTooLarge(f"{item.size} bytes, at most {most} are allowed"), turn, now)

    def _reject(self, refused: Mapping[Any, BookkeeperError], turn: TickResult, now: datetime) -> None:
        for name, why in refused.items():
            self._reject_one(name, why, turn, now)

    def _reject_strangers(self, turn: TickResult, now: datetime) -> None:
        why = NameMismatch("it is not named <writer>.<incarnation>.<sequence>.txlog.avro")
        self._reject(dict.fromkeys(self.noticed.strangers, why), turn, now)

    def _reject_one(self, name: TxlogName | str, why: BookkeeperError, turn: TickResult, now: datetime) -> None:
        if str(name) in turn.rejected or self._stays(name, turn):
            return
        try:
            self.folder.reject(name, why, now, self.settings.max_txlog_bytes)
        except Missing:
            return  # another bookkeeper was quicker
        except NotMoved as error:
            self.unmoved.add(str(name))
            self._stays(name, turn)
            log.error("txlog not moved", extra=self._about("hold", txlog=str(name), cause=str(why), hint=error.hint))
            return
        except BookkeeperError as error:
            turn.trouble = error  # it stays where it is, and the others go on
            return
        turn.rejected.append(str(name))
        turn.reasons[str(name)] = why
        if isinstance(name, TxlogName):
            turn.settle([name])
            self.noticed.forget([name])
            turn.waiting -= 1
        log.warning("txlog rejected", extra=self._about("reject", txlog=str(name), cause=str(why)))

    def _stays(self, name: TxlogName | str, turn: TickResult) -> bool:
        """Whether it was refused and is too large to be moved: then it is left alone, and makes nothing late."""
        if str(name) in self.unmoved and isinstance(name, TxlogName):
            turn.settle([name])
            turn.held.append(name)
        return str(name) in self.unmoved

    def _say_once(self, message: str, action: str, name: TxlogName, why: BookkeeperError) -> None:
        if (str(name), str(why)) not in self.said:
            self.said.add((str(name), str(why)))
            log.warning(message, extra=self._about(action, txlog=str(name), cause=str(why), hint=why.hint))

    def _keep_up(self, turn: TickResult, now: datetime) -> None:
        after = self.upkeep.run(self.view, now)
        if after is None:
            self.view = None
        elif after is not self.view:
            turn.dropped_files = int(after.head.summary.additional_properties.get("deleted-data-files", 0))
            self.view = after
            self.upkeep.publish_marks(after)

    def _current(self, now: datetime) -> View:
        """The view, loaded again when it is older than `reload`: somebody else may have committed."""
        if self.view is None or self.loaded_at is None or abs(now - self.loaded_at) >= self.reload:
            return self._load(now)
        return self.view

    def _load(self, now: datetime) -> View:
        self.view = None
        view, card, copy = load(self.ledger, self.folder)
        self.upkeep.see(view, copy)
        self.upkeep.write_card(view, card)
        self.view, self.loaded_at, self.fresh = view, now, True
        return view

    def _remember(self, txlogs: Iterable[Txlog]) -> None:
        self.recent.update((path, txlog.name) for txlog in txlogs for path in txlog.paths)
        for path in [*islice(self.recent, max(0, len(self.recent) - self.remembers))]:
            del self.recent[path]

    def _about(self, action: str, **more: object) -> dict[str, object]:
        return {"action": action, "table": self.settings.name, **more}


def _ms(now: datetime) -> int:
    return int(now.timestamp() * 1000)
