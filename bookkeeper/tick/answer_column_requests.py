"""
Requests for columns as a duty of the tick: the table gets what writers ask for, within `[tables.NAME.evolve]`.

1. columns/ is listed every few seconds, then the table is loaded: what is asked for may be there by now.
2. All that is granted is ONE commit of its own (ledger/schema_commit.py): schema only, no snapshot, no marks.
3. The card is written, which tells all writers. 4. The requests are deleted, or moved to rejected/ with the reason.

A crash after 2 or 3 leaves requests that the next run finds satisfied; after 2 the next load of the table writes the
card. An answer in rejected/ stands for ANSWER_KEPT, in which writers do not ask for the same again.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from bookkeeper.config.settings import Table
from bookkeeper.contract import column_requests
from bookkeeper.contract.column_requests import MOST_BYTES, TRAY, ColumnRequest
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.tray import FoundObject, bytes_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ColumnRefused, CommitConflict, Halt, Hold, Missing, Retry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.schema_commit import set_columns
from bookkeeper.ledger.view import View
from bookkeeper.tick.card import card_of
from bookkeeper.tick.decide_columns import Plan, decide_columns
from bookkeeper.tick.duty_timer import DutyTimer
from bookkeeper.tick.result import ColumnsDone
from bookkeeper.tick.turns import Turns, sweep_rejected

#: requests that one tick answers; the others wait for the next
MOST_REQUESTS = 100
ANSWER_KEPT = timedelta(minutes=10)
_HOUR = timedelta(hours=1)


class Columns:
    """Answers requests for columns; trouble postpones it and nothing else."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger) -> None:
        self.settings, self.folder, self.ledger, self.clock = settings, folder, ledger, ledger.clock
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "columns")
        self.turns, self.sweep_due = Turns(self.log, "request for a column", "request", MOST_REQUESTS), DutyTimer()
        #: whether a commit was sent by the present run
        self.sent = False
        #: what the present run did
        self.done = ColumnsDone()
        #: when this process added columns, of the last hour
        self.added: deque[datetime] = deque()

    def run(self, view: View, now: datetime) -> View | None:
        """
        The view, after the commit of what is granted; None when it is unknown whether that is in.
        """
        taken, self.sent, self.done = list[FoundObject](), False, ColumnsDone()
        if not (self.settings.evolve.add or self.settings.evolve.widen):
            return view
        try:
            self._sweep(now)
            if self.turns.due.take(self.settings.evolve.every, now):
                taken = self._take()
            if taken:
                view = self._answer(view, taken, now)
                self.turns.more()
            return view
        except (Retry, Halt) as error:
            if isinstance(error, CommitConflict):
                self.turns.due.again()
            self.log.warning("columns postponed", cause=str(error))
        except Exception as error:  # noqa: BLE001 - rows, retention and other requests go on
            self.turns.set_aside(taken, error)
        return None if self.sent else view

    def _take(self) -> list[FoundObject]:
        free = self.turns.free(TRAY.pending(self.folder))
        taken = self.turns.take(free)
        if len(taken) < len(free):
            self.turns.due.again()
        return taken

    def _answer(self, known: View, taken: Sequence[FoundObject], now: datetime) -> View:
        """Commits what is granted and answers each request; the view of the table as it is then."""
        requests = self._read(taken, now)
        if not requests:
            return known
        view = self._load(known)
        plan = decide_columns(view.metadata, requests, self.settings, self._may_add(now))
        if plan.added or plan.widened:
            self.clock.check_ahead(now)
            self.clock.check_behind(view)
            self.sent = True
            set_columns(view, plan.columns)
            self._count(plan, now)
            view = self._load(view)
        if plan.settled:
            if self.folder.write_card(card_of(view, self.settings, view.marks.folder, self.folder.card().file_names)):
                self.log.info("card changed", action="card")
            TRAY.settle(self.folder, plan.settled)
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
        self.log.info("columns changed", added=plan.added, widened=plan.widened, columns=", ".join(names)[:500])

    def _read(self, taken: Sequence[FoundObject], now: datetime) -> dict[str, ColumnRequest]:
        """The requests that are well formed, by name; the others are rejected, held, or left for later."""
        found = dict[str, ColumnRequest]()
        for item, answer in TRAY.read(self.folder, taken, MOST_BYTES):
            try:
                found[item.name] = column_requests.decode(item.name, bytes_of(answer, ColumnRefused))
            except ColumnRefused as why:
                self._reject({item.name: why}, now)
            except Hold as why:
                self.turns.hold(item.name, why)
            except Missing:
                continue  # another bookkeeper was quicker
            except Retry as error:
                self.turns.postpone(item.name, error, now)
        return found

    def _reject(self, refused: Mapping[str, ColumnRefused], now: datetime) -> None:
        for name, why in refused.items():
            try:
                TRAY.reject(self.folder, name, why, now)
            except Hold as error:
                self.turns.hold(name, error)
                continue
            self.done.refused += 1
            self.log.warning("request for a column refused", request=name[:200], cause=str(why), hint=why.hint)

    def _sweep(self, now: datetime) -> None:
        if self.sweep_due.take(ANSWER_KEPT, now):
            sweep_rejected(TRAY, self.folder, now - ANSWER_KEPT, self.clock)
