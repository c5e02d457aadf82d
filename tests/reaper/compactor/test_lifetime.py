"""Files are rewritten together only when retention would drop them at about the same time."""

from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.config.settings import Retention
from bookkeeper.contract.retention_column import RetentionColumn
from reaper.compactor.choose_files import LiveFile
from reaper.compactor.lifetime import SHARE, Lifetime, Times, lifetime

NOW = datetime(2050, 1, 1, tzinfo=UTC)
EPOCH = datetime.fromtimestamp(0, UTC)
MICRO, MS, HOUR, DAY = timedelta(microseconds=1), timedelta(milliseconds=1), timedelta(hours=1), timedelta(days=1)
COLUMN = RetentionColumn(1, MICRO, 8, True)


def file(number: int = 1, newest: datetime | None = None) -> LiveFile:
    at = None if newest is None else (newest - EPOCH) // MICRO
    return LiveFile(f"{number}", "PARQUET", 0, (), 1, 10, number, number, None, at)


def made(settings: Retention, times: Times = (), sizes: dict[int, int] | None = None) -> Lifetime:
    return lifetime(settings, COLUMN, times, sizes or {1: 1}, NOW)


def test_without_retention_all_files_may_be_one() -> None:
    kept = made(Retention())
    assert kept.span(file(1, NOW - 400 * DAY)) == kept.span(file(10**6, NOW))
    assert not kept.ends_soon(file(1, NOW - 400 * DAY))


def test_with_keep_a_row_lives_at_most_a_sixteenth_longer() -> None:
    kept = made(Retention(keep=DAY))
    found: dict[object, list[datetime]] = {}
    for minutes in range(0, 24 * 60, 7):
        at = NOW - timedelta(minutes=minutes)
        found.setdefault(kept.span(file(1, at)), []).append(at)
    assert SHARE <= len(found) <= SHARE + 1
    assert all(max(times) - min(times) < DAY / SHARE for times in found.values())


def test_spans_are_fixed_so_that_a_file_that_is_rewritten_again_stays_in_its_own() -> None:
    one, other = file(1, NOW - 9 * HOUR), file(2, NOW - 8 * HOUR)
    for hours in range(8):
        kept = lifetime(Retention(keep=DAY), COLUMN, (), {1: 1}, NOW + hours * HOUR)
        assert (kept.span(one) == kept.span(other)) is (
            made(Retention(keep=DAY)).span(one) == made(Retention(keep=DAY)).span(other)
        )


def test_a_file_that_keep_cannot_judge_is_never_mixed_with_one_that_it_can() -> None:
    kept = made(Retention(keep=DAY))
    assert kept.span(file(1, None)) != kept.span(file(1, NOW))
    assert not kept.ends_soon(file(1, None))


def test_what_goes_soon_is_not_worth_it() -> None:
    kept = made(Retention(keep=DAY))
    assert kept.ends_soon(file(1, NOW - 23 * HOUR))
    assert not kept.ends_soon(file(1, NOW - 22 * HOUR))


def test_max_age_counts_from_the_commit_as_retention_does() -> None:
    times = tuple((number * 10, (NOW - DAY - EPOCH) // MS + number * 3_600_000) for number in range(1, 25))
    kept = made(Retention(max_age=DAY), times)
    assert kept.span(file(11)) == kept.span(file(20)) != kept.span(file(40))
    assert kept.ends_soon(file(3)) and not kept.ends_soon(file(21))
    assert not kept.ends_soon(file(10_000))  # newer than the last point
    assert made(Retention(max_age=DAY)).span(file(1)) == made(Retention(max_age=DAY)).span(file(9))


@pytest.mark.parametrize("commits", [10, 1000, 40_000])
def test_keep_bytes_mixes_at_most_a_sixteenth_of_what_it_keeps(commits: int) -> None:
    sizes = dict.fromkeys(range(1, commits + 1), 1000)
    kept = made(Retention(keep_bytes=1000 * commits), sizes=sizes)
    spans = [kept.span(file(number)) for number in sizes]
    largest = max(spans.count(span) for span in set(spans))
    assert largest <= max(1, commits // SHARE)
    gone = [number for number in sizes if kept.ends_soon(file(number))]
    assert gone == list(range(1, len(gone) + 1)) and len(gone) <= commits // SHARE + 1


def test_a_table_that_is_far_below_keep_bytes_is_one_span() -> None:
    kept = made(Retention(keep_bytes=10**12), sizes=dict.fromkeys(range(1, 1001), 1000))
    assert len({kept.span(file(number)) for number in range(1, 1001)}) == 1
    assert not any(kept.ends_soon(file(number)) for number in range(1, 1001))
