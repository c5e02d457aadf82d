"""
Rewrites as a duty of the tick: after the append's commit, so that no row waits for them.

rewrites/ is listed every few seconds, and more seldom while nothing is there. What is found is checked against a table
that was loaded after the listing: a rewrite may know newer snapshots than an older view, and only a newer view may
reject it. A crash at any point leaves rewrites that are recognised by their new files, or taken again.

Everything that needs no view is done before the load: others, such as the reaper, commit at any time, and what is
between our load and our commit decides which of us loses. After a conflict fewer rewrites are taken at once.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from bookkeeper.config.settings import Table
from bookkeeper.core import pending_rewrites
from bookkeeper.core.folder import Folder
from bookkeeper.core.pending_rewrites import FoundRewrite
from bookkeeper.core.rewrite import Rewrite
from bookkeeper.errors import (
    BookkeeperError,
    CommitConflict,
    Halt,
    Hold,
    Missing,
    Retry,
    RewriteCorrupt,
    RewriteRejected,
    StorageUnavailable,
)
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import together
from bookkeeper.tick.check_rewrites import MOST_REWRITES, check_new_files, check_rewrites
from bookkeeper.tick.due import Due
from bookkeeper.tick.intake import defect
from bookkeeper.tick.result import RewritesDone
from bookkeeper.tick.storage_clock import StorageClock

log = logging.getLogger("bookkeeper")

LIST_EVERY, LIST_SELDOM = timedelta(seconds=5), timedelta(minutes=1)
#: of one tick: files that rewrites name, replaced or new, and bytes of rewrites. Rows wait while these are checked and
#: committed
MOST_FILES, MOST_BYTES = 20_000, 2**25
SWEEP_EVERY = timedelta(hours=1)
#: rewrites that cannot be read now, of one tick: each may take as long as the storage's timeouts
MOST_UNREADABLE = 3
_NEVER = datetime.min.replace(tzinfo=UTC)


class Rewrites:
    """Commits what compactors publish; trouble postpones it and nothing else."""

    def __init__(
        self, settings: Table, folder: Folder, ledger: Ledger, clock: StorageClock, store: Callable[[str], Store]
    ) -> None:
        self.settings, self.folder, self.ledger, self.clock, self.open_store = settings, folder, ledger, clock, store
        self.due, self.sweep_due, self.every, self.at_once = Due(), Due(), LIST_EVERY, MOST_REWRITES
        #: whether a commit was sent by the present run
        self.sent = False
        #: what the present run did
        self.done = RewritesDone()
        #: with the times of their creation, as the last listing shows them, without those that were settled since
        self.pending: dict[str, datetime] = {}
        #: of a newer version, or such that a defect of ours keeps from being committed
        self.held: set[str] = set()
        #: when the storage last kept one from being read, looked up or rejected: it comes after the others from then on
        self.postponed: dict[str, datetime] = {}

    def rows_came(self) -> None:
        """A compactor has something to do now: its rewrites are looked for as often as when there are some."""
        self.every = LIST_EVERY

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after a commit of the rewrites that are due; None when it is unknown whether they are in.
        """
        listed, self.sent, self.done = list[FoundRewrite](), False, RewritesDone()
        try:
            self._sweep(now)
            if self.due.take(self.every, now):
                listed = self._list()
            if listed:
                view = self._commit(view, listed, now) or view
                self.at_once = min(2 * self.at_once, MOST_REWRITES)
            return view
        except (Retry, Halt) as error:
            if isinstance(error, CommitConflict):
                self.at_once = max(self.at_once // 2, 1)
                self.due.again()
            log.warning("rewrites postponed", extra=self._about(cause=str(error)))
        except Exception as error:  # noqa: BLE001 - rows, retention and other rewrites go on
            self._set_aside(listed, error)
        return None if self.sent else view

    def _list(self) -> list[FoundRewrite]:
        every = pending_rewrites.pending_rewrites(self.folder)
        self.pending = {item.name: item.modified for item in every}
        self.postponed = {name: at for name, at in self.postponed.items() if name in self.pending}
        found = [item for item in every if item.name not in self.held]
        # One that can never be settled would take its place in each tick.
        found.sort(key=lambda item: self.postponed.get(item.name, _NEVER))
        self.every = LIST_EVERY if found else min(self.every * 2, LIST_SELDOM)
        return found[: self.at_once]

    def _load(self, known: View) -> View:
        """The table now, with the manifests of its head: search, check and commit each need them, 30 ms on S3."""
        view = self.ledger.load(known.marks.folder).with_manifests_of(known)
        return replace(view, manifests=tuple(self.ledger.manifests(view)))

    def _set_aside(self, listed: list[FoundRewrite], error: Exception) -> None:
        """Holds a rewrite that our code fails on; of several, one at a time is tried from then on to find it."""
        log.error("a defect of the bookkeeper", extra=self._about(cause=repr(error), rewrites=len(listed)))
        if len(listed) == 1:
            self._hold([listed[0].name], defect(error))
        elif listed:
            self.at_once = 1
            self.due.again()

    def _commit(self, known: View, listed: list[FoundRewrite], now: datetime) -> View | None:
        """Commits what is good and settles the rest; the view after it, None without a commit."""
        if not self.clock.allows_destroying():
            log.warning("rewrites postponed", extra=self._about(cause="the clock cannot be relied on"))
            return None
        read = self._read(listed, now)
        names = {rewrite.id: name for name, rewrite in read.items()}
        written_after = now - self.settings.orphan_age / 2
        unfit = check_new_files(read.values(), lambda: known.data_store(self.open_store), written_after)
        view = self._load(known)
        checked = check_rewrites(self.ledger, view, [item for item in read.values() if item.id not in unfit])
        after = None
        if checked.good:
            self.sent = True
            after = self.ledger.rewrite(view, checked.good, checked.deletes)
            self.due.again()  # there may be more
            self._count(checked.good)
            about = {"rewrites": self.done.committed, "files": self.done.replaced_files}
            log.info("rewrites committed", extra=self._about(**about, snapshot=after.marks.snapshot))
        done = [*(rewrite.id for rewrite in checked.good), *checked.in_table]
        if done:
            pending_rewrites.settle(self.folder, [names[rewrite_id] for rewrite_id in done])
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

    def _read(self, listed: Sequence[FoundRewrite], now: datetime) -> dict[str, Rewrite]:
        """As many as one tick takes, by name; what is none is rejected, what cannot be read now is postponed."""
        read, size, files, unreadable = dict[str, Rewrite](), 0, 0, 0
        for item, found in self._decoded_in_parts(listed):
            size += item.size
            if read and size > MOST_BYTES:
                break
            if isinstance(found, RewriteRejected):
                self._reject({item.name: found}, now)
            elif isinstance(found, Hold):
                self._hold([item.name], found)
            elif isinstance(found, Missing):
                self._forget([item.name])  # another bookkeeper was quicker
            elif isinstance(found, StorageUnavailable):
                unreadable += 1
                self._postpone(item.name, found, now)
                if unreadable == MOST_UNREADABLE:
                    break
            elif isinstance(found, Exception):
                raise found
            else:
                files += len(found.replaced) + len(found.added)
                if read and files > MOST_FILES:
                    break
                read[item.name] = found
        return read

    def _decoded_in_parts(
        self, listed: Sequence[FoundRewrite]
    ) -> Iterator[tuple[FoundRewrite, Rewrite | BookkeeperError]]:
        """Each, or the error of reading it; as many are read together as the storage answers at once."""
        for part in _parts(listed, self.folder.store.at_once):
            found = dict[str, Rewrite | BookkeeperError]()

            def read(item: FoundRewrite, found: dict[str, Rewrite | BookkeeperError] = found) -> None:
                try:
                    found[item.name] = self._decoded(item)
                except BookkeeperError as error:
                    found[item.name] = error

            together([partial(read, item) for item in part], self.folder.store.at_once)
            yield from ((item, found[item.name]) for item in part)

    def _decoded(self, item: FoundRewrite) -> Rewrite:
        most = self.settings.max_txlog_bytes
        if item.size > most:
            raise RewriteCorrupt(f"{item.size} bytes, at most {most} are allowed")
        return pending_rewrites.read(self.folder, item.name, most)

    def _reject(self, refused: Mapping[str, BookkeeperError], now: datetime) -> None:
        for name, why in refused.items():
            if not isinstance(why, RewriteRejected):
                self._postpone(name, why, now)
                continue
            try:
                pending_rewrites.reject(self.folder, name, why, now)
            except Retry as error:
                self._postpone(name, error, now)
                raise
            self.done.rejected.append(type(why).__name__)
            self._forget([name])
            log.warning("rewrite rejected", extra=self._about(rewrite=name, cause=str(why), hint=why.hint))

    def _postpone(self, name: str, why: BookkeeperError, now: datetime) -> None:
        self.postponed[name] = now
        log.warning("rewrite postponed", extra=self._about(rewrite=name, cause=str(why)))

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
            self.folder.discard_rejected(old)
            log.info("rejected rewrites swept", extra=self._about(rewrites=len(old)))

    def _about(self, **more: object) -> dict[str, object]:
        return {"action": "rewrite", "table": self.settings.name, **more}


def _parts(listed: Iterable[FoundRewrite], at_once: int) -> Iterator[list[FoundRewrite]]:
    """As many as are read together, of at most MOST_BYTES unless one alone has more."""
    part, size = list[FoundRewrite](), 0
    for item in listed:
        if part and (len(part) == at_once or size + item.size > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part
