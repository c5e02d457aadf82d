"""
Which snapshots expire, and why the others stay.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation

from bookkeeper.config.settings import Reaper
from bookkeeper.contract import marks, marks_json
from bookkeeper.errors import ClockBehind, HistoryChanged, MarksLost, TableUnusable
from reaper.clock import check_table_clock
from reaper.consumer_guard import Hold
from reaper.expiry.expiry_plan import Plan, make_plan
from reaper.expiry.old_refs import old_refs
from tests.support.table_metadata import line, minute, ref, snapshot, table

TEN = Reaper(older_than=timedelta(minutes=10), retain_last=2)


def why(plan: Plan) -> dict[int, tuple[str, ...]]:
    return {number: kept.reasons for kept in plan.kept for number in kept.snapshots}


def test_an_empty_table_has_nothing_to_expire() -> None:
    assert make_plan(table(), TEN, minute(0)) == Plan((), ())


def test_parents_in_a_circle_are_walked_along_once() -> None:
    plan = make_plan(table(snapshot(1, 3), snapshot(2, 1), snapshot(3, 2)), TEN, minute(100))
    assert plan.expire == (1,)


def test_only_snapshots_older_than_the_limit_expire() -> None:
    plan = make_plan(table(*line(9)), TEN, minute(14))
    assert plan.expire == (1, 2, 3)
    assert why(plan)[4] == ("younger than 10 m",)


def test_the_last_ones_are_retained_however_old() -> None:
    plan = make_plan(table(*line(9)), TEN, minute(100))
    assert plan.expire == (1, 2, 3, 4, 5, 6, 7)
    assert why(plan)[8] == ("retain-last 2",)
    assert set(why(plan)[9]) == {"main", "retain-last 2", "newest append, or after it"}


def test_the_tables_own_properties_stand_in_for_missing_settings() -> None:
    own = {"history.expire.max-snapshot-age-ms": "60000", "history.expire.min-snapshots-to-keep": "5"}
    assert make_plan(table(*line(9), properties=own), Reaper(), minute(60)).expire == (1, 2, 3, 4)
    assert make_plan(table(*line(9), properties=own), TEN, minute(60)).expire == (1, 2, 3, 4, 5, 6, 7)
    assert make_plan(table(*line(9), properties=own), Reaper(retain_last=1), minute(9)).expire == (1, 2, 3, 4, 5, 6, 7)


def test_an_age_that_is_there_to_keep_all_for_ever_expires_nothing() -> None:
    """Iceberg's numbers are 64 bits wide: no date lies that long ago."""
    most = 2**63 - 1
    forever = {"history.expire.max-snapshot-age-ms": str(most)}
    assert make_plan(table(*line(9), properties=forever), Reaper(retain_last=1), minute(60)).expire == ()
    main = SnapshotRef.model_validate({"snapshot-id": 9, "type": "branch", "max-snapshot-age-ms": most})
    metadata = table(*line(9)).model_copy(update={"refs": {"main": main}})
    assert make_plan(metadata, Reaper(retain_last=1), minute(60)).expire == ()


def test_without_any_setting_ten_minutes_and_a_hundred_snapshots_are_kept() -> None:
    assert make_plan(table(*line(120)), Reaper(), minute(1000)).expire == tuple(range(1, 21))
    assert make_plan(table(*line(200)), Reaper(retain_last=1), minute(200)).expire == tuple(range(1, 190))


def test_a_property_that_is_no_number_is_refused() -> None:
    with pytest.raises(TableUnusable, match="min-snapshots"):
        make_plan(table(*line(9), properties={"history.expire.min-snapshots-to-keep": "many"}), TEN, minute(60))


def test_nothing_expires_while_gc_is_disabled() -> None:
    plan = make_plan(table(*line(9), properties={"gc.enabled": "False"}), TEN, minute(60))
    assert plan.expire == ()
    assert set(why(plan).values()) == {("gc.enabled=false",)}


def test_the_newest_append_stays_below_later_deletes_and_replaces() -> None:
    plan = make_plan(table(*line(9, "delete", "replace", "replace")), Reaper(retain_last=1), minute(100))
    assert plan.expire == (1, 2, 3, 4, 5)
    assert why(plan)[6] == why(plan)[7] == ("newest append, or after it",)


def test_a_tag_holds_its_snapshot_and_all_after_it_so_that_history_stays_contiguous() -> None:
    plan = make_plan(table(*line(9), keep=ref(3)), TEN, minute(100))
    assert plan.expire == (1, 2)
    assert why(plan)[3] == ("tag keep",)
    assert why(plan)[4] == ("after a kept one",)


