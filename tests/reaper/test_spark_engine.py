"""
Expiry by Spark: it is asked for no more than the plan, and an error there loses nothing.
"""

import json
import shlex
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from bookkeeper.config.load import load
from bookkeeper.errors import NotPossible, Retry
from bookkeeper.history.main_history import MainHistory
from bookkeeper.history.registry import COMMAND, Registry, spark
from reaper.cli.compaction import compactions
from reaper.expiry.spark_engine import by_command
from reaper.schedule import COMPACT, ON_SPARK, PACED
from reaper.spark_command import job_runner
from tests.support.checkpoints import Query, offset
from tests.support.reaper_lake import REAPER, ReaperLake


@pytest.fixture
def on_spark(lake: ReaperLake) -> ReaperLake:
    """Nine snapshots, and the engine is Spark."""
    for _ in range(9):
        lake.append()
    lake.settings = replace(lake.settings, reaper=replace(REAPER, engine="spark"))
    return lake


def as_iceberg(lake: ReaperLake, before: datetime, retain_last: int) -> None:
    """What the procedure removes: older than that, and not among so many."""
    history = sorted(lake.table().metadata.snapshots, key=lambda item: item.timestamp_ms)
    limit = int(before.timestamp() * 1000)
    main = MainHistory(lake.table().metadata).snapshots
    stays = {item.snapshot_id for item in main[max(0, len(main) - retain_last) :]}
    going = [item.snapshot_id for item in history if item.timestamp_ms < limit and item.snapshot_id not in stays]
    lake.catalog.commit_table(lake.table(), (), (RemoveSnapshotsUpdate(snapshot_ids=going),))


def test_iceberg_is_asked_for_exactly_the_plan(on_spark: ReaperLake) -> None:
    planned = on_spark.outlook().plan.expire
    history = on_spark.history()
    done = on_spark.reap(expire_on_spark=lambda before, last: as_iceberg(on_spark, before, last))
    assert done.snapshots == len(planned) == 7
    assert on_spark.history() == [number for number in history if number not in planned]
    assert not (on_spark.folder_path / "reaper/journal.json").exists()


def test_a_consumer_is_kept_from_expiry_there_too(on_spark: ReaperLake, tmp_path: Path) -> None:
    ids = on_spark.history()
    query = Query(tmp_path / "cp").begin(offset(ids[0])).done(offset(ids[3], 1))
    registry = Registry(on_spark.stores(on_spark.now)(f"file://{on_spark.folder_path}"))
    registry.add(spark("live", query.url, on_spark.now, by=COMMAND))
    asked: list[tuple[datetime, int]] = []
    on_spark.reap(expire_on_spark=lambda before, last: asked.append((before, last)))
    third = on_spark.table().metadata.snapshot_by_id(ids[3])
    assert asked == [(datetime.fromtimestamp(third.timestamp_ms / 1000, UTC), 6)]


def test_a_young_snapshot_beside_main_stays(on_spark: ReaperLake) -> None:
    """Staged by another program a moment before main's newest, which alone is kept on main."""
    on_spark.settings = replace(on_spark.settings, reaper=replace(REAPER, engine="spark", retain_last=1))
    on_spark.now += timedelta(hours=1)
    staged = on_spark.append(branch="staged", parent=on_spark.history()[-1])
    on_spark.drop_ref("staged")
    newest = on_spark.append()
    done = on_spark.reap(
        now=on_spark.now + timedelta(minutes=5), expire_on_spark=lambda before, last: as_iceberg(on_spark, before, last)
    )
    assert done.snapshots
    assert {staged, newest} <= {*on_spark.history()}
    on_spark.reap(expire_on_spark=lambda before, last: as_iceberg(on_spark, before, last))
    assert on_spark.history() == [newest]


@pytest.mark.parametrize("says", [{"min_snapshots_to_keep": 2}, {}], ids=["number", "age alone"])
def test_what_main_says_of_its_snapshots_takes_nothing_that_a_consumer_needs(
    on_spark: ReaperLake, tmp_path: Path, says: dict[str, int]
) -> None:
    """Iceberg's procedure goes by it, whatever it is told."""
    ids = on_spark.history()
    query = Query(tmp_path / "cp").begin(offset(ids[0])).done(offset(ids[3], 1))
    registry = Registry(on_spark.stores(on_spark.now)(f"file://{on_spark.folder_path}"))
    registry.add(spark("live", query.url, on_spark.now, by=COMMAND))
    asked = list[int]()
    on_spark.ref("main", ids[-1], "branch", max_snapshot_age_ms=1000, **says)
    with pytest.raises(NotPossible, match="consumer live"):
        on_spark.reap(expire_on_spark=lambda before, last: asked.append(last))
    assert asked == []
    registry.remove("live")
    on_spark.reap(expire_on_spark=lambda before, last: asked.append(last))
    assert asked == [2]


