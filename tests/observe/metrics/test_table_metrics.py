"""What a scraper is told: counted turn by turn, of every table that is there."""

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import Histogram
from prometheus_client.metrics_core import GaugeMetricFamily

from bookkeeper.config.settings import Settings
from bookkeeper.console.exposition import text
from bookkeeper.contract.known_table import pending_of
from bookkeeper.contract.rewrite import key_of
from bookkeeper.errors import CatalogUnavailable, CommitUnknown, StorageUnavailable
from bookkeeper.observe.http import problems
from bookkeeper.observe.metrics.prometheus import buckets_and_sum
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.serve.open import open_bookkeeper
from tests.support.compactor import encoded, live, published
from tests.support.lake import Writes
from tests.support.watched import SETTINGS, Taken, Watched, samples
from tests.support.work import work


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched()
    made.add(tmp_path)
    return made


@pytest.fixture
def writer(watched: Watched) -> Writes:
    return Writes(watched.lakes["events"])


def test_a_commit_is_counted_with_what_it_added_and_how_long_it_took(watched: Watched, writer: Writes) -> None:
    writer.publish("a", "b")
    writer.publish("c")
    watched.turn(seconds=2)
    counted = {
        name: watched.value(f"bookkeeper_{name}_committed_total") for name in ("txlogs", "files", "rows", "bytes")
    }
    assert counted == {"txlogs": 2, "files": 2, "rows": 3, "bytes": pytest.approx(2400, rel=0.1)}
    assert watched.value("bookkeeper_commits_total", outcome="committed") == 1
    assert watched.value("bookkeeper_visibility_seconds_count") == 2
    assert watched.value("bookkeeper_visibility_seconds_sum") == pytest.approx(4, abs=0.01)
    assert watched.value("bookkeeper_visibility_seconds_bucket", le="1.5") == 0
    assert watched.value("bookkeeper_visibility_seconds_bucket", le="+Inf") == 2
    assert watched.value("bookkeeper_commit_seconds_count") == 1
    assert watched.value("bookkeeper_last_commit_timestamp_seconds") == watched.clock.now.timestamp()
    table = ("snapshots", "manifests", "data_files", "rows", "writers")
    assert [watched.value(f"bookkeeper_{name}") for name in table] == [1, 1, 2, 3, 1]
    assert 200 < (watched.value("bookkeeper_marks_bytes") or 0) < 400


def test_after_a_restart_the_page_knows_when_the_table_was_committed_to(watched: Watched, writer: Writes) -> None:
    writer.publish("a")
    watched.turn(seconds=2)
    committed = watched.clock.now
    again = Watched(watched.clock)
    again.slots.append(TableLoop("events", watched.lakes["events"].book, on_result=again.metrics.on_tick))
    again.turn(seconds=60)
    (told,) = again.ask("/status.json")[1]["tables"]
    assert abs(datetime.fromisoformat(told["last_commit"]) - committed) < timedelta(seconds=1)
    assert again.value("bookkeeper_commits_total", outcome="committed") == 0


def test_rewrites_are_counted_with_what_they_replaced_and_by_why_they_were_rejected(
    watched: Watched, writer: Writes
) -> None:
    for key in "abc":
        writer.publish(key)
        watched.turn()
    lake, before = watched.lakes["events"], watched.value("bookkeeper_data_files")
    published(lake, live(lake))
    published(lake, live(lake), record_count=99)
    rewrite_id, data = encoded(lake, live(lake))
    lake.put(key_of(rewrite_id), data.replace(b"bookkeeper.version\x021", b"bookkeeper.version\x022"))
    watched.turn(seconds=70)
    assert (before, watched.value("bookkeeper_data_files")) == (3, 1)
    names = ("rewrites_committed", "rewrite_files_replaced", "rewrite_files_added")
    assert [watched.value(f"bookkeeper_{name}_total") for name in names] == [1, 3, 1]
    assert 500 < (watched.value("bookkeeper_rewrite_bytes_total") or 0) < 3000
    # It overlaps with the good one where the disk dates it later.
    errors = ("RewriteUnfit", "RewriteOverlaps")
    assert sum(watched.value("bookkeeper_rewrites_rejected_total", error=error) or 0 for error in errors) == 1
    assert watched.value("bookkeeper_files_dropped_total") == 0
    # A newer version is held: it stays pending.
    assert watched.value("bookkeeper_rewrites_pending") == 1
    watched.turn(5, seconds=70)
    assert watched.value("bookkeeper_oldest_rewrite_age_seconds") == pytest.approx(420, abs=1)
    assert watched.value("bookkeeper_rewrites_committed_total") == 1
    lake.folder.store.delete_many([key_of(rewrite_id)])
    watched.turn(seconds=70)
    assert watched.value("bookkeeper_rewrites_pending") == watched.value("bookkeeper_oldest_rewrite_age_seconds") == 0