def test_what_main_says_of_its_snapshots_counts_before_the_tables_properties_and_behind_the_settings() -> None:
    said = {"min-snapshots-to-keep": 5, "max-snapshot-age-ms": 30 * 60_000}
    main = SnapshotRef.model_validate({"snapshot-id": 9, "type": "branch", **said})
    metadata = table(*line(9), properties={"history.expire.min-snapshots-to-keep": "1"})
    metadata = metadata.model_copy(update={"refs": {"main": main}})
    assert make_plan(metadata, Reaper(), minute(31)).expire == ()
    assert make_plan(metadata, Reaper(), minute(34)).expire == (1, 2, 3)
    assert make_plan(metadata, Reaper(), minute(60)).expire == (1, 2, 3, 4)
    assert make_plan(metadata, TEN, minute(60)).expire == (1, 2, 3, 4, 5, 6, 7)


def test_a_branch_or_tag_is_old_by_its_own_age_or_else_by_the_tables() -> None:
    kept = SnapshotRef.model_validate({"snapshot-id": 3, "type": "tag", "max-ref-age-ms": 5 * 60_000})
    own = {"history.expire.max-ref-age-ms": str(7 * 60_000)}
    metadata = table(*line(9), kept=kept, other=ref(3), audit=ref(8, "branch"), properties=own)
    assert old_refs(metadata, TEN, minute(8)) == {}
    assert old_refs(metadata, TEN, minute(9)) == {"kept": 3}
    assert old_refs(metadata, TEN, minute(60)) == {"kept": 3, "other": 3, "audit": 8}
    assert old_refs(table(*line(9), other=ref(3)), TEN, minute(10**6)) == {}
    assert old_refs(table(*line(9), kept=kept, properties={"gc.enabled": "false"}), TEN, minute(60)) == {}


def test_a_branch_holds_main_from_where_it_forks_off() -> None:
    metadata = table(*line(6), snapshot(7, 3), snapshot(8, 7), head=6, audit=ref(8, "branch"))
    plan = make_plan(metadata, TEN, minute(100))
    assert plan.expire == (1, 2)
    assert why(plan)[3] == why(plan)[7] == why(plan)[8] == ("branch audit",)


def test_a_tag_beside_main_holds_only_its_own_snapshot() -> None:
    metadata = table(*line(6), snapshot(7, 3), snapshot(8, 7), head=6, keep=ref(8))
    plan = make_plan(metadata, TEN, minute(100))
    assert plan.expire == (1, 2, 3, 4, 7)
    assert why(plan)[8] == ("tag keep",)


def test_what_no_ref_leads_to_expires_by_age_alone() -> None:
    metadata = table(*line(6), snapshot(7, 3), snapshot(20, 7), head=6)
    plan = make_plan(metadata, TEN, minute(25))
    assert plan.expire == (1, 2, 3, 4, 7)
    assert why(plan)[20] == ("younger than 10 m",)


def test_the_newest_commit_of_a_stream_that_writes_stays_as_long_as_a_consumer_may_hold() -> None:
    query, job, connect = "spark.sql.streaming.queryId", "flink.job-id", "kafka.connect.offsets.control.group"
    said: dict[int, dict[str, str]] = {
        3: {query: "a", job: "x"},
        5: {query: "a"},
        6: {job: "x"},
        7: {connect: "{}", "kafka.connect.commit-id": "c"},
    }
    metadata = table(*(snapshot(number, number - 1 or None, **said.get(number, {})) for number in range(1, 13)))
    plan = make_plan(metadata, TEN, minute(100))
    assert plan.expire == (1, 2, 3, 4)
    assert why(plan)[5] == ("newest commit of a stream, or after it",)
    assert make_plan(metadata, TEN, minute(24 * 60 + 20)).expire == tuple(range(1, 11))

    without = table(*line(6), snapshot(7, 6, **said[7]), snapshot(8, 7), snapshot(9, 8), snapshot(10, 9))
    assert make_plan(without, TEN, minute(100)).expire == tuple(range(1, 7))


def test_a_staged_snapshot_waits_five_days_to_be_published() -> None:
    staged = snapshot(7, 6, **{"wap.id": "a"})
    metadata = table(*line(6), staged, head=6)
    assert 7 not in make_plan(metadata, TEN, minute(5 * 24 * 60)).expire
    assert why(make_plan(metadata, TEN, minute(60)))[7] == ("staged, younger than 5 d",)
    assert 7 in make_plan(metadata, TEN, minute(5 * 24 * 60 + 8)).expire
    later = Reaper(older_than=timedelta(days=9), retain_last=2)
    assert 7 not in make_plan(metadata, later, minute(8 * 24 * 60)).expire

    published = table(*line(6), staged, snapshot(8, 6, **{"published-wap-id": "a"}), head=8)
    assert 7 in make_plan(published, TEN, minute(60)).expire


