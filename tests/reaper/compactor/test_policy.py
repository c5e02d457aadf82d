"""Which files become few: size tiers, the target, quiet partitions; and what a day of it comes to."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reaper.compactor.choose_files import MOST_FILES, Candidate, Limits, LiveFile, choose

KIB, MIB = 2**10, 2**20
LIMITS = Limits(256 * MIB)
_numbers = itertools.count(1)


def file(size: int, partition: tuple[Any, ...] = (1,), spec: int = 0, number: int | None = None) -> LiveFile:
    number = next(_numbers) if number is None else number
    return LiveFile(f"s3://lake/data/{number:08d}.parquet", "PARQUET", spec, partition, 10, size, number, number)


def files(count: int, size: int = 14 * KIB, **about: Any) -> list[LiveFile]:
    return [file(size, **about) for _ in range(count)]


def busy(lot: Sequence[LiveFile]) -> bool:
    return False


def quiet(lot: Sequence[LiveFile]) -> bool:
    return True


def sizes(found: Iterable[Candidate]) -> list[int]:
    return [len(item.files) for item in found]


def test_files_of_one_size_wait_until_they_are_as_many_as_the_fan_in() -> None:
    assert choose(files(15), LIMITS, busy) == []
    old = files(16)
    (found,) = choose(reversed(old), LIMITS, busy)
    assert list(found.files) == old  # oldest first
    assert (found.reason, found.last) == ("16 files of one size", False)


def test_what_has_piled_up_goes_at_once_in_bounded_rewrites() -> None:
    assert sizes(choose(files(3300), LIMITS, busy)) == [MOST_FILES, MOST_FILES, MOST_FILES, 300]


def test_files_of_other_sizes_are_another_tier() -> None:
    assert choose(files(15) + files(15, 230 * KIB) + files(15, 4 * MIB), LIMITS, busy) == []
    assert sizes(choose(files(15) + files(16, 230 * KIB), LIMITS, busy)) == [16]


def test_files_that_reach_the_target_together_wait_for_no_more() -> None:
    assert choose(files(2, 100 * MIB), LIMITS, busy) == []
    assert sizes(choose(files(3, 100 * MIB), LIMITS, busy)) == [2]  # the third begins the next


def test_files_of_half_the_target_are_left_alone() -> None:
    large = files(40, 128 * MIB)
    assert choose(large, LIMITS, busy) == [] == choose(large, LIMITS, quiet)


@pytest.mark.parametrize("other", [{"partition": (2,)}, {"spec": 1}, {"partition": (None,)}])
def test_partitions_and_specs_are_never_mixed(other: dict[str, Any]) -> None:
    assert choose(files(15) + files(15, **other), LIMITS, busy) == []
    for found in choose(files(20) + files(20, **other), LIMITS, quiet):
        assert len({(item.spec_id, item.partition) for item in found.files}) == 1


def test_partitions_that_only_python_thinks_equal_are_not_mixed() -> None:
    zeros = files(10, partition=(0.0,)) + files(10, partition=(-0.0,))
    assert sizes(choose(zeros, LIMITS, quiet)) == [10, 10]
    nans = [file(KIB, (float("nan"),)) for _ in range(20)]
    assert sizes(choose(nans, LIMITS, quiet)) == [20]


def test_a_quiet_partition_is_rewritten_a_last_time_across_sizes() -> None:
    lot = files(3) + files(2, 230 * KIB)
    (found,) = choose(lot, LIMITS, quiet)
    assert (sorted(found.files), found.last) == (sorted(lot), True)
    assert choose(files(1), LIMITS, quiet) == []


def test_a_late_file_does_not_cost_a_rewrite_of_its_partition() -> None:
    large = files(1, 100 * MIB)
    assert choose(large + files(1), LIMITS, quiet) == []
    assert sizes(choose(large + files(2), LIMITS, quiet)) == [2]
    assert sizes(choose(large + files(1, 10 * MIB), LIMITS, quiet)) == [2]


def test_it_is_not_asked_whether_a_lot_is_quiet_where_nothing_would_be_done() -> None:
    def unasked(lot: Sequence[LiveFile]) -> bool:
        raise AssertionError(lot)

    assert choose(files(1) + files(5, 200 * MIB) + files(1, partition=(2,)), LIMITS, unasked) == []


def test_what_saves_most_files_for_its_bytes_comes_first() -> None:
    found = choose(files(16, 4 * MIB) + files(16) + files(3, 100 * MIB), LIMITS, busy)
    assert [item.files[0].size_bytes for item in found] == [14 * KIB, 4 * MIB, 100 * MIB]


lots = st.lists(
    st.tuples(st.integers(0, 2**30), st.integers(1, 3), st.integers(0, 1), st.integers(0, 60)), max_size=200
)


@given(lots, st.booleans(), st.integers(2, 20), st.integers(KIB, 2**29))
def test_no_rewrite_breaks_a_rule(given_files: Any, ends: bool, fan_in: int, target: int) -> None:
    """Each file at most once, small, with others of its partition, spec and span; at most the target together."""
    live = [file(size, (part,), spec, number) for size, part, spec, number in given_files]
    live = list({item.path: item for item in live}.values())
    limits = Limits(target, fan_in)
    found = choose(live, limits, lambda lot: ends, lambda item: item.sequence_number // 10)
    named = [item for candidate in found for item in candidate.files]
    assert len(named) == len(set(named)) and set(named) <= set(live)
    for candidate in found:
        assert len(candidate.files) >= 2
        assert all(2 * item.size_bytes < target for item in candidate.files)
        assert len({(item.spec_id, item.partition, item.sequence_number // 10) for item in candidate.files}) == 1
        assert candidate.bytes <= target
        assert list(candidate.files) == sorted(candidate.files, key=lambda item: item.sequence_number)


class Day(NamedTuple):
    """What a simulated day came to."""

    most_live: int
    most_live_early: int
    amplification: float
    rewrites_a_minute: float
    left: int


def simulate(seconds: int, every: int, delay: int, fan_in: int = 16, size: int = 14 * KIB) -> Day:
    """
    Five files a second, a round every so many seconds, whose rewrites are committed `delay` seconds later.
    """
    limits, live, pending = Limits(256 * MIB, fan_in), list[LiveFile](), list[tuple[int, Candidate]]()
    most = early = written = rewrites = 0
    for second in range(seconds):
        number = second + 1
        live += [LiveFile(f"{number}.{index}", "PARQUET", 0, (), 10, size, number, number) for index in range(5)]
        if second % every == 0:
            named = {item.path for _, candidate in pending for item in candidate.files}
            found = choose((item for item in live if item.path not in named), limits, busy)
            pending += [(second + delay, candidate) for candidate in found]
        if pending and pending[0][0] <= second:
            gone = [candidate for at, candidate in pending if at <= second]
            pending = [item for item in pending if item[0] > second]
            named = {item.path for candidate in gone for item in candidate.files}
            live = [item for item in live if item.path not in named]
            for candidate in gone:
                newest = candidate.files[-1].sequence_number
                live.append(LiveFile(f"r{rewrites}", "PARQUET", 0, (), 10, candidate.bytes, newest, newest))
                written, rewrites = written + candidate.bytes, rewrites + 1
        most = max(most, len(live))
        early = max(early, len(live)) if second < 1800 else early
    return Day(most, early, written / (seconds * 5 * size), rewrites * 60 / seconds, len(live))


def test_a_day_of_five_files_a_second_keeps_the_table_small() -> None:
    """26 of the live files are full ones: a day has 5.8 GiB."""
    day = simulate(86_400, every=1, delay=0)
    assert day.most_live <= 74
    assert day.most_live_early <= 45
    assert 3.5 <= day.amplification <= 4
    assert day.rewrites_a_minute <= 20


def test_rounds_and_commits_that_take_their_time_cost_a_few_files_more() -> None:
    day = simulate(86_400, every=5, delay=4)
    assert day.most_live <= 105
    assert day.most_live_early <= 80
    assert day.amplification <= 4
    assert day.rewrites_a_minute <= 20
