"""Hints in any order, lost, late, double and foreign, and another bookkeeper at any moment: every row gets in once."""

import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.contract.names import TxlogName
from bookkeeper.discover.discovery import LOOK, Hints
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.probe import Probe
from bookkeeper.errors import Retry, StorageUnavailable
from bookkeeper.tick.tick import Bookkeeper
from tests.discover.pending import RUN, Told
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Lake, Writes

SPOTS = (
    "read folder/pending",
    "list folder/pending",
    "load_table",
    "commit_table",
    "marks.json",
    "delete folder/pending",
)


class Walk:
    """Two bookkeepers that are hinted, three writers with positions, and a bad one."""

    def __init__(self, root: Path, seed: int) -> None:
        self.dice, self.lake = random.Random(seed), Lake(root)
        self.faults = [Faults(), Faults()]
        self.books = [self._book(faults, seed % 3 == 2) for faults in self.faults]
        self.writers = [Writes(self.lake, f"w{number}") for number in range(3)]
        self.rows: list[str] = []
        self.published: list[TxlogName] = []
        self.bad: list[str] = []
        self.holes = 0

    def _book(self, faults: Faults, probing: bool) -> Bookkeeper:
        book = self.lake.book(faults, window=timedelta(seconds=self.dice.choice([0, 2])))
        book.inbox.pending_index = PendingIndex(Probe() if probing else Told(LOOK), self.dice.choice([2, 7, 1000]))
        return book

    def publish(self) -> None:
        writer, number = self.dice.choice(self.writers), len(self.rows)
        if self.dice.random() < 0.15:
            name = Writes(self.lake, f"bad{number}").name.at(1)
            self.lake.put(f"pending/{name}", b"no avro")
            self.bad.append(str(name))
        else:
            self.rows.append(f"k{number:03d}")
            name = writer.goes_on(b"%d" % (number + 1), self.rows[-1])
        self.published.append(name)

    def hints(self) -> Hints:
        if not self.published or self.dice.random() < 0.05:
            return LOOK
        some = self.dice.sample(self.published[-6:], self.dice.randint(0, min(5, len(self.published))))
        return frozenset([*some, *self.dice.choices([RUN, some[0].at(99) if some else RUN], k=self.dice.randint(0, 1))])

    def turn(self, index: int) -> None:
        book = self.books[index]
        if isinstance(book.inbox.pending_index.discovery, Told):
            book.inbox.pending_index.discovery.answers.append(self.hints())
        with suppress(Retry):
            result = self.lake.tick(book, seconds=self.dice.choice([1, 3, 11]))
            self.holes += len(result.holes)

    def step(self) -> None:
        for _ in range(self.dice.randint(0, 3)):
            self.publish()
        first = self.dice.randrange(2)
        spot = self.dice.choice(SPOTS)
        if self.dice.random() < 0.6:
            self.faults[first].between(spot, lambda: self.turn(1 - first))
        if self.dice.random() < 0.2:
            self.faults[first].on(self.dice.choice(SPOTS[:3]), BEFORE, StorageUnavailable, times=1)
        self.turn(first)
        self.faults[first].clear()


@pytest.mark.parametrize("seed", range(9))
def test_every_row_gets_in_once_whatever_is_hinted_and_whoever_is_quicker(tmp_path: Path, seed: int) -> None:
    walk = Walk(tmp_path / "lake", seed)
    for _ in range(25):
        walk.step()
    walk.lake.drain(6)
    assert walk.lake.keys() == walk.rows
    assert (walk.lake.pending(), sorted(walk.lake.rejected()), walk.holes) == ([], sorted(walk.bad), 0)
