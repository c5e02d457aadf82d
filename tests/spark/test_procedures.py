"""
The rules of a queue that maintenance must not break.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.table.refs import SnapshotRef

from bookkeeper.config.settings import Reaper
from bookkeeper.errors import NotPossible
from spark_jobs.procedures import (
    check_main,
    check_orphan_age,
    check_txlogs,
    expire_before,
    expire_snapshots,
    expired,
    needed_by_others,
    rewrite_data_files,
)
from spark_jobs.table import Snapshot, ancestors
from tests.support.table_metadata import line, minute, snapshot, table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass
class Listed:
    modified: datetime


def ms(moment):
    return round(moment.timestamp() * 1000)


def chain(*snapshots):
    """
    Snapshots an hour apart, newest last; each as `operation` or `operation+summary-key`.
    """
    made = []
    for number, text in enumerate(snapshots):
        operation, _, key = text.partition("+")
        parent = number if number else None
        made.append(Snapshot(number + 1, parent, ms(NOON + number * HOUR), operation, by_bookkeeper=bool(key)))
    return made


def test_main_history_follows_parents_and_leaves_branches_out():
    snapshots = [*chain("append", "append"), Snapshot(9, 1, ms(NOON + 5 * HOUR), "append")]

    assert [snapshot.snapshot_id for snapshot in ancestors(snapshots, head=2)] == [2, 1]
    assert ancestors(snapshots, head=None) == []


def test_main_history_ends_where_snapshots_were_expired():
    assert [snapshot.snapshot_id for snapshot in ancestors(chain("append", "append", "append")[1:], 3)] == [3, 2]


def test_the_newest_append_is_never_expired_however_quiet_the_table():
    history = ancestors(chain("append", "append", "replace", "delete"), 4)

    before = expire_before(history, NOON + timedelta(days=9))

    assert [snapshot.snapshot_id for snapshot in expired(history, before, retain_last=1)] == [1]


def test_the_snapshot_that_the_marks_came_with_is_never_expired():
    history = ancestors(chain("append", "append+bookkeeper.txlogs", "append", "append"), 4)

    before = expire_before(history, NOON + timedelta(days=9))

    assert [snapshot.snapshot_id for snapshot in expired(history, before, retain_last=1)] == [1]


def test_what_streams_committed_last_and_what_is_staged_is_never_expired():
    said = {3: {"spark.sql.streaming.queryId": "q"}}
    main = [snapshot(number, number - 1 or None, **said.get(number, {})) for number in range(1, 7)]
    late = minute(60)
    found = needed_by_others(table(*main), Reaper(), late)
    assert (found, expire_before([], late, found)) == ([minute(3)], minute(3))
    staged = table(*main, snapshot(7, 6, **{"wap.id": "a"}), head=6)
    assert needed_by_others(staged, Reaper(), late) == [minute(3), minute(7)]
    assert needed_by_others(staged, Reaper(), late + timedelta(days=6)) == []


def test_what_main_says_of_its_snapshots_takes_nothing_that_is_needed():
    history = ancestors([Snapshot(at, at - 1 or None, ms(minute(at)), "append") for at in range(1, 7)], 6)
    says = {"snapshot-id": 6, "type": "branch", "max-snapshot-age-ms": 60_000, "min-snapshots-to-keep": 2}
    metadata = table(*line(6)).model_copy(update={"refs": {"main": SnapshotRef.model_validate(says)}})
    check_main(metadata, history, minute(5), minute(60))
    check_main(metadata, history, minute(4), minute(4.5))
    with pytest.raises(NotPossible, match="what main says"):
        check_main(metadata, history, minute(4), minute(60))


def test_an_earlier_cutoff_stays_as_it_is():
    assert expire_before(ancestors(chain("append", "append"), 2), NOON - HOUR) == NOON - HOUR


def test_the_last_ones_are_retained_whatever_their_age():
    history = ancestors(chain("append", "append", "append"), 3)

    assert [s.snapshot_id for s in expired(history, NOON + timedelta(days=9), retain_last=2)] == [1]


def test_times_are_written_with_their_zone():
    india = datetime.fromisoformat("2026-01-01T17:30:00.5+05:30")

    sql = expire_snapshots("lake.a.t", india, 5)

    assert sql == (
        "CALL lake.system.expire_snapshots(table => 'lake.a.t', "
        "older_than => TIMESTAMP '2026-01-01 12:00:00.500000 UTC', retain_last => 5, stream_results => true)"
    )


def test_compaction_without_a_time_column_has_no_filter():
    assert "where" not in rewrite_data_files("lake.a.t", None, NOON)
    assert "where => \"ts < TIMESTAMP '2026-01-01 12:00:00" in rewrite_data_files("lake.a.t", "ts", NOON)


@pytest.mark.parametrize("hours", [0, 0.5, 1, 23])
def test_orphans_younger_than_a_day_are_refused(hours):
    with pytest.raises(NotPossible, match="refused"):
        check_orphan_age(hours * HOUR, orphan_age=HOUR)


def test_orphans_younger_than_the_writers_promise_are_refused():
    with pytest.raises(NotPossible, match="at least 3 d"):
        check_orphan_age(timedelta(days=2), orphan_age=timedelta(days=3))
    check_orphan_age(timedelta(days=3), orphan_age=timedelta(days=3))


def test_orphans_are_refused_while_a_rejected_txlog_names_files():
    with pytest.raises(NotPossible, match="1 objects in rejected"):
        check_txlogs([], [Listed(NOON)], NOON, most=HOUR)


def test_orphans_are_refused_only_for_pending_txlogs_that_are_old():
    check_txlogs([Listed(NOON - HOUR)], [], NOON, most=HOUR)
    with pytest.raises(NotPossible, match="1 pending"):
        check_txlogs([Listed(NOON - HOUR), Listed(NOON - 2 * HOUR)], [], NOON, most=HOUR)
