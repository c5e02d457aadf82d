"""Which files go, as pure rules: cutoffs, times of commits, the brake."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, parse_transform
from pyiceberg.types import DateType, LongType, NestedField, TimestampType, TimestamptzType

from bookkeeper.config.settings import Retention
from bookkeeper.errors import ConfigInvalid
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.partition_tuples import FieldSummary
from bookkeeper.manifests.stats import Range
from bookkeeper.retention.rule import braked, rule, with_commit
from tests.support.manifest_lists import listed_manifest

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000


def schema(kind: object = None, required: bool = True) -> Schema:
    return Schema(
        NestedField(1, "n", LongType(), required=True),
        NestedField(7, "ts", kind or TimestamptzType(), required=required),
    )


def file(upper: datetime | None, nulls: int | None = 0, width: int = 8) -> tuple[int | None, bytes | None]:
    micros = int(upper.timestamp() * 1_000_000) if upper else 0
    return nulls, micros.to_bytes(width, "little", signed=True) if upper else None


def test_without_keep_and_max_age_nothing_ever_goes() -> None:
    assert rule(Retention(), schema(), (), NOW) is None


@pytest.mark.parametrize(("age", "goes"), [(HOUR, False), (HOUR + timedelta(microseconds=1), True)])
def test_a_file_goes_when_its_newest_row_is_older_than_keep(age: timedelta, goes: bool) -> None:
    found = rule(Retention(keep=HOUR), schema(), (), NOW)
    assert found is not None
    assert found.drops(*file(NOW - age), 1) is goes


@pytest.mark.parametrize("nulls", [1, None])
def test_a_file_that_may_hold_null_timestamps_stays(nulls: int | None) -> None:
    found = rule(Retention(keep=HOUR), schema(required=False), (), NOW)
    assert found is not None
    assert not found.drops(*file(NOW - 9 * HOUR, nulls), 1)


def test_a_required_column_needs_no_count_of_nulls() -> None:
    found = rule(Retention(keep=HOUR), schema(), (), NOW)
    assert found is not None
    assert found.drops(*file(NOW - 9 * HOUR, None), 1)


@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType(), DateType()])
def test_the_first_fitting_column_is_taken(kind: object) -> None:
    found = rule(Retention(keep=HOUR), schema(kind), (), NOW)
    assert found is not None
    assert found.column == 7


@pytest.mark.parametrize("column", ["n", "nothing"])
def test_a_column_that_cannot_serve_is_refused(column: str) -> None:
    with pytest.raises(ConfigInvalid, match=column):
        rule(Retention(keep=HOUR, column=column), schema(), (), NOW)


def test_files_committed_before_max_age_go_and_those_of_the_commit_after_stay() -> None:
    times = ((3, NOW_MS - 2 * HOUR_MS), (5, NOW_MS - HOUR_MS - 1), (9, NOW_MS - HOUR_MS))
    found = rule(Retention(max_age=HOUR), schema(), times, NOW)
    assert found is not None
    assert [found.drops(*file(NOW), sequence) for sequence in (3, 5, 6)] == [True, True, False]
    assert found.may_drop(Range(None, 5, 9))
    assert not found.may_drop(Range(None, 6, 9))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 48))
def test_noted_times_stay_few_and_never_let_a_file_live_much_too_long(gaps: list[int], hours: int) -> None:
    """Commits with pauses of 1 to 50 minutes; whatever is older than max-age and 1/64 of it is known to be old."""
    age, now_ms, times, commits = timedelta(hours=hours), NOW_MS, (), []
    span = hours * HOUR_MS
    for sequence, gap in enumerate(gaps, start=1):
        now_ms += gap * 60_000
        commits.append((sequence, now_ms))
        times = with_commit(times, sequence, now_ms, age)
        assert len(times) <= 2 * 64 + 3
        found = rule(Retention(max_age=age), schema(), times, datetime.fromtimestamp(now_ms / 1000, UTC))
        assert found is not None
        surely_old = [number for number, at in commits if at < now_ms - span - span // 64 - 50 * 60_000]
        still_young = [number for number, at in commits if at >= now_ms - span]
        assert all(found.drops(*file(NOW), number) for number in surely_old)
        assert not any(found.drops(*file(NOW), number) for number in still_young)


def test_times_are_not_noted_without_max_age() -> None:
    assert with_commit(((1, 1),), 2, 2, None) == ()


@pytest.mark.parametrize(
    ("doomed", "live", "brake", "held"),
    [(5, 10, 0.5, False), (6, 10, 0.5, True), (1, 1, 0.5, True), (10, 10, 1.0, False), (1, 10, 0.0, True)],
)
def test_the_brake_holds_above_its_share(doomed: int, live: int, brake: float, held: bool) -> None:
    assert braked(doomed, live, brake) is held


@given(
    st.integers(-400 * 24, 24),
    st.integers(-400 * 24, 24),
    st.sampled_from(["hour", "day", "month", "year", "identity"]),
)
def test_a_manifest_that_holds_a_file_past_the_cutoff_is_read(newest: int, cutoff: int, transform: str) -> None:
    made, when = rule(Retention(keep=-cutoff * HOUR), schema(), (), NOW), NOW + newest * HOUR
    assert made is not None
    micros = int(when.timestamp() * 1_000_000)
    spec = PartitionSpec(PartitionField(7, 1000, parse_transform(transform), "p"))
    value = spec.fields[0].transform.transform(TimestamptzType())(micros)
    listed = manifest(value.to_bytes(8 if transform == "identity" else 4, "little", signed=True))
    assert made.reaches(listed, spec, schema()) or not made.drops(*file(when), 1)
    if newest > cutoff + 400 * 24:
        assert not made.reaches(listed, spec, schema())


def manifest(lower: bytes, sequence: int = 1) -> ListedManifest:
    return listed_manifest(min_sequence_number=sequence, partitions=(FieldSummary(False, None, lower, lower),))


def test_a_manifest_is_read_for_files_that_go_by_their_commit() -> None:
    made = rule(Retention(keep=HOUR), schema(), (), NOW)
    assert made is not None
    spec, young = (
        PartitionSpec(PartitionField(7, 1000, DayTransform(), "p")),
        manifest((10**6).to_bytes(4, "little"), 5),
    )
    assert [made.up_to(sequence).reaches(young, spec, schema()) for sequence in (4, 5)] == [False, True]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([(9, "born"), (7, "ts")], id="added or moved before it"),
        pytest.param([(9, "born")], id="it was dropped"),
    ],
)
def test_without_a_named_column_retention_never_goes_on_by_another_one(fields: list[tuple[int, str]]) -> None:
    now = Schema(*(NestedField(number, name, TimestamptzType()) for number, name in fields), schema_id=1)
    with pytest.raises(ConfigInvalid, match=r"retention\.column must be named: 'born'.*'ts'"):
        rule(Retention(keep=HOUR), now, (), NOW, [schema(), now])
    named = rule(Retention(keep=HOUR, column="born"), now, (), NOW, [schema(), now])
    assert named is not None
    assert named.column == 9
