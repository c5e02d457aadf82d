"""
Exactly once under lost, late and double replies: every fault, at every k-th request, in every catalog.

tests.chaos makes rows of its table of these rounds; pytest runs them in test_faults.py and test_race.py.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Barrier

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Retry
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper
from tests.chaos.tally import Tally
from tests.servers.line import Fault, Line
from tests.support.catalog_lake import CatalogLake, Chain, Place
from tests.support.lossy import lossy_store

COMMIT, REQUEST, PUT = "commits", "requests", "puts"
_COMMIT_FAULTS = tuple(fault for fault in Fault if fault not in (Fault.NONE, Fault.UNANSWERED))
FAULTS = {
    COMMIT: _COMMIT_FAULTS,
    REQUEST: (Fault.REQUEST_LOST, Fault.REFUSED_503, Fault.APPLIED_500, Fault.REPLY_LOST),
    # A storage has no other writer under a txlog's name, and its errors carry no number.
    PUT: tuple(fault for fault in _COMMIT_FAULTS if fault is not Fault.OVERTAKEN and "50" not in fault.value),
}
EVERY = (1, 2, 3)
TXLOGS = 5
#: more than the attempts of one tick, so that a whole tick fails
IN_A_ROW = 6
FOR_EVER = 1_000_000


@dataclass
class Trial:
    """One queue under one fault; `open_book` makes the bookkeeper, so that a test can put in a broken one."""

    lake: CatalogLake
    rng: random.Random
    open_book: Callable[..., Bookkeeper] = CatalogLake.book
    lines: list[Line] = field(default_factory=list)

    def commits(self, fault: Fault, every: int) -> None:
        """One round with faults on the way of commits to the catalog."""
        self._over(Line(fault, every, IN_A_ROW if every == 1 else FOR_EVER), all_requests=False)

    def requests(self, fault: Fault, every: int) -> None:
        """One round with faults on the way of commits and loads to the catalog."""
        # A tick makes the same number of requests each time: every k-th for ever would mean never.
        self._over(Line(fault, every, IN_A_ROW), all_requests=True)

    def _over(self, line: Line, all_requests: bool) -> None:
        rival = self.lake.book()
        line.meanwhile = lambda: self.lake.attempt(rival)
        catalog = self.lake.where.over(line, all_requests)
        self._round(line, lambda: self.open_book(self.lake, catalog=catalog), self.lake.folder)

    def puts(self, fault: Fault, every: int, faulty: Callable[[str], bool] = lambda url: True) -> None:
        """One round with faults on the way to the stores whose URL is `faulty`."""
        line = Line(fault, every, IN_A_ROW)

        def store(url: str) -> Store:
            return lossy_store(open_store(url), line) if faulty(url) else open_store(url)

        self._round(line, lambda: self.open_book(self.lake, store=store), Folder(store(self.lake.made.folder)))

    def _round(self, line: Line, restart: Callable[[], Bookkeeper], folder: Folder) -> None:
        self.lines.append(line)
        book, number = restart(), len(self.lines)
        chains = [Chain(self.lake, f"w{number}"), Chain(self.lake, f"p{number}", positions=True)]
        for chain in chains:
            chain.folder = folder
        for _ in range(TXLOGS):
            self.rng.choice(chains).publish()
            book = book if self.rng.random() < 0.7 else restart()
            self.lake.attempt(book)
        self.lake.settle(book)
        line.flush()
        self.lake.settle(restart())

    def tally(self, name: str) -> Tally:
        """What became of the rows."""
        return self.lake.tally(sum(line.injected for line in self.lines), name, rounds=len(self.lines))


def trial(where: Place, what: str, fault: Fault, rounds: int, seed: int) -> Trial:
    """
    A new queue under one fault, on every first, second and third of its commits, requests or puts.
    """
    made = Trial(where.lake(), random.Random(f"{seed} {where.kind} {what} {fault}"))
    for _ in range(rounds):
        for every in EVERY:
            getattr(made, what)(fault, every)
    return made


def race(lake: CatalogLake, commits: int) -> int:
    """
    Two bookkeepers in threads drain the same txlogs, one a commit; how many commits were refused.
    """
    chains = [Chain(lake, "w1"), Chain(lake, "w2", positions=True)]
    for number in range(commits):
        chains[number % 2].publish()
    line, start = Line(), Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        racing = [pool.submit(_race, lake, line, start) for _ in range(2)]
    for runner in racing:
        runner.result()
    return line.requests - commits


def _race(lake: CatalogLake, line: Line, start: Barrier) -> None:
    catalog = lake.where.over(line, anew=True)
    try:
        book = lake.book(catalog=catalog)
        start.wait(60)  # for ever, if the other one never got here
        for _ in range(1000):
            if not lake.pending():
                return
            with suppress(Retry):
                book.tick(lake.clock.now)
    finally:
        catalog.close()  # a server has only so many connections
