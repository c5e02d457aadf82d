"""
Two writers publish, one of a source with positions, one without; the bookkeeper ticks in between.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError, Fenced, UnknownOutcome
from tests.chaos.scenes.scene import Scene, lake_at
from tests.support.faults import Faults
from tests.support.in_turn import in_turn
from tests.support.lake import Lake, Writes
from writers.writer import Writer

AT_ONCE = 2


class Writing(Scene):
    """The source is published in three txlogs; the other writer publishes what it likes, once a run."""

    name = "writer"
    source = tuple(f"s{number}" for number in range(6))
    parts = ("upload data/", "create folder/pending/source.", "create folder/pending/plain.", "read folder/card.json")

    def prepare(self, root: Path) -> Lake:
        self.runs = count()
        self.confirmed: list[str] = []
        self.doubtful: list[str] = []
        return lake_at(root)

    def restore(self) -> None:
        super().restore()
        self.confirmed, self.doubtful = [], []

    def act(self, faults: Faults) -> None:
        self._plain(faults)
        for _ in self._source(faults):
            with suppress(BookkeeperError):
                self.lake.tick()

    def open(self, name: str, faults: Faults) -> Writer:
        """A new run of the writer `name`, whose every operation goes through `faults`."""
        lake, stores = self.lake, self.lake.faulty(faults)
        seed = next(self.runs).to_bytes(10, "big")
        given: dict[str, Any] = {"clock": lake.clock, "wait": lambda seconds: None, "random": lambda n: seed[:n]}
        # In turn: a point is the number of an operation. tests/writers/test_at_once.py has all orders.
        return Writer.open(Folder(stores(lake.made.folder)), name, stores=stores, at_once=in_turn(), **given)

    def _plain(self, faults: Faults) -> None:
        keys = [f"plain-{next(self.runs)}"]
        self.doubtful += keys
        with self.open("plain", faults) as writer:
            self.lake.clock.move(seconds=1)
            writer.write(rows(self.lake, keys))
            writer.publish()
        self.confirmed += keys
        self.doubtful.remove(keys[0])

    def _source(self, faults: Faults) -> Iterator[None]:
        """Continues where the positions end, until the source does."""
        with self.open("source", faults) as writer:
            at = int(writer.position or b"0")
            while at < len(self.source):
                writer.write(rows(self.lake, list(self.source[at : at + AT_ONCE])))
                at += AT_ONCE
                writer.publish(position=b"%d" % at)
                self.lake.clock.move(seconds=1)
                yield

    def again(self) -> None:
        # A run that finds out that it does not know, or is not alone, ends; its successor finds the truth.
        for _ in range(3):
            with suppress(Fenced, UnknownOutcome):
                for _ in self._source(Faults()):
                    continue
            self.lake.tick()

    def published(self) -> list[str]:
        return [*self.source, *self.confirmed]

    def unsure(self) -> list[str]:
        return self.doubtful


class Pruning(Writing):
    """The writer without positions publishes once; two days later its marks are pruned with another's commit."""

    name = "prune"
    parts = ("create folder/pending/plain.", "commit_table", "replace folder/clock")

    def prepare(self, root: Path) -> Lake:
        self.others: list[str] = []
        return super().prepare(root)

    def restore(self) -> None:
        super().restore()
        self.others = []

    def act(self, faults: Faults) -> None:
        self._plain(faults)
        for days in (0, 2, 2):
            self.lake.clock.move(days=days)
            self._other()
            self.lake.tick(self.lake.book(faults), minutes=15)

    def _other(self) -> None:
        key = f"other-{next(self.runs)}"
        Writes(self.lake, key).publish(key)
        self.others.append(key)

    def again(self) -> None:
        self._other()
        self.lake.tick(days=2)

    def published(self) -> list[str]:
        return self.confirmed + self.others


def rows(lake: Lake, keys: list[str]) -> pa.Table:
    """
    One row per key, now.
    """
    at = pa.array([lake.clock.now] * len(keys), pa.timestamp("us", "UTC"))
    return pa.table({"timestamp": at, "key": keys, "value": [b"v"] * len(keys)})
