"""
Consumers and the reaper: what they need stays; one that holds too long is named first and cut off later.
"""

import json
import socket
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import CommitConflict
from bookkeeper.history import consumer_state
from bookkeeper.history.registry import COMMAND, Registry, reader, spark
from reaper.metrics import Metrics
from tests.support.checkpoints import Query, offset
from tests.support.reaper_faults import Faults
from tests.support.reaper_lake import REAPER, ReaperLake

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Stage:
    """Nine snapshots a minute apart, and a query on the third."""

    def __init__(self, root: Path) -> None:
        self.lake = lake = ReaperLake(root)
        for _ in range(9):
            lake.append()
        self.ids = lake.history()
        self.query = Query(root / "cp").begin(offset(self.ids[0])).done(offset(self.ids[2], 1))
        self.registry = Registry(lake.stores(lake.now)(f"file://{lake.folder_path}"))

    def register(self, **how: Any) -> None:
        self.registry.add(spark("live", self.query.url, self.lake.now, by=COMMAND, **how))

    def hold(self, **limits: Any) -> None:
        self.lake.settings = replace(self.lake.settings, reaper=replace(REAPER, **limits))

    def left(self) -> list[int]:
        """Numbers of the snapshots that are left, the oldest is 0."""
        return [self.ids.index(number) for number in self.lake.history() if number in self.ids]

    def warned(self) -> Any:
        path = self.lake.folder_path / "reaper/warned.json"
        return json.loads(path.read_text())["since"] if path.exists() else None


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was said of consumers, once each."""
    return [(item.action, item.levelname) for item in caplog.records if item.action.startswith("consumer")]


def test_a_registered_query_keeps_its_snapshot_and_all_after_it(stage: Stage) -> None:
    stage.register()
    kept = {why for item in stage.lake.outlook().plan.kept for why in item.reasons}
    assert "consumer live" in kept
    assert stage.lake.reap().snapshots == 2
    assert stage.left() == [2, 3, 4, 5, 6, 7, 8]
    assert stage.lake.reachable() <= stage.lake.disk().keys()


def test_a_consumer_of_the_configuration_counts_as_well(stage: Stage) -> None:
    stage.lake.settings = replace(stage.lake.settings, consumers=({"name": "live", "checkpoint": stage.query.url},))
    stage.lake.reap()
    assert stage.left()[0] == 2


def test_a_query_that_moves_on_lets_go(stage: Stage) -> None:
    stage.register()
    stage.lake.reap()
    stage.query.done(offset(stage.ids[6], 1))
    stage.lake.reap()
    assert stage.left() == [6, 7, 8]


def test_what_is_planned_and_not_committed_counts_as_not_read(stage: Stage) -> None:
    stage.register()
    stage.query.plan(offset(stage.ids[7], 1))
    stage.lake.reap()
    assert stage.left()[0] == 2


def test_an_available_now_query_keeps_its_first_offset(stage: Stage) -> None:
    stage.register(available_now=True)
    stage.lake.reap()
    assert stage.left()[0] == 0


def test_a_reader_with_a_time_to_live_holds_until_it_is_over(stage: Stage) -> None:
    now = stage.lake.now
    stage.registry.add(reader("export", stage.ids[4], now, 2 * HOUR))
    stage.lake.reap(now=now + HOUR)
    assert stage.left()[0] == 4
    stage.lake.reap(now=now + 2 * HOUR)
    assert stage.left() == [7, 8]


@pytest.mark.parametrize("trouble", ["never started", "unreadable", "gone", "record"])
def test_a_consumer_that_cannot_be_read_holds_everything_and_is_named(
    stage: Stage, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.register()
    if trouble == "record":
        (stage.lake.folder_path / "consumers/live.json").write_text("{")
    if trouble == "unreadable":
        stage.query.write("offsets/0", "v1")
    if trouble == "never started":
        (stage.query.root / "commits/0").unlink()
        (stage.query.root / "sources/0/offsets/0").unlink()
    if trouble == "gone":
        stage.query.root.rename(stage.query.root.with_name("elsewhere"))
    assert not stage.lake.reap()
    assert stage.left() == list(range(9))
    reasons = {why for item in stage.lake.outlook().plan.kept for why in item.reasons}
    assert any(why.startswith("consumer live (") for why in reasons)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_hold": timedelta(hours=10)},
        {"max_hold": timedelta(days=99), "max_hold_snapshots": 4},
        {"max_hold": timedelta(days=99), "max_hold_bytes": 2000},
    ],
)
def test_a_consumer_is_named_a_while_before_it_is_cut_off(
    stage: Stage, limits: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    stage.register()
    stage.hold(**limits)
    late = stage.lake.now + timedelta(hours=10)

    stage.lake.reap(now=late)
    assert (stage.left()[0], said(caplog)) == (2, [("consumer-at-risk", "WARNING")])
    assert stage.warned() == {"live": late.isoformat()}
    stage.lake.reap(now=late + HOUR - MINUTE)
    assert stage.left()[0] == 2
    caplog.clear()

    stage.lake.reap(now=late + HOUR)
    # Once it is cut off, nothing is kept for it any more.
    assert stage.left() == [7, 8]
    assert ("consumer-cut-off", "ERROR") in said(caplog)
    assert {item.consumer for item in caplog.records if item.action.startswith("consumer")} == {"live"}
    caplog.clear()

    stage.lake.reap(now=late + 2 * HOUR)
    assert (said(caplog), stage.warned()) == ([("consumer-stuck", "WARNING")], {})


def test_a_consumer_that_catches_up_has_the_whole_notice_again(stage: Stage) -> None:
    stage.register()
    stage.hold(max_hold=timedelta(hours=10))
    late = stage.lake.now + timedelta(hours=10)
    stage.lake.reap(now=late)
    stage.query.done(offset(stage.ids[8], 1))
    stage.lake.reap(now=late + HOUR)
    assert stage.warned() == {}


def test_a_notice_that_cannot_be_read_is_given_anew(stage: Stage) -> None:
    stage.register()
    stage.hold(max_hold=timedelta(hours=10))
    late = stage.lake.now + timedelta(hours=10)
    stage.lake.reap(now=late)
    (stage.lake.folder_path / "reaper/warned.json").write_text("{")
    stage.lake.reap(now=late + 2 * HOUR)
    assert stage.left()[0] == 2


def test_a_notice_by_a_clock_that_was_ahead_is_over_like_any_other(stage: Stage) -> None:
    """That run had nothing to expire; but until its time had come no limit held for the consumer."""
    stage.register()
    stage.hold(max_hold=timedelta(hours=10))
    late = stage.lake.now + timedelta(hours=10)
    stage.lake.reap(now=late - 5 * HOUR)
    assert (stage.left()[0], stage.warned()) == (2, None)
    stage.lake.reap(now=late + timedelta(days=365))
    stage.lake.reap(now=late)
    assert (stage.left()[0], stage.warned()) == (2, {"live": late.isoformat()})
    stage.lake.reap(now=late + HOUR)
    assert stage.left() == [7, 8]


def test_a_plan_writes_no_notice(stage: Stage) -> None:
    stage.register()
    stage.hold(max_hold=timedelta(hours=10))
    stage.lake.outlook(stage.lake.now + timedelta(hours=20))
    assert stage.warned() is None


def change_before_the_commit(stage: Stage, change: Any) -> None:
    lake = stage.lake
    faults = Faults().before("commit_table", change)
    # A conflict makes the reaper try again, and then it must see what has changed.
    faults.before("commit_table", lambda: None)
    now = lake.now + HOUR
    lake.reap(catalog=faults.catalog(lake.opened()), open_store=faults.stores(now), now=now)


def busy(stage: Stage, change: Any) -> Any:
    """`change`, and an append that makes the commit a conflict."""

    def act() -> None:
        change()
        stage.lake.append()

    return act


@pytest.mark.parametrize("change", ["went back", "registered", "unreadable"])
def test_consumers_are_asked_again_before_each_attempt_to_commit(stage: Stage, change: str) -> None:
    if change != "registered":
        stage.register()

    def act() -> None:
        if change == "went back":
            stage.query.done(offset(stage.ids[1], 1))
        elif change == "registered":
            stage.register()
        else:
            stage.query.write("offsets/0", "v1")

    with pytest.raises(CommitConflict, match="consumer live"):
        change_before_the_commit(stage, busy(stage, act))
    assert stage.left() == list(range(9))


def test_a_consumer_that_reads_on_meanwhile_disturbs_nothing(stage: Stage) -> None:
    stage.register()

    def act() -> None:
        stage.lake.append()
        stage.query.done(offset(stage.lake.history()[-1], 1))

    change_before_the_commit(stage, act)
    assert stage.left()[0] >= 2


def test_a_folder_whose_registry_does_not_answer_expires_nothing(stage: Stage) -> None:
    stage.register()
    faults = Faults()
    stores = faults.stores(stage.lake.now + HOUR)

    def broken(url: str) -> Any:
        store = stores(url)
        inner = store.list

        def listing(prefix: str) -> Any:
            if prefix == "consumers/":
                raise OSError("gone")
            return inner(prefix)

        store.list = listing  # type: ignore[method-assign]
        return store

    with pytest.raises(OSError, match="gone"):
        stage.lake.reap(open_store=broken)
    assert stage.left() == list(range(9))


def test_the_snapshot_of_a_batch_stays_while_it_is_renewed_and_for_max_hold_after_it(stage: Stage) -> None:
    stage.hold(max_hold=HOUR)
    query = spark("live", Query(stage.query.root.with_name("new")).url, stage.lake.now, by=COMMAND)

    def reaped(renewed: datetime, now: datetime) -> list[int]:
        stage.registry.add(replace(query, begins_with=stage.ids[3], renewed=renewed))
        stage.lake.reap(now=now)
        return stage.left()

    began = stage.lake.now
    for hours in (1, 5, 9):
        assert reaped(began + hours * HOUR, began + hours * HOUR + MINUTE) == [3, 4, 5, 6, 7, 8]
    ended = began + 9 * HOUR
    for spent in (50, 59):
        assert reaped(ended, ended + spent * MINUTE) == [3, 4, 5, 6, 7, 8]
    assert stage.warned() is not None
    assert reaped(ended, ended + 61 * MINUTE) == [7, 8]


def test_a_scraper_sees_what_was_done(stage: Stage, tmp_path: Path) -> None:
    stage.register()
    stage.hold(max_hold=timedelta(hours=10))
    figures, now = Metrics(str(tmp_path / "reaper.prom")), stage.lake.now + timedelta(hours=9)

    figures.note("events", stage.lake.reap(now=now), now)
    stage.query.done(offset(stage.ids[8], 1))
    figures.note("other", stage.lake.reap(now=now), now)

    text = (tmp_path / "reaper.prom").read_text()
    gauges = {line.split(" ")[0]: line.split(" ")[-1] for line in text.splitlines() if not line.startswith("#")}
    assert float(gauges['reaper_snapshots_expired_total{table="events"}']) == 2
    assert float(gauges['reaper_snapshots_expired_total{table="other"}']) == 5
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["reaper.prom"]


ODD = (
    b"[" * 60_000,
    b'{"version":1,"snapshot":5,"until":"0001-01-01T00:00:00+14:00"}',
    b'{"version":1,"snapshot":5,"until":"9999-12-31T23:59:59-14:00"}',
    b'{"version":1,"checkpoint":"http://127.0.0.1:%d/cp"}',
    b'{"version":1,"checkpoint":"ftp://127.0.0.1:%d/cp"}',
    b'{"version":1,"checkpoint":"zip://cp::http://127.0.0.1:%d/cp"}',
)


@pytest.mark.parametrize("record", ODD, ids=range(len(ODD)))
def test_an_odd_record_holds_what_an_unreadable_one_holds_and_stops_no_expiry(
    stage: Stage, record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named and later cut off like any other, and no request goes to where it points."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        odd = record.replace(b"%d", b"%d" % server.getsockname()[1])
        Path(stage.lake.folder_path, "consumers").mkdir()
        Path(stage.lake.folder_path, "consumers", "odd.json").write_bytes(odd)
        stage.hold(max_hold=timedelta(minutes=5))
        assert stage.lake.reap().snapshots == 0
        assert said(caplog) == [("consumer-at-risk", "WARNING")]
        assert stage.lake.reap(now=stage.lake.now + 2 * HOUR).snapshots > 0
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_checkpoint_whose_storage_hangs_stops_no_expiry(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as unreadable after a while, and no thread is left waiting for it a second time."""
    monkeypatch.setattr(consumer_state._LOOKS, "patience", timedelta(seconds=0.2))
    stage.register()
    released, asked = threading.Event(), list[str]()

    def hanging(after: timedelta) -> Any:
        stores = Faults().stores(stage.lake.now + after)

        def opened(url: str) -> Any:
            if url == stage.query.url:
                asked.append(url)
                released.wait(30)
            return stores(url)

        return opened

    stage.hold(max_hold=timedelta(minutes=5))
    assert stage.lake.reap(now=stage.lake.now + HOUR, open_store=hanging(HOUR)).snapshots == 0
    assert stage.lake.reap(now=stage.lake.now + 3 * HOUR, open_store=hanging(3 * HOUR)).snapshots > 0
    assert len(asked) == 1
    released.set()
