"""
Real tables of one catalog, one of them broken: by a clock that stands still while a table works, no other is late.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Catalog, Daemon, Settings, Table
from bookkeeper.errors import CatalogUnavailable
from bookkeeper.serve.health import health
from bookkeeper.serve.tables import Tables
from bookkeeper.tick.tick import Bookkeeper
from tests.serve.moments import Moments
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Lake, Writes

DAEMON = Daemon(every=timedelta(seconds=1), backoff_most=timedelta(seconds=4))
HEALTHY = ("t0", "t1", "t3")
BROKEN = "t2"
SECONDS = 6


class Lakes:
    """Four tables at work, and when each began its ticks."""

    def __init__(self, root: Path) -> None:
        self.moments = Moments(datetime.now(UTC))
        self.lakes = {name: Lake(root, clock=self.moments, name=name, identifier=f"demo.{name}") for name in self.names}  # type: ignore[arg-type]
        self.writers = {name: Writes(lake) for name, lake in self.lakes.items()}
        self.faults = Faults()
        self.starts: dict[str, list[float]] = {name: [] for name in self.names}
        self.began = self.moments.now
        self.tables = Tables(self._open, self.moments, self.moments.wish, self.moments.spawn)  # type: ignore[arg-type]

    names = tuple(sorted((*HEALTHY, BROKEN)))

    def _open(self, _: Settings, table: Table) -> Bookkeeper:
        book = self.lakes[table.name].book(self.faults if table.name == BROKEN else None)
        tick = book.tick

        def noted(now: Any) -> Any:
            self.starts[table.name].append((now - self.began).total_seconds())
            return tick(now)

        book.tick = noted  # type: ignore[method-assign]
        return book

    def run(self, seconds: int) -> None:
        """Lets every writer publish once a second, between two ticks."""
        tables = {name: Table(name, f"demo.{name}") for name in self.names}
        self.tables.change(Settings(Catalog(), bookkeeper=DAEMON, tables=tables), list(tables.values()))
        for number in range(seconds):
            self.moments.move(0.1)
            for name, writer in self.writers.items():
                if name in HEALTHY or self.lakes[name].root.exists():
                    writer.publish(f"{name}-{number}")
            self.moments.move(0.9)


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path)


def dropped(lakes: Lakes) -> None:
    lakes.faults.between("list", lambda: lakes.lakes[BROKEN].catalog.drop_table(f"demo.{BROKEN}"))


def failing_catalog(lakes: Lakes) -> None:
    lakes.faults.on("commit_table", BEFORE, lambda _: CatalogUnavailable("no answer"))


def poison(lakes: Lakes) -> None:
    for number in range(100):
        lakes.lakes[BROKEN].put(f"pending/w9.{number:036x}.0000000001.txlog.avro", b"Obj\x01" + bytes(1000))


def frozen_storage(lakes: Lakes) -> None:
    lakes.faults.between("read folder/pending", lakes.moments.hang)


def frozen_catalog(lakes: Lakes) -> None:
    lakes.faults.between("commit_table", lakes.moments.hang)


def slow_storage(lakes: Lakes) -> None:
    for _ in range(3):
        lakes.faults.between("folder/", lambda: lakes.moments.sleep(3.7))


@pytest.mark.parametrize("broken", [dropped, failing_catalog, poison, frozen_storage, frozen_catalog, slow_storage])
def test_no_healthy_table_starts_a_tick_late(lakes: Lakes, broken: Any) -> None:
    broken(lakes)
    lakes.run(SECONDS)
    first = {name: number / 4 for number, name in enumerate(lakes.names)}
    for name in HEALTHY:
        assert lakes.starts[name] == [first[name] + second for second in range(SECONDS + (first[name] == 0))]
        assert lakes.lakes[name].keys() == sorted(f"{name}-{number}" for number in range(SECONDS))
    states = {slot.table: health(slot, DAEMON, lakes.moments.now).state for slot in lakes.tables.slots}
    assert {states[name] for name in HEALTHY} == {"ready"}
    if broken is not poison:
        assert len(lakes.starts[BROKEN]) < SECONDS or states[BROKEN] == "halted"
