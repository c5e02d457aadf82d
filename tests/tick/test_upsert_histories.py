"""
Random histories of writers of a keyed table, with crashes and late txlogs, against a dict that replays them in order.

Each writer has keys of its own: between writers only the order of commits counts. The reader is the spec's rule alone.
"""

import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import Retry
from bookkeeper.ledger import merge
from tests.support.faults import AFTER, BEFORE, MIDDLE, Crash, Faults, crash
from tests.support.keyed import Step, Steps, keyed_lake, replayed
from tests.support.keyed_rows import state, streamed
from tests.support.lake import Lake

WRITERS = ("k1", "k2", "k3")


@dataclass
class World:
    """A lake, its writers' runs, and what each txlog does."""

    lake: Lake
    random: random.Random
    runs: dict[str, Steps] = field(default_factory=dict)
    steps: dict[TxlogName, tuple[Step, ...]] = field(default_factory=dict)
    rows: dict[TxlogName, int] = field(default_factory=dict)
    #: txlogs whose create is still under way
    under_way: list[tuple[TxlogName, bytes]] = field(default_factory=list)
    checks: int = 0
    #: how many keys of each writer may have been named
    keys: int = 5

    def key(self, writer: str) -> int:
        return self.random.choice([*range(5), self.keys]) * len(WRITERS) + WRITERS.index(writer)

    def new_key(self, writer: str) -> int:
        """One that no step has named: what is inserted must not be there, whatever gets in late."""
        self.keys += 1
        return self.keys * len(WRITERS) + WRITERS.index(writer)

    def step(self, writer: str) -> Step:
        ups = {self.key(writer): str(self.random.randrange(10**6)) for _ in range(self.random.randrange(3))}
        gone = [key for key in {self.key(writer) for _ in range(self.random.randrange(3))} if key not in ups]
        if not ups and not gone:
            return Step(upserts={self.key(writer): "only"})
        return Step(upserts=ups, deletes=gone, shadow=self.random.random() < 0.8)

    def publish(self) -> None:
        """A txlog of one to three steps, or one of version 1 with keys that are not there."""
        writer = self.random.choice(WRITERS)
        run = self.runs.get(writer)
        if run is None or self.random.random() < 0.1:
            self.lake.clock.move(seconds=5)
            run = self.runs[writer] = Steps(self.lake, writer)
        if self.random.random() < 0.3:
            key = self.new_key(writer)
            steps: tuple[Step, ...] = (Step(writes={key: "new"}),)
            files = [run.rows([{"id": key, "value": "new"}])]
            name, encoded = run.encoded(files)
        else:
            steps = tuple(self.step(writer) for _ in range(self.random.randint(1, 3)))
            data, deletes = run.files_of(*steps)
            name, encoded = run.encoded_steps(data, deletes)
            files = [item.file for item in data]
        self.steps[name], self.rows[name] = steps, sum(file.record_count for file in files)
        if self.random.random() < 0.1:  # it meets a 503, and is sent again later; its run ends with it
            self.under_way.append((name, encoded))
            del self.runs[writer]
        else:
            self.lake.folder.publish(name, encoded)

    def of(self, writer: str, *names: TxlogName) -> dict[int, Any]:
        """What these txlogs make of the writer's keys, in its order."""
        return replayed(*(step for name in sorted(names) if name.writer == writer for step in self.steps[name]))

    def arrive(self) -> None:
        if self.under_way:
            name, data = self.under_way.pop(self.random.randrange(len(self.under_way)))
            self.lake.folder.publish(name, data)

    def tick(self, crashes: bool = True) -> None:
        faults = Faults()
        if crashes and self.random.random() < 0.5:
            faults.at(self.random.randrange(40), self.random.choice([BEFORE, MIDDLE, AFTER]), crash)
        limits = {"max_txlogs": self.random.choice([1, 2, 3, 100])} if crashes else {}
        with suppress(Crash, Retry):
            self.lake.tick(self.lake.book(faults, **limits), seconds=self.random.choice([1, 11]))
        self.check()

    def check(self) -> None:
        """The table is what the txlogs that are in make of it, in the order of their writers."""
        marks = self.lake.view().marks
        inside = [name for name in self.steps if marks.is_in(name)]
        expected = dict[int, Any]()
        for writer in WRITERS:
            expected |= self.of(writer, *inside)
        assert state(self.lake) == expected
        assert len(streamed(self.lake)) == sum(self.rows[name] for name in inside)
        self.checks += 1


def history(root: Path, seed: int, actions: int = 60) -> World:
    world = World(keyed_lake(root / f"lake-{seed}"), random.Random(seed))
    for _ in range(actions):
        world.random.choice([world.publish, world.publish, world.publish, world.tick, world.tick, world.arrive])()
    while world.under_way:
        world.arrive()
    for _ in range(6):
        world.tick(crashes=False)
    marks, rejected = world.lake.view().marks, world.lake.rejected()
    assert world.lake.pending() == []
    for name in world.steps:  # in, or refused because a later one is
        assert marks.is_in(name) or rejected.get(str(name)) == "OutOfOrder", name
    return world


@pytest.mark.parametrize("seed", range(4))
def test_the_table_is_what_its_txlogs_make_of_it_in_the_order_of_their_writers(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FAN", 4)
    world = history(tmp_path, seed)
    assert world.checks > 15
    assert {"delete", "append", "replace"} <= {*world.lake.operations()}
