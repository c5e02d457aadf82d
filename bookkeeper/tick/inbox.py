"""
pending/ as ticks see it: finds txlogs, bounds what is read of them, and deletes those that are in the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial

from bookkeeper.config.settings import Table
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.discover.discovery import Discovery, Listing
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.errors import Missing, StorageUnavailable, Unfit
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.tick.delete_consumed import Consumed
from bookkeeper.tick.intake import Intake
from bookkeeper.tick.read_budget import ReadBudget
from bookkeeper.tick.result import TickResult
from bookkeeper.tick.select import Limits
from bookkeeper.tick.state import Tick

#: what is read beside the listed sizes: a second listing may show more than the first
MORE_BYTES = 2**20
#: of a txlog that is hinted and was never listed: a larger one is listed first, so that its room is known
UNLISTED_BYTES = 2**20


class Inbox:
    """The pending txlogs of one folder; what it remembers only saves listings and deletes."""

    def __init__(
        self,
        settings: Table,
        folder: Folder,
        ledger: Ledger,
        discovery: Discovery | None = None,
        read_budget: ReadBudget | None = None,
    ) -> None:
        self.folder, self.ledger, self.most_bytes = folder, ledger, settings.max_txlog_bytes
        self.read_budget = read_budget or ReadBudget()
        self.limits = Limits(settings.max_files, settings.max_bytes, settings.max_txlogs)
        self.pending_index = PendingIndex(discovery or Listing(), settings.look_every)
        self.consumed = Consumed(folder, settings.name)

    @property
    def discovery(self) -> Discovery:
        """Hints at new txlogs between two listings."""
        return self.pending_index.discovery

    @property
    def misnamed(self) -> Sequence[str]:
        """Keys in pending/ that are no txlog's name, as the last `find` listed them."""
        return self.pending_index.misnamed

    def find(self, now: datetime, reserved: ExitStack) -> Tick:
        """
        A tick with what is pending now; what is hinted is read at once, into room that stays `reserved` until the end.

        Raises StorageUnavailable.
        """
        intake = Intake(self.folder, self.most_bytes, self.ledger.cache.column)
        self.consumed.before_listing()
        read = partial(self._read_unlisted, now, intake, reserved)
        found = self.consumed.without(self.pending_index.found(self.folder, read))
        names = frozenset(item.name for item in found)
        return Tick(now, found, names, TickResult.of(found), intake, self.limits, self.pending_index.listed)

    def _read_unlisted(
        self, now: datetime, intake: Intake, reserved: ExitStack, names: Sequence[TxlogName]
    ) -> Mapping[TxlogName, Found | Missing | Unfit | StorageUnavailable]:
        """Reads txlogs whose sizes no listing has said, each as far as an equal part of the room goes."""
        most = min(self.most_bytes, UNLISTED_BYTES)
        with self.read_budget.part(most * len(names), now) as room:
            answers = intake.read_unlisted(names, min(most, room // len(names)))
            size = sum(answer.size for answer in answers.values() if isinstance(answer, Found))
            reserved.enter_context(self.read_budget.part(size, now))
        return answers

    @contextmanager
    def part_of_read_budget(self, tick: Tick) -> Iterator[None]:
        """For the block, bounds the bytes that the tick reads by its part of what is free."""
        wanted = sum(item.size for item in tick.found if item.size <= self.most_bytes)
        with self.read_budget.part(wanted + MORE_BYTES, tick.now) as most:
            tick.limits = replace(self.limits, reads=most)
            yield

    def delete(self, names: Sequence[TxlogName]) -> None:
        """Deletes txlogs that marks.json says are in; best effort, see `Consumed`."""
        self.pending_index.forget(names)
        self.consumed.delete(names)
