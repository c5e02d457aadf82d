"""
Expiry by Spark: it is asked for no more than the plan, and an error there loses nothing.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from bookkeeper.errors import NotPossible, Retry
from bookkeeper.streams.registry import COMMAND, Registry, spark
from reaper.expiry.spark_engine import by_command
from tests.support.checkpoints import Query, offset
from tests.support.reaper_lake import REAPER, Lake


@pytest.fixture
def on_spark(lake: Lake) -> Lake:
    """Nine snapshots, and the engine is Spark."""
    for _ in range(9):
        lake.append()
    lake.settings = replace(lake.settings, reaper=replace(REAPER, engine="spark"))
    return lake


def as_iceberg(lake: Lake, before: datetime, retain_last: int) -> None:
    """What the procedure removes: older than that, and not among so many."""
    history = sorted(lake.table.metadata.snapshots, key=lambda item: item.timestamp_ms)
    limit = int(before.timestamp() * 1000)
    going = [item.snapshot_id for item in history[: len(history) - retain_last] if item.timestamp_ms < limit]
    lake.catalog.commit_table(lake.table, (), (RemoveSnapshotsUpdate(snapshot_ids=going),))


def test_iceberg_is_asked_for_exactly_the_plan(on_spark: Lake) -> None:
    planned = on_spark.outlook().plan.expire
    history = on_spark.history()
    done = on_spark.reap(expire_on_spark=lambda before, last: as_iceberg(on_spark, before, last))
    assert done.snapshots == len(planned) == 7
    assert on_spark.history() == [number for number in history if number not in planned]
    assert not (on_spark.folder / "reaper/journal.json").exists()


def test_a_consumer_is_kept_from_expiry_there_too(on_spark: Lake, tmp_path: Path) -> None:
    ids = on_spark.history()
    query = Query(tmp_path / "cp").begin(offset(ids[0])).done(offset(ids[3], 1))
    registry = Registry(on_spark.stores(on_spark.now)(f"file://{on_spark.folder}"))
    registry.add(spark("live", query.url, on_spark.now, by=COMMAND))
    asked: list[tuple[datetime, int]] = []
    on_spark.reap(expire_on_spark=lambda before, last: asked.append((before, last)))
    third = on_spark.table.metadata.snapshot_by_id(ids[3])
    assert asked == [(datetime.fromtimestamp(third.timestamp_ms / 1000, UTC), 6)]


def test_nothing_to_expire_starts_no_spark(lake: Lake) -> None:
    lake.append()
    lake.settings = replace(lake.settings, reaper=replace(REAPER, engine="spark"))
    assert lake.reap().snapshots == 0


def test_without_a_command_for_spark_it_is_refused(on_spark: Lake) -> None:
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