def test_the_page_shows_rewrites_and_says_when_they_wait_or_cannot_keep_up(
    watched: Watched, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "MORE_FILES", 4)
    writer.publish("first")
    watched.turn()
    lake = watched.lakes["events"]
    for number in range(4):
        writer.publish(f"{number}")
        writer.publish(f"{number} too")
        watched.turn(seconds=60)
    assert watched.troubles() == []  # rewriting is not on
    published(lake, live(lake)[:2])
    watched.turn(seconds=70)
    (said,) = watched.troubles()
    assert (said["alert"], said["what"]) == (
        "BookkeeperRewritesBehind",
        "rewriting cannot keep up: 8 live files, 7 more than half an hour ago",
    )
    (shown,) = watched.ask("/status.json")[1]["tables"]
    about = {"committed": 1, "replaced_files": 2, "added_files": 1, "rows": 2, "pending": 0, "rejected": 0}
    assert {name: shown["rewrites"][name] for name in about} == about
    published(lake, live(lake))
    rewrite_id, data = encoded(lake, live(lake))
    lake.put(key_of(rewrite_id), data.replace(b"bookkeeper.version\x021", b"bookkeeper.version\x022"))
    watched.turn(seconds=70)
    assert watched.troubles() == []
    watched.turn(15, seconds=60)
    (said,) = watched.troubles()
    assert (said["alert"], said["what"]) == (
        "BookkeeperRewritesWait",
        "1 rewrite pending, the oldest for 16 min",
    )


def test_ticks_are_counted_by_how_they_ended(watched: Watched, writer: Writes) -> None:
    watched.turn()
    writer.publish("a")
    watched.turn()
    watched.faults["events"].on("list", "before", StorageUnavailable, times=1)
    watched.turn(3)
    found = {key: watched.value("bookkeeper_ticks_total", outcome=key) for key in ("idle", "committed", "failed")}
    assert found == {"idle": 3, "committed": 1, "failed": 1}


def test_what_waits_is_known_and_grows_older_while_the_catalog_is_down(watched: Watched, writer: Writes) -> None:
    watched.turn()
    watched.faults["events"].on("load_table", "before", CatalogUnavailable)
    watched.clock.move(seconds=10)
    writer.publish("a")
    watched.turn(seconds=1)
    watched.clock.move(seconds=100)
    assert watched.value("bookkeeper_txlogs_pending") == 1
    assert watched.value("bookkeeper_oldest_txlog_age_seconds") == pytest.approx(101, abs=0.1)
    watched.faults["events"].clear()
    watched.turn(seconds=60)
    assert watched.value("bookkeeper_txlogs_pending") == watched.value("bookkeeper_oldest_txlog_age_seconds") == 0


def test_a_table_that_is_halted_still_says_what_waits(watched: Watched, writer: Writes) -> None:
    writer.publish("a")
    watched.turn()
    lake = watched.lakes["events"]
    table = lake.table()
    with table.transaction() as change:
        change.remove_properties("bookkeeper.marks")
    writer.publish("b")
    watched.turn(seconds=60)
    assert watched.value("bookkeeper_table_halted") == 1
    assert watched.value("bookkeeper_table_ready") == 0
    assert watched.value("bookkeeper_txlogs_pending") == 1


def test_a_refused_commit_is_counted_though_the_tick_went_well(watched: Watched, writer: Writes) -> None:
    writer.publish("a")
    watched.faults["events"].on("commit_table", "after", CommitUnknown, times=1)
    watched.turn()
    assert watched.value("bookkeeper_commits_total", outcome="refused") == 1
    assert watched.value("bookkeeper_rows_committed_total") is not None


def test_a_rejected_txlog_is_counted_by_its_error_and_is_there_until_it_is_gone(
    watched: Watched, writer: Writes
) -> None:
    watched.lakes["events"].put("pending/w1.x.txlog.avro", b"x")
    watched.turn()
    assert watched.value("bookkeeper_rejections_total", error="NameMismatch") == 1
    assert watched.value("bookkeeper_rejected_txlogs") == 1
    watched.look()
    assert watched.value("bookkeeper_rejected_txlogs") == 1
    watched.lakes["events"].folder.store.delete_many(["rejected/w1.x.txlog.avro"])
    watched.look()
    assert watched.value("bookkeeper_rejected_txlogs") == 0


