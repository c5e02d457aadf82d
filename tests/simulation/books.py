"""
The two bookkeepers: processes of several threads, which are actors of their own.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from unittest import mock

from bookkeeper.config.settings import Daemon, Table
from bookkeeper.config.share import share_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.discover.probe import Probe
from bookkeeper.leases import beside
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.serve.open import open_lease
from bookkeeper.stores import received
from bookkeeper.tick.inbox import Inbox
from bookkeeper.tick.result import TickResult
from bookkeeper.tick.tick import Bookkeeper
from tests.simulation.hints import Queue
from tests.simulation.schedule import Scheduler
from tests.simulation.threads import OfProcess, Threads
from tests.simulation.traits import LIST, PROBE, Traits

BOOKS = ("book-1", "book-2")
IDENTIFIER = "demo.events"
#: the table is of the first one's share; the second takes it while that one is away
DAEMONS = {
    name: Daemon(share=f"{number}/2")
    for name, number in zip(BOOKS, (share_of(IDENTIFIER, 2), 3 - share_of(IDENTIFIER, 2)), strict=True)
}


class Books:
    """A part of World."""

    traits: Traits
    scheduler: Scheduler
    counts: Counter[str]
    settings: Table
    catalog: Any
    folder_url: str
    store: Callable[[str], Any]
    queue: Queue

    def add_books(self) -> None:
        """Makes their actors."""
        #: stand in for the threads that renew leases, and that receive hints
        self.renewals, self.receivers = OfProcess(), OfProcess()
        #: when a bookkeeper has worked on the table
        self.ticked_at = self.scheduler.now
        self.books: dict[str, Bookkeeper] = {}
        #: the same where they have leases, as the daemon's loop has them
        self.slots: dict[str, TableLoop] = {}
        #: what a bookkeeper gave its thread that plans folds
        self.folds: dict[str, Callable[[], None]] = {}
        for name in BOOKS:
            for threads in (self.renewals, self.receivers):
                threads.of[name], threads.acting = Threads(self.scheduler), lambda: self.scheduler.acting
            for prefix, act in self._threads_of(name).items():
                self.scheduler.add(f"{prefix}{name}", act, partial(self._forget, name), rolls=False)

    def book_patches(self) -> list[Any]:
        """What the product's modules have in the place of threads."""
        return [
            mock.patch.object(received, "threading", self.receivers),
            # Of whichever process acts then.
            mock.patch.object(received, "start", lambda act, name: self.receivers.start(act, name)),  # noqa: PLW0108
            mock.patch.object(beside, "RENEWALS", self.renewals),
            mock.patch.object(beside, "wait", lambda outcomes: [outcome.thread.join() for outcome in outcomes]),
        ]

    def _threads_of(self, name: str) -> dict[str, Callable[[Random], None]]:
        """What the process of a bookkeeper does, by the prefix of the actor."""
        return {
            "": partial(self._tick, name),
            "fold-": partial(self._fold, name),
            "lease-": lambda dice: self.renewals.of[name].step(),
            "queue-": lambda dice: self.receivers.of[name].step(),
        }

    def book(self, name: str) -> Bookkeeper:
        """A bookkeeper that remembers nothing; its folds are planned by an actor, beside its ticks."""

        def spawn(act: Callable[[], None], about: str) -> bool:
            self.folds[name] = act
            return True

        folder, discovery = Folder(self.store(self.folder_url)), None
        clock = CommitClock(self.scheduler.clock, self.settings.name, folder)
        ledger = Ledger(self.catalog, IDENTIFIER, clock, self.store)
        lease = open_lease(DAEMONS[name], self.settings, folder) if self.traits.leases else None
        if self.traits.discover != LIST:
            discovery = Probe() if self.traits.discover == PROBE else self.queue.discovery()
        inbox = Inbox(self.settings, folder, ledger, discovery)
        made = Bookkeeper(self.settings, folder, ledger, store=self.store, lease=lease, inbox=inbox, folds=spawn)
        self.books[name] = made
        return made

    def _forget(self, name: str) -> None:
        """Its process has died, and its threads with it."""
        self.slots.pop(name, None)
        self.folds.pop(name, None)
        if (book := self.books.pop(name, None)) is not None:
            book.inbox.discovery.close()
        for threads in (self.renewals, self.receivers):
            threads.of[name].forget()
        self.scheduler.kill(f"{prefix}{name}" for prefix in self._threads_of(name))

    def _fold(self, name: str, dice: Random) -> None:
        if (act := self.folds.pop(name, None)) is not None:
            act()

    def _tick(self, name: str, dice: Random) -> None:
        done = self._ticked(name)
        if done is None:
            return
        self.ticked_at = self.scheduler.now
        if done.commit is not None:
            self.counts["ticks that committed"] += 1
        if done.rejected:
            self.counts["rejected"] += len(done.rejected)

    def _ticked(self, name: str) -> TickResult | None:
        """The result of a tick, None where it failed, was not due, or another bookkeeper has the lease."""
        self.counts["ticks"] += 1
        if not self.traits.leases:
            return (self.books.get(name) or self.book(name)).tick(self.scheduler.now)
        slot = self.slots.setdefault(name, TableLoop("events", partial(self.book, name)))
        done = tick_once(slot, DAEMONS[name], self.scheduler.now)
        self.counts["ticks on standby"] += slot.standby
        if slot.error is not None:
            self.counts[f"error {type(slot.error).__name__}"] += 1
            self.scheduler.tell(f"{name}: {type(slot.error).__name__}: {str(slot.error)[:200]}")
        return done
