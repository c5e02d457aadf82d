"""/healthz and /readyz: a dead loop is told from a catalog that is down, and late txlogs from a window."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.errors import CatalogUnavailable, StorageUnavailable
from bookkeeper.serve.loop import TableLoop
from tests.support.lake import Writes
from tests.support.watched import Taken, Watched


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched()
    made.add(tmp_path)
    return made


def test_a_table_whose_ticks_succeed_is_ready(watched: Watched) -> None:
    watched.turn()
    assert watched.ask("/readyz") == (200, {"ready": True, "tables": {"events": {"ready": True, "state": "ready"}}})
    assert watched.ask("/healthz") == (200, {"healthy": True, "tables": 1, "dead": {}})


def test_a_catalog_that_is_down_makes_not_ready_and_never_unhealthy(watched: Watched) -> None:
    watched.faults["events"].on("load_table", "before", CatalogUnavailable)
    watched.turn(30, seconds=8)
    status, said = watched.ask("/readyz")
    about = said["tables"]["events"]
    assert (status, said["ready"], about["state"]) == (503, False, "not ready")
    assert about["why"].startswith("CatalogUnavailable: ") and "reachable" in about["hint"]
    assert watched.ask("/healthz")[0] == 200
    watched.faults["events"].clear()
    watched.turn(seconds=8)
    assert watched.ask("/readyz")[0] == 200


def test_a_tick_that_does_not_end_is_not_ready_and_no_reason_to_be_killed(watched: Watched) -> None:
    slot = watched.slots[0]
    watched.turn()
    slot.ticking_since = watched.clock.now  # its thread is in the middle of it
    watched.clock.move(hours=1)
    status, said = watched.ask("/readyz")
    assert (status, said["tables"]["events"]["state"]) == (503, "hanging")
    assert watched.ask("/healthz")[0] == 200


def test_a_loop_that_turns_no_more_is_unhealthy_and_says_which_table(watched: Watched) -> None:
    watched.turn()
    watched.clock.move(seconds=60)
    assert watched.ask("/healthz")[0] == 200
    watched.clock.move(seconds=10)
    assert watched.ask("/healthz") == (503, {"healthy": False, "tables": 1, "dead": {"events": "no tick for 70 s"}})
    watched.turn()
    assert watched.ask("/healthz")[0] == 200


def test_a_frozen_table_that_changes_is_given_time_before_it_is_unhealthy(watched: Watched) -> None:
    watched.turn()
    watched.slots[0].ticking_since = watched.clock.now
    watched.clock.move(hours=1)
    assert watched.ask("/healthz")[0] == 200
    watched.slots[0] = TableLoop(
        "events", watched.slots[0].open, on_result=watched.metrics.on_tick
    )  # waits for its old self
    assert watched.ask("/healthz")[0] == 200
    watched.clock.move(seconds=60)
    assert watched.ask("/healthz")[0] == 200
    watched.clock.move(seconds=10)
    assert watched.ask("/healthz")[1]["dead"] == {"events": "no tick for 70 s"}


def test_a_pause_that_is_made_shorter_counts_from_then_on(watched: Watched) -> None:
    watched.settings = replace(watched.settings, every=timedelta(hours=1))
    watched.turn()
    watched.clock.move(minutes=50)
    watched.settings = replace(watched.settings, every=timedelta(seconds=1))
    watched.slots[0] = TableLoop("events", watched.slots[0].open, on_result=watched.metrics.on_tick)
    assert watched.ask("/healthz")[0] == 200


def test_a_defect_in_counting_is_said_once_and_kills_no_daemon(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.turn()
    watched.of().history = None  # type: ignore[assignment]
    watched.turn(200)
    assert watched.ask("/healthz")[0] == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["metrics failed"]


def test_a_table_that_never_had_a_turn_is_unhealthy_after_a_while(watched: Watched) -> None:
    assert watched.ask("/healthz")[0] == 200
    watched.clock.move(minutes=2)
    assert watched.ask("/healthz")[0] == 503


def test_a_txlog_that_is_too_old_makes_not_ready_though_ticks_succeed(watched: Watched) -> None:
    writer = Writes(watched.lakes["events"])
    watched.turn()
    watched.faults["events"].on("read folder/pending", "before", StorageUnavailable)
    writer.publish("a")
    watched.turn(10, seconds=29)
    assert watched.ask("/readyz")[0] == 200
    watched.turn(seconds=29)
    status, said = watched.ask("/readyz")
    about = said["tables"]["events"]
    assert (status, about["state"]) == (503, "ready")
    assert about["why"].startswith("the oldest txlog has been pending for 5 min: read folder/pending")
    assert "bookkeeper pending --table events" in about["hint"]
    watched.faults["events"].clear()
    watched.turn()
    assert watched.ask("/readyz")[0] == 200


def test_a_standby_is_ready(tmp_path: Path) -> None:
    watched = Watched()
    Writes(watched.add(tmp_path, lease=Taken())).publish("a")
    watched.turn(5, minutes=3)
    assert watched.ask("/readyz")[0] == watched.ask("/healthz")[0] == 200


def test_one_table_that_is_not_ready_is_named_among_those_that_are(tmp_path: Path) -> None:
    watched = Watched()
    for name in ("one", "two"):
        watched.add(tmp_path, name)
    watched.faults["two"].on("load_table", "before", CatalogUnavailable)
    watched.turn(10, seconds=8)
    status, said = watched.ask("/readyz")
    assert status == 503
    assert {name: about["ready"] for name, about in said["tables"].items()} == {"one": True, "two": False}
    assert watched.value("bookkeeper_table_ready", table="one") == 1
    assert watched.value("bookkeeper_table_ready", table="two") == 0
