"""Long outages: catalog or storage is away for many ticks, or takes seconds a call; the backlog drains in batches."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon, Retention
from bookkeeper.errors import CatalogUnavailable, StorageUnavailable
from bookkeeper.serve.health import Health, health
from bookkeeper.serve.loop import TableLoop, tick_once
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Lake, Writes

DAEMON = Daemon(every=timedelta(seconds=1), backoff_most=timedelta(seconds=8), not_ready_after=3)


class Loop:
    """One table in the daemon's loop, second by second."""

    def __init__(self, lake: Lake, book: Callable[[], Any]) -> None:
        self.lake, self.slot = lake, TableLoop("events", book)

    def second(self) -> Health:
        tick_once(self.slot, DAEMON, self.lake.clock.move(seconds=1))
        return health(self.slot, DAEMON, self.lake.clock.now)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        (("load_table", "commit_table"), CatalogUnavailable),
        (("commit_table",), OSError),
        (("list folder/pending",), StorageUnavailable),
        (("replace folder/marks.json",), StorageUnavailable),
    ],
)
def test_after_a_long_outage_a_backlog_drains_in_bounded_commits_and_in_order(
    lake: Lake, parts: tuple[str, ...], error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bookkeeper")
    faults, writers = Faults(), [Writes(lake, f"w{number}") for number in range(3)]
    loop = Loop(lake, lambda: lake.book(faults, max_txlogs=20))
    assert loop.second().state == "ready"
    for part in parts:
        faults.on(part, BEFORE, error)
    began = lake.clock.now
    states = []
    for number in range(25):
        for writer in writers:
            writer.publish(f"{writer.name.writer}-{number:03d}")
        states.append(loop.second())
    assert (states[-1].state, states[-1].ready) == ("not ready", False)
    assert timedelta(0) < states[-1].since - began <= timedelta(seconds=11)  # since the first tick that had to ask
    assert states[-1].last_success is not None and states[-1].last_success <= states[-1].since
    assert loop.slot.failures <= 10  # 1, 2, 4, 8, 8, ... seconds apart
    faults.clear()
    recovered = next(number for number in range(10) if loop.second().state == "ready")
    assert recovered <= 8
    for _ in range(4):
        loop.second()
    assert lake.keys() == sorted(f"w{writer}-{number:03d}" for writer in range(3) for number in range(25))
    commits = [record.txlogs for record in caplog.records if record.action == "commit"]  # type: ignore[attr-defined]
    assert len(commits) in (3, 4) and max(commits) == 20  # one that could not be settled is not said
    said = [record.action for record in caplog.records if record.action in ("postpone", "not-ready", "recover")]  # type: ignore[attr-defined]
    assert said == ["postpone", "not-ready", "recover"]  # each once, however long it lasts


class Slow(Faults):
    """Every operation takes its time, on the test's clock."""

    def __init__(self, lake: Lake, seconds: float) -> None:
        super().__init__()
        self.lake, self.seconds = lake, seconds

    def around(self, operation: str, act: Callable[[], Any]) -> Any:
        self.lake.clock.move(seconds=self.seconds)
        return super().around(operation, act)


@pytest.mark.parametrize("seconds", [1, 10, 60])
def test_storage_and_catalog_that_take_seconds_a_call_cost_time_and_nothing_else(lake: Lake, seconds: int) -> None:
    writer, slow = Writes(lake), Slow(lake, seconds)
    loop = Loop(lake, lambda: lake.book(slow))
    for number in range(4):
        writer.publish(f"a{number}")
        found = loop.second()
        assert (found.state, lake.pending(), len(lake.keys())) == ("ready", [], number + 1)
    assert lake.rejected() == {}


def test_an_attempt_that_took_too_long_is_built_anew_and_never_sent(lake: Lake, writer: Writes) -> None:
    """Ten minutes old, it would carry a time that the table may have left behind."""
    writer.publish("a")
    faults = Faults()
    faults.between("create metadata", lambda: lake.clock.move(minutes=11))
    loop = Loop(lake, lambda: lake.book(faults))
    assert loop.second().state == "ready"
    assert (lake.keys(), lake.operations()) == (["a"], ["append"])
    assert faults.seen.count("commit_table") == 1


def test_storage_so_slow_that_no_attempt_is_young_enough_is_not_ready_and_says_why(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    slow = Slow(lake, 400)
    loop = Loop(lake, lambda: lake.book(slow))
    for _ in range(3):
        loop.second()
        lake.clock.move(seconds=10)
    found = health(loop.slot, DAEMON, lake.clock.now)
    assert (found.ready, len(lake.pending())) == (False, 1)
    assert "took longer" in found.why
    slow.seconds = 1
    lake.clock.move(seconds=10)
    assert (loop.second().state, lake.keys()) == ("ready", ["a"])


def test_retention_goes_on_where_reading_takes_minutes(tmp_path: Any) -> None:
    """The storage's clock is held against ours of that moment, not of the tick's beginning."""
    rule = Retention(keep=timedelta(days=1), every=timedelta(seconds=1), brake=1.0)
    lake = Lake(tmp_path / "lake", retention=rule)
    old, new = Writes(lake, "old"), Writes(lake, "new")
    old.publish("old", at=lake.clock.now - timedelta(days=2))
    lake.book(retention=Retention()).tick(lake.clock.move(seconds=1))
    for number in range(10):
        new.publish(f"new{number}")
    loop = Loop(lake, lambda: lake.book(Slow(lake, 20)))
    loop.second()
    assert lake.keys() == [f"new{number}" for number in range(10)]