def test_the_snapshot_of_the_marks_and_all_after_it_stay() -> None:
    own = {marks.PROPERTY: marks_json.dumps(marks.Marks("f", 4))}
    plan = make_plan(table(*line(9), properties=own), TEN, minute(100))
    assert plan.expire == (1, 2, 3)
    assert why(plan)[4] == ("the marks' snapshot, or after it",)


def test_nothing_expires_when_main_does_not_descend_from_the_marks() -> None:
    own = {marks.PROPERTY: marks_json.dumps(marks.Marks("f", 7))}
    with pytest.raises(HistoryChanged):
        make_plan(table(*line(6), snapshot(7, 3), head=6, properties=own), TEN, minute(100))


def test_all_of_main_stays_while_the_snapshot_of_the_marks_is_expired_by_others() -> None:
    own = {marks.PROPERTY: marks_json.dumps(marks.Marks("f", 4711))}
    plan = make_plan(table(*line(9), properties=own), TEN, minute(100), descends=lambda snapshot: snapshot == 4711)
    assert plan.expire == ()
    with pytest.raises(HistoryChanged):
        make_plan(table(*line(9), properties=own), TEN, minute(100))


def test_nothing_expires_while_summaries_show_marks_that_are_gone() -> None:
    marked = snapshot(10, 9, **{"bookkeeper.txlogs": "w:1-1"})
    with pytest.raises(MarksLost):
        make_plan(table(*line(9), marked), TEN, minute(100))


def test_a_consumer_holds_its_snapshot_and_all_after_it() -> None:
    plan = make_plan(table(*line(9)), TEN, minute(100), holds=(Hold("consumer q", 5),))
    assert plan.expire == (1, 2, 3, 4)
    assert why(plan)[5] == ("consumer q",)


def test_a_consumer_on_an_unknown_snapshot_holds_everything() -> None:
    metadata = table(*line(6), snapshot(7, 3), head=6)
    assert make_plan(metadata, TEN, minute(100), holds=(Hold("consumer q", 7),)).expire == ()
    assert make_plan(metadata, TEN, minute(100), holds=(Hold("consumer q", 4711),)).expire == ()


def test_a_clock_that_is_behind_is_refused() -> None:
    check_table_clock(table(*line(9)), minute(9) - timedelta(seconds=30))
    with pytest.raises(ClockBehind):
        check_table_clock(table(*line(9)), minute(9) - timedelta(seconds=31))


def test_the_brake_holds_when_most_would_go_from_a_table_that_looks_abandoned() -> None:
    a_day = minute(9) + timedelta(days=1, seconds=1)
    assert make_plan(table(*line(9)), TEN, a_day).brake
    assert make_plan(table(*line(9)), TEN, a_day - timedelta(seconds=2)).brake is None
    assert make_plan(table(*line(9)), Reaper(retain_last=5), a_day).brake is None


@st.composite
def histories(draw: st.DrawFn) -> TableMetadata:
    count = draw(st.integers(1, 12))
    parents = [draw(st.integers(max(0, number - 2), number - 1)) or None for number in range(1, count + 1)]
    kinds = draw(st.lists(st.sampled_from(["append", "delete", "replace"]), min_size=count, max_size=count))
    found = [
        snapshot(number, parent, kind) for number, (parent, kind) in enumerate(zip(parents, kinds, strict=True), 1)
    ]
    named = draw(st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, count), max_size=2))
    kind = draw(st.sampled_from(["tag", "branch"]))
    return table(*found, **{name: ref(number, kind) for name, number in named.items()})


@given(histories(), st.integers(0, 40), st.integers(1, 5), st.none() | st.integers(1, 12))
def test_main_stays_contiguous_and_refs_keep_their_snapshots(
    metadata: TableMetadata, at: int, retain: int, floor: int | None
) -> None:
    now = max(minute(at), datetime.fromtimestamp(metadata.last_updated_ms / 1000, UTC))
    plan = make_plan(metadata, Reaper(retain_last=retain), now, (Hold("q", floor),) if floor else ())
    left = {item.snapshot_id: item for item in metadata.snapshots if item.snapshot_id not in plan.expire}
    assert set(why(plan)) == set(left)
    assert {named.snapshot_id for named in metadata.refs.values()} <= set(left)
    main, current = [], metadata.refs["main"].snapshot_id
    parents = {item.snapshot_id: item.parent_snapshot_id for item in metadata.snapshots}
    while current:
        main.append(current)
        current = parents[current]
    kept = [number in left for number in main]
    assert all(newer or not older for newer, older in pairwise(kept))
    assert all(number in left for number in main[:retain])
    appends = [number for number in main if metadata.snapshot_by_id(number).summary.operation == Operation.APPEND]
    assert set(appends[:1]) <= set(left)
    assert floor is None or floor not in main or set(main[: main.index(floor) + 1]) <= set(left)
