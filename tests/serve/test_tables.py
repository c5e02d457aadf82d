"""Tables come, change, go and end while the others work on, by a clock that stands still while a table works."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from bookkeeper.config.settings import Catalog, Daemon, Reaper, Settings, Table
from bookkeeper.discover.discovery import Listing
from bookkeeper.errors import CatalogUnavailable, HistoryChanged
from bookkeeper.leases.lease import NoLease
from bookkeeper.serve.health import health
from bookkeeper.serve.loop import TableLoop
from bookkeeper.serve.tables import CHANGING, HANGING, Tables, once
from bookkeeper.tick.tick import TickResult
from tests.serve.moments import NOW, Moments

SECOND = timedelta(seconds=1)
LAKE = Catalog()
DAEMON = Daemon(every=SECOND, backoff_most=timedelta(seconds=8))


class Lease(NoLease):
    """One that one holder has at a time."""

    held: ClassVar[set[str]] = set()

    def __init__(self, table: str) -> None:
        self.table, self.mine = table, False

    def hold(self, now: datetime) -> bool:
        if not self.mine and self.table in self.held:
            return False
        self.mine = True
        self.held.add(self.table)
        return True

    def release(self) -> None:
        if self.mine:
            self.held.discard(self.table)
        self.mine = False


class Book:
    """A bookkeeper whose ticks are noted, and last as long as `takes` says."""

    def __init__(self, world: "World", table: Table) -> None:
        self.world, self.table, self.lease = world, table, Lease(table.name)
        self.inbox = SimpleNamespace(discovery=Listing(), consumed=SimpleNamespace(wait=lambda: None))
        self.result = None

    def tick(self, now: datetime) -> TickResult:
        self.world.ticks.append((self.table.name, (now - NOW).total_seconds()))
        self.world.takes.get(self.table.name, lambda: None)()
        return TickResult()


class World:
    """Tables at work on a clock of the test's."""

    def __init__(self) -> None:
        Lease.held = set()
        self.moments, self.ticks, self.opened = Moments(), list[tuple[str, float]](), list[str]()
        #: what a table's tick does besides being noted
        self.takes: dict[str, Any] = {}
        self.tables = Tables(self._open, self.moments, self.moments.wish, self.moments.spawn)  # type: ignore[arg-type]

    def _open(self, settings: Settings, table: Table) -> Any:
        self.opened.append(table.name)
        return Book(self, table)

    def freeze(self) -> None:
        """A tick that waits for an answer which does not come."""
        self.moments.hang()

    def slow(self) -> None:
        self.moments.sleep(7.5)

    def of(self, name: str) -> list[float]:
        """The seconds at which it ticked."""
        return [at for table, at in self.ticks if table == name]


def settings(*names: str, daemon: Daemon = DAEMON, catalog: Catalog = LAKE, **changed: Any) -> Any:
    """Settings with these tables, and their tables."""
    tables = {name: Table(name, f"ns.{name}", **changed.get(name, {})) for name in names}
    made = Settings(catalog=catalog, bookkeeper=daemon, tables=tables)
    return made, list(tables.values())


@pytest.fixture
def world() -> World:
    return World()


def test_every_table_ticks_at_its_own_pace_and_the_first_ticks_are_spread(world: World) -> None:
    world.tables.change(*settings("a", "b", "c", "d"))
    world.moments.move(2.9)
    assert {name: world.of(name) for name in "abcd"} == {
        "a": [0, 1, 2],
        "b": [0.25, 1.25, 2.25],
        "c": [0.5, 1.5, 2.5],
        "d": [0.75, 1.75, 2.75],
    }
    assert world.tables.begun and [slot.table for slot in world.tables.slots] == list("abcd")


def raising(error: Exception) -> Any:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("broken", ["failing", "halted", "defect", "slow", "frozen"])
def test_no_table_starts_late_whatever_another_does(world: World, broken: str) -> None:
    world.takes["b"] = {
        "failing": raising(CatalogUnavailable("down")),
        "halted": raising(HistoryChanged("rolled back")),
        "defect": raising(KeyError("a bug")),
        "slow": world.slow,
        "frozen": world.freeze,
    }[broken]
    world.tables.change(*settings("a", "b", "c", "d"))
    world.moments.move(20)
    assert world.of("a") == list(range(21))
    assert world.of("c") == [number + 0.5 for number in range(20)]
    assert len(world.of("b")) < 20


def test_a_reload_adds_changes_and_removes_and_touches_no_other_table(world: World) -> None:
    world.tables.change(*settings("a", "b", "c"))
    world.moments.move(2.9)
    change = world.tables.change(*settings("a", "b", "d", b={"max_files": 7}))
    assert (change.added, change.changed, change.removed) == (["d"], ["b"], ["c"])
    world.moments.move(2)
    assert world.of("a") == [0, 1, 2, 3, 4]
    assert [at for at in world.of("c") if at >= 2.9] == []
    assert [at for at in world.of("b") if at >= 2.9] == [2.9, 3.9, 4.9]
    assert [at for at in world.of("d") if at > 2.9] == [3.4, 4.4]
    assert world.opened == ["a", "b", "c", "b", "d"]
    assert Lease.held == {"a", "b", "d"}
    assert [slot.table for slot in world.tables.slots] == ["a", "b", "d"]


