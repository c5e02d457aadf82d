"""
Requests for columns as a duty of the tick: the table gets what writers ask for, within `[tables.NAME.evolve]`.

1. columns/ is listed every few seconds, then the table is loaded: what is asked for may be there by now.
2. All that is granted is ONE commit of its own (ledger/columns.py): schema only, no snapshot, no marks.
3. The card is written, which tells all writers. 4. The requests are deleted, or moved to rejected/ with the reason.

A crash after 2 or 3 leaves requests that the next run finds satisfied; after 2 the next load of the table writes the
card. An answer in rejected/ stands for ANSWER_KEPT, in which writers do not ask for the same again.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.core import column_requests
from bookkeeper.core.column_requests import COLUMNS, MOST_BYTES, ColumnRequest, FoundRequest
from bookkeeper.core.folder import Folder
from bookkeeper.errors import BookkeeperError, ColumnRefused, CommitConflict, Halt, Hold, Missing, Retry, Unfit
from bookkeeper.ledger.columns import set_columns
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.tick.card import card_of
from bookkeeper.tick.check_columns import Plan, check_columns
from bookkeeper.tick.due import Due
from bookkeeper.tick.intake import defect
from bookkeeper.tick.result import ColumnsDone
from bookkeeper.tick.storage_clock import StorageClock

log = logging.getLogger("bookkeeper")

#: requests that one tick answers; the others wait for the next
MOST_REQUESTS = 100
ANSWER_KEPT = timedelta(minutes=10)
_HOUR = timedelta(hours=1)


class Columns:
    """Answers requests for columns; trouble postpones it and nothing else."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger, clock: StorageClock) -> None:
        self.settings, self.folder, self.ledger, self.clock = settings, folder, ledger, clock
        self.due, self.sweep_due, self.at_once = Due(), Due(), MOST_REQUESTS
        #: whether a commit was sent by the present run
        self.sent = False
        #: what the present run did
        self.done = ColumnsDone()
        #: when this process added columns, of the last hour
        self.added: deque[datetime] = deque()
        #: requests of a newer version, or such that a defect of ours keeps from being answered
        self.held: set[str] = set()
        #: could not be read last time: they come after the others
        self.unread: set[str] = set()

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after the commit of what is granted; None when it is unknown whether that is in.
        """
        listed, self.sent, self.done = list[FoundRequest](), False, ColumnsDone()
        if not (self.settings.evolve.add or self.settings.evolve.widen):
            return view
        try:
            self._sweep(now)
            if self.due.take(self.settings.evolve.every, now):
                listed = self._list()
            if listed:
                view = self._answer(view, listed, now)
                self.at_once = MOST_REQUESTS
            return view
        except (Retry, Halt) as error:
            if isinstance(error, CommitConflict):
                self.due.again()
            log.warning("columns postponed", extra=self._about(cause=str(error)))
        except Exception as error:  # noqa: BLE001 - rows, retention and other requests go on
            self._set_aside(listed, error)
        return None if self.sent else view

    def _list(self) -> list[FoundRequest]:
        found = [item for item in column_requests.pending_requests(self.folder) if item.name not in self.held]
        found.sort(key=lambda item: item.name in self.unread)
        if len(found) > self.at_once:
            self.due.again()
        return found[: self.at_once]

    def _answer(self, known: View, listed: Sequence[FoundRequest], now: datetime) -> View:
        """Commits what is granted and answers each request; the view of the table as it is then."""
        requests = self._read(listed, now)
        if not requests:
            return known
        view = self._load(known)
        plan = check_columns(view.metadata, requests, self.settings, self._may_add(now))
        if plan.added or plan.widened:
            self.clock.check_ahead(now)
            self.ledger.check_clock(view)
            self.sent = True
            set_columns(view, plan.columns)
            self._count(plan, now)
            view = self._load(view)
        if plan.settled:
            if self.folder.write_card(card_of(view, self.settings, view.marks.folder, self.folder.card().file_names)):
                log.info("card changed", extra={**self._about(), "action": "card"})
            column_requests.settle(self.folder, plan.settled)
        self._reject(plan.refused, now)
        return view

    def _load(self, known: View) -> View:
        return self.ledger.load(known.marks.folder).with_manifests_of(known)

    def _may_add(self, now: datetime) -> int:
        while self.added and not timedelta(0) <= now - self.added[0] < _HOUR:
            self.added.popleft()
        return self.settings.evolve.columns_per_hour - len(self.added)

    def _count(self, plan: Plan, now: datetime) -> None:
        self.added.extend([now] * plan.added)
        self.done.added, self.done.widened = plan.added, plan.widened
        names = [column.name for column in plan.columns[len(plan.columns) - plan.added :]]
        about = self._about(added=plan.added, widened=plan.widened, columns=", ".join(names)[:500])
        log.info("columns changed", extra=about)

    def _read(self, listed: Sequence[FoundRequest], now: datetime) -> dict[str, ColumnRequest]:
        """The requests that are well formed, by name; the others are rejected, held, or left for later."""
        fitting = {f"{COLUMNS}{item.name}": item.size for item in listed if item.size <= MOST_BYTES}
        answers, found, self.unread = (
            self.folder.store.read_many([*fitting], fitting),
            dict[str, ColumnRequest](),
            set(),
        )
        for item in listed:
            answer = answers.get(f"{COLUMNS}{item.name}")
            try:
                if answer is None:
                    raise ColumnRefused(f"{item.size} bytes, at most {MOST_BYTES} are allowed")
                if isinstance(answer, Unfit):
                    raise ColumnRefused(str(answer)) from answer
                if isinstance(answer, BookkeeperError):
                    raise answer
                found[item.name] = column_requests.decode(item.name, answer)
            except ColumnRefused as why:
                self._reject({item.name: why}, now)
            except Hold as why:
                self._hold(item.name, why)
            except Missing:
                continue  # another bookkeeper was quicker
            except Retry as error:
                self.unread.add(item.name)
                log.warning("request for a column not read", extra=self._about(request=item.name, cause=str(error)))
        return found

    def _reject(self, refused: Mapping[str, ColumnRefused], now: datetime) -> None:
        for name, why in refused.items():
            try:
                column_requests.reject(self.folder, name, why, now)
            except Hold as error:
                self._hold(name, error)
                continue
            self.done.refused += 1
            about = self._about(request=name[:200], cause=str(why), hint=why.hint)
            log.warning("request for a column refused", extra=about)

    def _hold(self, name: str, why: Hold) -> None:
        """Leaves it where it is, for as long as this process lives."""
        self.held.add(name)
        log.warning("request for a column held", extra=self._about(request=name[:200], cause=str(why), hint=why.hint))

    def _set_aside(self, listed: Sequence[FoundRequest], error: Exception) -> None:
        """Holds a request that our code fails on; of several, one at a time is tried from then on to find it."""
        log.error("a defect of the bookkeeper", extra=self._about(cause=repr(error), requests=len(listed)))
        if len(listed) == 1:
            self._hold(listed[0].name, defect(error))
        elif listed:
            self.at_once = 1
            self.due.again()

    def _sweep(self, now: datetime) -> None:
        if not self.sweep_due.take(ANSWER_KEPT, now):
            return
        refused = column_requests.refused_requests(self.folder)
        old = [item.name for item in refused if item.modified < now - ANSWER_KEPT]
        if old and self.clock.allows_destroying():
            self.folder.discard_rejected(old)

    def _about(self, **more: object) -> dict[str, object]:
        return {"action": "columns", "table": self.settings.name, **more}
