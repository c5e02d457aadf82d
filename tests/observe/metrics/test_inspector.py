"""Which tables are inspected, and when: a table that is frozen takes nothing from the others."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.observe.metrics.inspector import MOST_AT_ONCE, Inspector
from bookkeeper.serve.loop import TableLoop
from tests.support.watched import Watched


class Frozen:
    """Eight tables that are inspected all the time; there is no answer from those whose name begins with `frozen`."""

    def __init__(self, root: Path) -> None:
        self.watched, self.thaw = Watched(), threading.Event()
        self.begun: queue.Queue[str] = queue.Queue()
        for number in range(4):
            self.watched.add(root, f"frozen{number}")
            self.watched.add(root, f"fine{number}")
        self.watched.turn()
        self.inspector = Inspector(self.watched.metrics, self.watched.clock, every=timedelta(milliseconds=40))
        self.look, self.inspector.inspect = self.inspector.inspect, self.held  # type: ignore[method-assign]

    def held(self, slot: Any, metrics: Any) -> None:
        self.begun.put(slot.table)
        if slot.table.startswith("frozen"):
            self.thaw.wait(60)
        self.look(slot, metrics)

    def until(self, *tables: str) -> None:
        """Each of these is looked at, from now on."""
        wanted = set(tables)
        while wanted:
            wanted.discard(self.begun.get(timeout=30))

    def slots(self, kind: str) -> list[TableLoop]:
        return [slot for slot in self.watched.slots if slot.table.startswith(kind)]


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Frozen]:
    made = Frozen(tmp_path)
    yield made
    made.inspector.stop()
    made.thaw.set()


def test_a_table_that_is_frozen_keeps_no_other_from_being_looked_at(frozen: Frozen) -> None:
    frozen.watched.slots[:] = [*frozen.slots("fine"), *frozen.slots("frozen")[:1]]
    frozen.inspector.start()
    frozen.until("frozen0")
    frozen.until("fine0", "fine1", "fine2", "fine3")
    assert frozen.watched.of("frozen0").inspection.at is None


def test_as_many_frozen_tables_as_are_looked_at_at_once_keep_no_other_from_it_for_long(frozen: Frozen) -> None:
    frozen.inspector.start()
    frozen.until("frozen0", "frozen1", "frozen2", "frozen3")
    frozen.watched.clock.move(minutes=2)
    frozen.until("fine0", "fine1", "fine2", "fine3")
    frozen.until("fine0", "fine1", "fine2", "fine3")


def test_a_table_that_was_frozen_taken_out_and_put_back_is_looked_at(frozen: Frozen) -> None:
    before, others = frozen.slots("frozen")[0], frozen.slots("fine")
    frozen.watched.slots[:] = [before, *others]
    frozen.inspector.start()
    frozen.until("frozen0")
    frozen.watched.slots[:] = [replace(before), *others]
    frozen.until("frozen0")


def test_no_more_are_looked_at_at_once_than_may_be(frozen: Frozen) -> None:
    for _ in range(3):
        for slot in [*frozen.slots("frozen"), *frozen.slots("fine")]:
            frozen.inspector._begin(slot, frozen.watched.of(slot.table))
    assert {frozen.begun.get(timeout=30) for _ in range(MOST_AT_ONCE)} == {f"frozen{number}" for number in range(4)}
    assert frozen.begun.empty()