def test_a_txlog_that_was_deleted_is_a_hole(watched: Watched, writer: Writes) -> None:
    gone = writer.publish("a")
    writer.publish("b")
    watched.lakes["events"].folder.delete([gone])
    watched.turn()
    assert watched.value("bookkeeper_holes_total") == 1


def test_a_standby_reports_no_metrics_of_the_table_that_another_works_on(tmp_path: Path) -> None:
    watched = Watched()
    watched.add(tmp_path, lease=Taken())
    watched.turn()
    told = {name for name, labels in watched.samples() if ("table", "events") in labels}
    assert watched.value("bookkeeper_table_standby") == watched.value("bookkeeper_table_ready") == 1
    assert not told & {"bookkeeper_txlogs_pending", "bookkeeper_oldest_txlog_age_seconds", "bookkeeper_snapshots"}
    assert watched.value("bookkeeper_ticks_total", outcome="standby") == 1
    assert watched.value("bookkeeper_last_success_timestamp_seconds") == 0


def test_the_series_of_a_removed_table_go_away_and_those_of_others_go_on(tmp_path: Path) -> None:
    watched = Watched()
    for name in ("one", "two"):
        Writes(watched.add(tmp_path, name)).publish("a")
    watched.turn()
    watched.slots = [slot for slot in watched.slots if slot.table == "two"]
    assert {dict(labels).get("table") for _, labels in watched.samples()} <= {"two", None}
    assert watched.value("bookkeeper_rows_committed_total", table="two") == 1
    one = TableLoop("one", watched.lakes["one"].book, on_result=watched.metrics.on_tick)
    watched.slots.append(one)
    assert watched.value("bookkeeper_rows_committed_total", table="one") == 0  # a new table begins at nought


def test_labels_are_what_they_are_whatever_is_in_them() -> None:
    family = GaugeMetricFamily("x", "a\nb\\", labels=["table"])
    nasty = 'a"b\\c\nd{}=,<b>'
    family.add_metric([nasty], 1)
    assert samples(text([family])) == {("x", frozenset({("table", nasty)})): 1.0}


def test_a_histogram_puts_a_value_below_the_bound_it_does_not_exceed() -> None:
    made = Histogram("x", "", buckets=(1, 2.5), registry=None)
    for value in (0.5, 1.0, 2.0, 99):
        made.observe(value)
    assert buckets_and_sum(made) == ([("1", 2), ("2.5", 3), ("+Inf", 4)], 102.5)


def test_what_a_turn_costs_to_count_is_nothing_beside_a_tick(watched: Watched, writer: Writes) -> None:
    """A tick that commits runs 150,000 lines; to count it takes 400, however many were counted before."""
    writer.publish("a")
    tick = work(watched.turn)
    slot, figures = watched.slots[0], watched.of()
    for _ in range(2000):
        counting = work(lambda: figures.note(slot, 0.01, watched.clock.now))
    assert counting < tick / 100


def test_an_idle_table_goes_on_being_counted_without_a_clock(watched: Watched) -> None:
    tick_once(watched.slots[0], SETTINGS, watched.clock.move(seconds=1))
    assert watched.value("bookkeeper_tick_seconds_count") == 1


def test_a_window_is_no_reason_to_be_not_ready(tmp_path: Path) -> None:
    watched = Watched()
    lake = watched.add(tmp_path, window=timedelta(minutes=30))
    Writes(lake).publish("a")
    watched.turn(seconds=600)
    assert watched.ask("/readyz")[0] == 200
    watched.turn(seconds=1700)
    assert watched.value("bookkeeper_txlogs_pending") == 0


@pytest.mark.parametrize("where", ["known", "unknown"])
def test_what_is_pending_before_a_table_that_cannot_be_opened_is_told_or_is_unknown(
    watched: Watched, where: str
) -> None:
    lake, slot = watched.lakes["events"], watched.slots[0]
    settings = Settings(lake.catalog_settings, SETTINGS, tables={"events": lake.settings})
    slot.open = lambda: open_bookkeeper(settings, lake.settings, lake.clock)
    properties = lake.catalog_settings.properties if where == "known" else {}
    slot.waiting = partial(pending_of, properties, lake.settings)
    writer = Writes(lake)
    writer.publish("a")
    lake.catalog.drop_table("demo.events")

    watched.turn()
    watched.turn(seconds=70)
    writer.publish("b")
    watched.turn(seconds=70)

    expected = 2 if where == "known" else None
    (table,) = watched.ask("/status.json")[1]["tables"]
    assert (table["state"], table["pending"]) == ("halted", expected)
    assert watched.value("bookkeeper_txlogs_pending", table="events") == expected
    age = watched.value("bookkeeper_oldest_txlog_age_seconds", table="events")
    assert age is None if where == "unknown" else (age or 0) > 60
