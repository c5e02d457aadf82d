"""
Rewrites as a duty of the tick: after the append's commit, so that no row waits for them.

rewrites/ is listed every few seconds, and more seldom while nothing is there. What is found is checked against a table
that was loaded after the listing: a rewrite may know newer snapshots than an older view, and only a newer view may
reject it. A crash at any point leaves rewrites that are recognised by their new files, or taken again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.core import pending_rewrites
from bookkeeper.core.folder import Folder
from bookkeeper.core.pending_rewrites import FoundRewrite
from bookkeeper.core.rewrite import REWRITES, Rewrite, decode, parse_key
from bookkeeper.errors import BookkeeperError, Halt, Hold, Missing, Retry, RewriteCorrupt, RewriteRejected, Unfit
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.check_rewrites import MOST_REWRITES, check_new_files, check_rewrites
from bookkeeper.tick.due import Due
from bookkeeper.tick.intake import defect
from bookkeeper.tick.storage_clock import StorageClock

log = logging.getLogger("bookkeeper")

LIST_EVERY, LIST_SELDOM = timedelta(seconds=5), timedelta(minutes=1)
#: of one tick: files that rewrites replace, and bytes of rewrites. Rows wait while these are checked and committed
MOST_FILES, MOST_BYTES = 20_000, 2**25
SWEEP_EVERY = timedelta(hours=1)


class Rewrites:
    """Commits what compactors publish; trouble postpones it and nothing else."""

    def __init__(
        self, settings: Table, folder: Folder, ledger: Ledger, clock: StorageClock, store: Callable[[str], Store]
    ) -> None:
        self.settings, self.folder, self.ledger, self.clock, self.open_store = settings, folder, ledger, clock, store
        self.due, self.sweep_due, self.every, self.at_once = Due(), Due(), LIST_EVERY, MOST_REWRITES
        #: whether a commit was sent by the present run
        self.sent = False
        #: of a newer version, or such that a defect of ours keeps from being committed
        self.held: set[str] = set()

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after a commit of the rewrites that are due; None when it is unknown whether they are in.
        """
        listed, self.sent = list[FoundRewrite](), False
        try:
            self._sweep(now)
            if self.due.take(self.every, now):
                listed = self._list()
            if listed:
                view = self._commit(self.ledger.load(view.marks.folder), listed, now) or view
                self.at_once = min(2 * self.at_once, MOST_REWRITES)
            return view
        except (Retry, Halt) as error:
            log.warning("rewrites postponed", extra=self._about(cause=str(error)))
        except Exception as error:  # noqa: BLE001 - rows, retention and other rewrites go on
            self._set_aside(listed, error)
        return None if self.sent else view

    def _list(self) -> list[FoundRewrite]:
        found = [item for item in pending_rewrites.pending_rewrites(self.folder) if item.name not in self.held]
        self.every = LIST_EVERY if found else min(self.every * 2, LIST_SELDOM)
        return found[: self.at_once]

    def _set_aside(self, listed: list[FoundRewrite], error: Exception) -> None:
        """Holds a rewrite that our code fails on; of several, one at a time is tried from then on to find it."""
        log.error("a defect of the bookkeeper", extra=self._about(cause=repr(error), rewrites=len(listed)))
        if len(listed) == 1:
            self._hold([listed[0].name], defect(error))
        elif listed:
            self.at_once = 1
            self.due.again()

    def _commit(self, view: View, listed: list[FoundRewrite], now: datetime) -> View | None:
        """Commits what is good and settles the rest; the view after it, None without a commit."""
        if not self.clock.allows_destroying():
            log.warning("rewrites postponed", extra=self._about(cause="the clock cannot be relied on"))
            return None
        read = self._read(listed, now)
        names = {rewrite.id: name for name, rewrite in read.items()}
        written_after = now - self.settings.orphan_age / 2
        unfit = check_new_files(read.values(), lambda: self.open_store(view.data_root), written_after)
        checked = check_rewrites(self.ledger, view, [item for item in read.values() if item.id not in unfit])
        after = None
        if checked.good:
            self.sent = True
            after = self.ledger.rewrite(view, checked.good, checked.deletes)
            self.due.again()  # there may be more
            about = {"rewrites": len(checked.good), "files": sum(len(item.replaced) for item in checked.good)}
            log.info("rewrites committed", extra=self._about(**about, snapshot=after.marks.snapshot))
        done = [*(rewrite.id for rewrite in checked.good), *checked.in_table]
        if done:
            pending_rewrites.settle(self.folder, [names[rewrite_id] for rewrite_id in done])
        self._reject({names[key]: why for key, why in (unfit | dict(checked.rejected)).items()}, now)
        return after

    def _read(self, listed: Iterable[FoundRewrite], now: datetime) -> dict[str, Rewrite]:
        """As many as one tick takes, by name; what is none is rejected."""
        read, size, files = dict[str, Rewrite](), 0, 0
        for item in listed:
            if read and size + item.size > MOST_BYTES:
                break
            size += item.size
            try:
                rewrite = self._decoded(item)
            except RewriteRejected as error:
                self._reject({item.name: error}, now)
                continue
            except Hold as error:
                self._hold([item.name], error)
                continue
            except Missing:
                continue  # another bookkeeper was quicker
            files += len(rewrite.replaced)
            if read and files > MOST_FILES:
                break
            read[item.name] = rewrite
        return read

    def _decoded(self, item: FoundRewrite) -> Rewrite:
        most = self.settings.max_txlog_bytes
        if item.size > most:
            raise RewriteCorrupt(f"{item.size} bytes, at most {most} are allowed")
        rewrite_id = parse_key(item.name)
        try:
            return decode(rewrite_id, self.folder.store.read(f"{REWRITES}{item.name}", most), most)
        except Unfit as error:
            raise RewriteCorrupt(str(error)) from error

    def _reject(self, refused: Mapping[str, BookkeeperError], now: datetime) -> None:
        for name, why in refused.items():
            if not isinstance(why, RewriteRejected):
                log.warning("rewrite postponed", extra=self._about(rewrite=name, cause=str(why)))
                continue
            pending_rewrites.reject(self.folder, name, why, now)
            log.warning("rewrite rejected", extra=self._about(rewrite=name, cause=str(why), hint=why.hint))

    def _hold(self, names: Iterable[str], why: Hold) -> None:
        """Leaves them where they are, for as long as this process lives."""
        for name in names:
            self.held.add(name)
            log.warning("rewrite held", extra=self._about(rewrite=name, cause=str(why), hint=why.hint))

    def _sweep(self, now: datetime) -> None:
        """Deletes rejected rewrites by age: none is taken again, and orphans among their new files go by theirs."""
        if not self.sweep_due.take(SWEEP_EVERY, now):
            return
        rejected = pending_rewrites.rejected_rewrites(self.folder)
        old = [item.name for item in rejected if item.modified < now - self.settings.orphan_age]
        if old and self.clock.allows_destroying():
            pending_rewrites.discard_rejected(self.folder, old)
            log.info("rejected rewrites swept", extra=self._about(rewrites=len(old)))

    def _about(self, **more: object) -> dict[str, object]:
        return {"action": "rewrite", "table": self.settings.name, **more}
