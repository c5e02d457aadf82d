"""
Plans an attempt: which txlogs its commit holds, and the marks that go with them.
"""

from collections.abc import Set
from datetime import datetime
from functools import partial

from bookkeeper.config.settings import Table
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.delete_scope import is_unpartitioned
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Hold
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.numbers import committed_number
from bookkeeper.retention.apply import with_commit_time
from bookkeeper.tick.culprits import culprits
from bookkeeper.tick.intake import defect
from bookkeeper.tick.plan_batch import Batch, CheckedTxlogs, gaps, plan, resumed
from bookkeeper.tick.prune import Prune
from bookkeeper.tick.state import Attempt, Tick
from bookkeeper.tick.writer_order import WriterOrder
from bookkeeper.tick.writer_room import WriterRoom


class Planning:
    """Plans attempts to commit to one table; asks the folder for what the rules of `plan` need to know."""

    def __init__(self, settings: Table, folder: Folder, ledger: Ledger) -> None:
        self.settings, self.folder, self.ledger = settings, folder, ledger
        self.prune = Prune(settings, folder, ledger.clock)

    def batch(self, tick: Tick, attempt: Attempt) -> Batch:
        """The batch of what was read and checked; raises StorageUnavailable."""
        intake, view = tick.intake, attempt.view
        missing, rejected = intake.look_for(gaps(attempt.names, view.marks))
        not_pending = missing | rejected
        marks = resumed(view.marks, attempt.names, intake.good, not_pending, self.folder.rejected)
        totals = view.total("total-records"), view.total("total-files-size")
        checked = CheckedTxlogs(
            intake.good,
            intake.bad,
            not_pending,
            *totals,
            self._writer_order(tick, attempt, rejected),
            lambda: self.ledger.live_specs(view),
            frozenset(number for number, spec in view.specs.items() if not is_unpartitioned(spec)),
            self._writer_room(tick, attempt),
        )
        batch = plan(attempt.names, checked, marks, tick.limits, attempt.unread_writers)
        batch.holes = [name for name in batch.holes if name in missing]
        batch.held |= intake.held
        batch.resumed = marks is not view.marks
        return batch

    def marks(self, attempt: Attempt, now: datetime, at: datetime) -> Marks:
        """The marks after the batch, in a commit that is stamped `at`."""
        batch, last = attempt.batch, attempt.view.metadata.last_sequence_number
        marks = batch.before.advanced(batch.names, batch.positions, epoch_ms(at), batch.offsets)
        marks = self.prune.pruned(marks, now, attempt.view.is_keyed)
        number = committed_number(last, batch.txlogs)
        return with_commit_time(marks, number, self.settings.retention, at)

    def defects(self, attempt: Attempt) -> dict[TxlogName, Hold]:
        """The txlogs of the batch that the engine fails on, found by trial; empty when the batch passes."""
        found = culprits(attempt.batch.txlogs, partial(self.ledger.rehearse, attempt.view))
        return {name: defect(error) for name, error in found.items()}

    def _writer_order(self, tick: Tick, attempt: Attempt, rejected: Set[TxlogName]) -> WriterOrder | None:
        """The order of writers, on a keyed table; `rejected` are gaps that lie in rejected/."""
        marks = attempt.view.marks
        if not attempt.view.is_keyed:
            return None
        # Pending txlogs were listed before: one that was rejected meanwhile is in this listing.
        begins = any(marks.mark(name) is None for name in attempt.names)
        listed = [item.name for item in self.folder.rejected()] if begins else []
        before = tick.first_listed if tick.listed_twice else None
        return WriterOrder(marks, [item.name for item in attempt.left], {*rejected, *listed}, before)

    def _writer_room(self, tick: Tick, attempt: Attempt) -> WriterRoom:
        marks, keyed = attempt.view.marks, attempt.view.is_keyed
        return WriterRoom(marks, self.settings.max_writers, lambda: self.prune.without_idle(marks, tick.now, keyed))