def test_without_main_what_is_beside_it_goes(lake: ReaperLake) -> None:
    lake.settings = replace(lake.settings, reaper=replace(REAPER, engine="spark"))
    for _ in range(3):
        lake.append(branch="staged")
    lake.drop_ref("staged")
    newest = lake.history()[-1]
    lake.reap(expire_on_spark=lambda before, last: as_iceberg(lake, before, last))
    assert lake.history() == [newest], "the newest append"


def test_nothing_to_expire_starts_no_spark(lake: ReaperLake) -> None:
    lake.append()
    lake.settings = replace(lake.settings, reaper=replace(REAPER, engine="spark"))
    assert lake.reap().snapshots == 0


def test_without_a_command_for_spark_it_is_refused(on_spark: ReaperLake) -> None:
    with pytest.raises(NotPossible, match="spark"):
        on_spark.reap()
    assert len(on_spark.history()) == 9


def test_a_job_that_fails_is_tried_again_by_the_next_run() -> None:
    now = datetime(2050, 1, 1, tzinfo=UTC) + timedelta(hours=1)
    failing = by_command([sys.executable, "-c", "import sys; sys.exit('no cluster')"], "b.toml", "events")
    with pytest.raises(Retry, match="no cluster"):
        failing(now, 3)
    with pytest.raises(Retry, match="could not be started"):
        by_command(["/nonexistent/spark-submit"], None, "events")(now, 3)


def test_the_job_gets_its_arguments(tmp_path: Path) -> None:
    received = tmp_path / "received"
    code = f"import sys; open({str(received)!r}, 'w').write(' '.join(sys.argv[1:]))"
    by_command([sys.executable, "-c", code], "b.toml", "events")(datetime(2050, 1, 1, tzinfo=UTC), 3)
    assert received.read_text() == (
        "expire-snapshots --table events --config b.toml --before 2050-01-01T00:00:00+00:00 --retain-last 3"
    )


def test_reaper_run_starts_the_job_that_compacts_on_spark(tmp_path: Path) -> None:
    received = tmp_path / "received"
    code = f"import sys; open({str(received)!r}, 'w').write(' '.join(sys.argv[1:]))"
    config = tmp_path / "b.toml"
    config.write_text(
        f"[reaper]\nspark-command = {json.dumps([sys.executable, '-c', code])}\n"
        '[tables.events.compaction]\nengine = "spark"\ntarget-file-size = "64MiB"\nquiet = "30m"\n'
    )
    settings = load(str(config), {})
    with ExitStack() as leases:
        [compacts] = compactions(settings, [settings.tables["events"]], None, lambda: False, leases)
    assert compacts.every == timedelta(minutes=30)
    compacts.act(datetime(2050, 1, 1, tzinfo=UTC))
    words = f"rewrite-data-files --table events --config {config} --min-input-files 16 --target-file-size 67108864"
    assert received.read_text() == f"{words} --wait 1m"
    from spark_jobs.maintain import main

    assert main.commands["rewrite-data-files"].make_context("x", received.read_text().split()[1:])


def test_the_job_and_what_it_started_end_by_a_stop(tmp_path: Path) -> None:
    ended, ready = tmp_path / "ended", tmp_path / "ready"
    child = f"""
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path({str(ended)!r}).touch()
    sys.exit(0)
signal.signal(signal.{signal.SIGTERM.name}, end)
pathlib.Path({str(ready)!r}).touch()
time.sleep(600)
"""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{sys.executable} -c {shlex.quote(child)} &\nwait\n")
    script.chmod(0o755)
    began = time.monotonic()
    job_runner([str(script)], None, "events", ready.exists)("rewrite-data-files")
    while not ended.exists() and time.monotonic() - began < 120:
        time.sleep(0.05)
    assert ended.exists()


def test_a_job_that_may_be_stopped_and_is_not_runs_to_its_end() -> None:
    failing = job_runner([sys.executable, "-c", "import sys; sys.exit('no cluster')"], None, "events", lambda: False)
    with pytest.raises(Retry, match="ended with 1: no cluster"):
        failing("rewrite-data-files")


def test_tables_that_take_long_by_their_settings_have_threads_of_their_own(tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    config.write_text(
        '[tables.a.compaction]\nengine = "spark"\n'
        '[tables.b.compaction]\nbytes-per-second = "1MiB"\n[tables.c.compaction]\nengine = "own"\n'
    )
    settings = load(str(config), {})
    with ExitStack() as leases:
        rounds = compactions(settings, [*settings.tables.values()], None, lambda: False, leases)
    found = {item.table: item.thread for item in rounds}
    assert found == {"a": ON_SPARK, "b": PACED, "c": COMPACT}
