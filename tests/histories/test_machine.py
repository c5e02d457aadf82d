"""Any history of appends, retention, merges, expiry, foreign commits and changes leaves what a plain model says."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.histories import pyiceberg_changes, readers
from tests.histories.world import SPECS, World

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
BOOKS = st.integers(0, 1)
HOURS = st.sampled_from([0, 0, 1, 3, 7, None])
COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=3)


class Histories(RuleBasedStateMachine):
    """All programs that change a table, in any order."""

    duckdb: Any = None

    @initialize(spec=st.sampled_from(sorted(SPECS)), seed=st.integers(0, 99))
    def begin(self, spec: str, seed: int) -> None:
        self.root = mkdtemp(dir=RAM, prefix="bookkeeper-test-")
        self.world = World(Path(self.root) / "lake", SPECS[spec], seed)

    @rule(counts=COUNTS, hours=HOURS, writer=BOOKS, hold=st.booleans())
    def publish(self, counts: list[int], hours: float | None, writer: int, hold: bool) -> None:
        self.world.publish(counts, hours, writer, hold)

    @rule(counts=COUNTS, hours=HOURS, book=BOOKS)
    def commit(self, counts: list[int], hours: float | None, book: int) -> None:
        self.world.publish(counts, hours)
        self.world.tick(book=book)

    @rule()
    def release(self) -> None:
        self.world.release()

    @rule()
    def refused(self) -> None:
        self.world.refused()

    @rule(minutes=st.sampled_from([1, 5, 60, 200]), book=BOOKS)
    def wait(self, minutes: float, book: int) -> None:
        self.world.tick(minutes, book)

    @rule(book=BOOKS)
    def restart(self, book: int) -> None:
        self.world.restart(book)

    @rule(choice=st.integers(0, 9), most=st.integers(1, 5), book=BOOKS)
    def rewrite(self, choice: int, most: int, book: int) -> None:
        self.world.rewrite(choice, most, book)

    @rule(choice=st.integers(0, 9), most=st.integers(1, 5))
    def publish_rewrite(self, choice: int, most: int) -> None:
        self.world.publish_rewrite(choice, most)

    @rule()
    def give_back(self) -> None:
        self.world.give_back()

    @rule()
    def reap(self) -> None:
        self.world.reap()

    @rule(rows=st.integers(1, 2), hours=HOURS)
    def foreign_append(self, rows: int, hours: float | None) -> None:
        pyiceberg_changes.append(self.world, rows, hours)

    @rule(number=st.integers(0, 9))
    def foreign_delete(self, number: int) -> None:
        pyiceberg_changes.take_out(self.world, number)

    @rule()
    def foreign_property(self) -> None:
        pyiceberg_changes.set_property(self.world)

    @rule(what=st.sampled_from(sorted(pyiceberg_changes.CHANGES)))
    def schema(self, what: str) -> None:
        pyiceberg_changes.change_schema(self.world, what)

    @rule(what=st.sampled_from(sorted(pyiceberg_changes.FIELDS)))
    def add_field(self, what: str) -> None:
        pyiceberg_changes.add_field(self.world, what)

    @rule()
    def remove_field(self) -> None:
        pyiceberg_changes.remove_field(self.world)

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        if hasattr(self, "world"):
            self.world.look()
            assert [*readers.pyiceberg_plans(self.world), *readers.pyiceberg_tables(self.world)] == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                assert list(complaints_of_readers(self.world, self.duckdb)) == []
            finally:
                self.world.lake.catalog.engine.dispose()
                shutil.rmtree(self.root)


def complaints_of_readers(world: World, duckdb: Any) -> Iterator[str]:
    """pyiceberg's scans, DuckDB's."""
    yield from readers.pyiceberg_scans(world)
    if duckdb is not None:
        yield from readers.duckdb_scans(world, duckdb)
        yield from readers.duckdb_plans(world, duckdb)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Rejected txlogs are part of the game."""
    logging.getLogger("bookkeeper").setLevel(logging.ERROR)
    yield
    logging.getLogger("bookkeeper").setLevel(logging.NOTSET)


@pytest.mark.filterwarnings("ignore")  # pyiceberg's own, about what strangers do
def test_any_history_leaves_what_a_plain_model_says_for_every_reader(duckdb: Any) -> None:
    Histories.duckdb = duckdb
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=int(os.environ.get("HISTORIES", "12")),
            stateful_step_count=30,
            # A failing history is printed as it is; HISTORIES=100 looks further, and shrinks what it finds.
            phases=[Phase.generate, *([Phase.shrink] if "HISTORIES" in os.environ else [])],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
