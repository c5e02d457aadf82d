"""
Rewrites as a duty of the tick: after the append's commit, so that no row waits for them.

rewrites/ is listed every few seconds, and more seldom while nothing is there. What is found is checked against a table
that was loaded after the listing: a rewrite may know newer snapshots than an older view, and only a newer view may
reject it. A crash at any point leaves rewrites that are recognised by their new files, or taken again.

Everything that needs no view is done before the load: others, such as the reaper, commit at any time, and what is
between our load and our commit decides which of us loses. After a conflict fewer rewrites are taken at once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.contract import pending_rewrites
from bookkeeper.contract.pending_rewrites import TRAY, rewrite_in
from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.tray import FoundObject
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import (
    BookkeeperError,
    CommitConflict,
    Halt,
    Hold,
    Missing,
    Retry,
    RewriteRejected,
    StorageUnavailable,
)
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.check_rewrites import MOST_REWRITES, check_new_files, check_rewrites
from bookkeeper.tick.duty_timer import DutyTimer
from bookkeeper.tick.result import RewritesDone
from bookkeeper.tick.turns import Turns, sweep_rejected

LIST_EVERY, LIST_SELDOM = timedelta(seconds=5), timedelta(minutes=1)
#: of one tick: files that rewrites name, replaced or new, and bytes of rewrites. Rows wait while these are checked and
#: committed
MOST_FILES, MOST_BYTES = 20_000, 2**25
SWEEP_EVERY = timedelta(hours=1)
#: rewrites that cannot be read now, of one tick: each may take as long as the storage's timeouts
MOST_UNREADABLE = 3


class Rewrites:
    """Commits what compactors publish; trouble postpones it and nothing else."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger, store: Callable[[str], Store]) -> None:
        self.settings, self.folder, self.ledger, self.open_store = settings, folder, ledger, store
        self.clock = ledger.clock
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "rewrite")
        self.turns = Turns(self.log, "rewrite", "rewrite", MOST_REWRITES)
        self.sweep_due, self.every = DutyTimer(), LIST_EVERY
        #: whether a commit was sent by the present run
        self.sent = False
        #: what the present run did
        self.done = RewritesDone()
        #: with the times of their creation, as the last listing shows them, without those that were settled since
        self.pending: dict[str, datetime] = {}

    def rows_came(self) -> None:
        """A compactor has something to do now: its rewrites are looked for as often as when there are some."""
        self.every = LIST_EVERY

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after a commit of the rewrites that are due; None when it is unknown whether they are in.
        """
        taken, self.sent, self.done = list[FoundObject](), False, RewritesDone()
        try:
            self._sweep(now)
            if self.turns.due.take(self.every, now):
                taken = self._take()
            if taken:
                view = self._commit(view, taken, now) or view
                self.turns.more()
            return view
        except (Retry, Halt) as error:
            if isinstance(error, CommitConflict):
                self.turns.fewer()
            self.log.warning("rewrites postponed", cause=str(error))
        except Exception as error:  # noqa: BLE001 - rows, retention and other rewrites go on
            self.turns.set_aside(taken, error)
        return None if self.sent else view

    def _take(self) -> list[FoundObject]:
        listed = TRAY.pending(self.folder)
        self.pending = {item.name: item.modified for item in listed}
        taken = self.turns.take(listed)
        self.every = LIST_EVERY if taken else min(self.every * 2, LIST_SELDOM)
        return taken

    def _load(self, known: View) -> View:
        """The table now, with the manifests of its head: search, check and commit each need them, 30 ms on S3."""
        view = self.ledger.load(known.marks.folder).with_manifests_of(known)
        return replace(view, manifests=tuple(self.ledger.manifests(view)))

    def _commit(self, known: View, taken: Sequence[FoundObject], now: datetime) -> View | None:
        """Commits what is good and settles the rest; the view after it, None without a commit."""
        if not self.clock.allows_destroying():
            self.log.warning("rewrites postponed", cause="the clock cannot be relied on")
            return None
        read = self._read(taken, now)
        names = {rewrite.id: name for name, rewrite in read.items()}
        written_after = now - self.settings.orphan_age / 2
        unfit = check_new_files(read.values(), lambda: known.data_store(self.open_store), written_after)
        view = self._load(known)
        checked = check_rewrites(self.ledger, view, [item for item in read.values() if item.id not in unfit])
        after = None
        if checked.good:
            self.sent = True
            after = self.ledger.rewrite(view, checked.good, checked.deletes)
            self.turns.due.again()  # there may be more
            self._count(checked.good)
            about = {"rewrites": self.done.committed, "files": self.done.replaced_files}
            self.log.info("rewrites committed", **about, snapshot=after.marks.snapshot)
        done = [*(rewrite.id for rewrite in checked.good), *checked.in_table]
        if done:
            TRAY.settle(self.folder, [names[rewrite_id] for rewrite_id in done])
            self._forget(names[rewrite_id] for rewrite_id in done)
        self._reject({names[key]: why for key, why in (unfit | dict(checked.rejected)).items()}, now)
        return after

    def _count(self, good: Iterable[Rewrite]) -> None:
        for rewrite in good:
            self.done.committed += 1
            self.done.replaced_files += len(rewrite.replaced)
            self.done.added_files += len(rewrite.added)
            self.done.rows += sum(row.record_count for row in rewrite.added)
            self.done.bytes += sum(row.size_bytes for row in rewrite.added)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.pending.pop(name, None)

    def _read(self, taken: Sequence[FoundObject], now: datetime) -> dict[str, Rewrite]:
        """As many as one tick takes, by name; what is none is rejected, what cannot be read now is postponed."""
        read, size, files, unreadable, most = dict[str, Rewrite](), 0, 0, 0, self.settings.max_txlog_bytes
        for item, answer in TRAY.read(self.folder, taken, most, MOST_BYTES):
            size += item.size
            if read and size > MOST_BYTES:
                break
            try:
                found = rewrite_in(item.name, answer, most)
            except RewriteRejected as why:
                self._reject({item.name: why}, now)
            except Hold as why:
                self.turns.hold(item.name, why)
            except Missing:
                self._forget([item.name])  # another bookkeeper was quicker
            except StorageUnavailable as error:
                unreadable += 1
                self.turns.postpone(item.name, error, now)
                if unreadable == MOST_UNREADABLE:
                    break
            else:
                files += len(found.replaced) + len(found.added)
                if read and files > MOST_FILES:
                    break
                read[item.name] = found
        return read

    def _reject(self, refused: Mapping[str, BookkeeperError], now: datetime) -> None:
        for name, why in refused.items():
            if not isinstance(why, RewriteRejected):
                self.turns.postpone(name, why, now)
                continue
            try:
                pending_rewrites.reject(self.folder, name, why, now)
            except Retry as error:
                self.turns.postpone(name, error, now)
                raise
            self.done.rejected.append(type(why).__name__)
            self._forget([name])
            self.log.warning("rewrite rejected", rewrite=name, cause=str(why), hint=why.hint)

    def _sweep(self, now: datetime) -> None:
        """Deletes rejected rewrites by age: none is taken again, and orphans among their new files go by theirs."""
        if self.sweep_due.take(SWEEP_EVERY, now):
            swept = sweep_rejected(TRAY, self.folder, now - self.settings.orphan_age, self.clock)
            if swept:
                self.log.info("rejected rewrites swept", rewrites=swept)