def test_what_only_the_reaper_reads_touches_no_table_and_what_all_read_touches_all(world: World) -> None:
    world.tables.change(*settings("a", "b"))
    world.moments.move(1)
    assert world.tables.change(*settings("a", "b", b={"reaper": Reaper(retain_last=7)})).changed == []
    assert world.tables.change(*settings("a", "b", daemon=replace(DAEMON, reload=SECOND))).changed == ["a", "b"]
    world.moments.move(1)
    assert world.tables.change(*settings("a", "b", catalog=Catalog("other"))).changed == ["a", "b"]


def test_a_frozen_table_stops_neither_a_reload_nor_the_end_of_the_others(world: World) -> None:
    world.takes["b"] = world.freeze
    world.tables.change(*settings("a", "b", "c"))
    world.moments.move(1.5)
    change = world.tables.change(*settings("a", "c", "d"))
    assert (change.added, change.removed) == (["d"], ["b"])
    world.moments.move(2)
    assert world.of("d") == [1.5, 2.5, 3.5]
    left = list[list[str]]()
    world.moments.spawn(lambda: left.append(world.tables.end(timedelta(seconds=20))))
    world.moments.move(19)
    assert left == [] and Lease.held == {"b"}
    world.moments.move(1)
    assert left == [["b"]]


def test_the_end_waits_for_the_tick_that_is_under_way_and_gives_the_leases_back(world: World) -> None:
    world.takes["b"] = world.slow
    world.tables.change(*settings("a", "b"))
    world.moments.move(1)
    left = list[list[str]]()
    world.moments.spawn(lambda: left.append(world.tables.end(timedelta(seconds=20))))
    world.moments.move(6)
    assert left == []
    world.moments.move(1)
    assert left == [[]] and Lease.held == set()
    assert world.of("b") == [0.5]


def test_a_changed_table_waits_for_its_old_self_but_not_for_ever(world: World) -> None:
    world.takes["b"] = world.slow
    world.tables.change(*settings("a", "b"))
    world.moments.move(1)
    world.tables.change(*settings("a", "b", b={"max_files": 7}))
    world.moments.move(8)
    assert world.of("b") == [0.5, 8.0]
    world.takes["b"] = world.freeze
    world.moments.move(20)
    world.takes["b"] = lambda: None
    frozen_since = world.of("b")[-1]
    world.tables.change(*settings("a", "b", b={"folder": "/elsewhere"}))
    world.moments.move(CHANGING.total_seconds() + 1)
    assert world.opened.count("b") == 3
    assert world.of("b")[-1] == frozen_since and world.tables.slots[1].standby  # the old self has the lease still
    world.moments.thaw()
    world.moments.move(3)
    assert world.of("b")[-1] > frozen_since + CHANGING.total_seconds()


def test_a_frozen_table_is_seen_from_outside_and_the_others_are_ready(world: World) -> None:
    world.takes["b"] = world.freeze
    world.tables.change(*settings("a", "b"))
    world.moments.move(301)
    found = {slot.table: health(slot, DAEMON, world.moments.now) for slot in world.tables.slots}
    assert (found["a"].state, found["a"].ready) == ("ready", True)
    assert (found["b"].state, found["b"].ready) == ("hanging", False)


def test_a_loop_that_fails_outside_of_a_tick_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    broken = SimpleNamespace(wakes=raising(KeyError("a bug")), close=lambda: None)
    world.tables.change(*settings("a"))
    world.moments.move(0.5)
    slot = world.tables.slots[0]
    assert slot.book is not None
    slot.book.inbox.discovery = broken  # type: ignore[assignment]
    world.moments.move(4)
    slot.book.inbox.discovery = Listing()
    world.moments.move(10)
    assert world.of("a") == [0, 1, 9, 10, 11, 12, 13, 14]
    assert [getattr(record, "action", "") for record in caplog.records] == ["defect"]


def test_one_tick_of_each_does_not_wait_for_a_frozen_table() -> None:
    world = World()
    answer = threading.Event()
    world.takes["b"] = answer.wait
    slots = [TableLoop(name, lambda name=name: Book(world, Table(name))) for name in "abc"]  # type: ignore[misc]
    done = once(slots, DAEMON, lambda: NOW, patience=timedelta(seconds=3))
    assert [result is not None for result in done] == [True, False, True]
    assert slots[1].trouble == HANGING and Lease.held == {"b"}
    answer.set()
