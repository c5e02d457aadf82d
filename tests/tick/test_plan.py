"""The plan: a share is a prefix, holes are counted, nothing is refused that may still get in."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.contract.marks import MOST_HOLES, Mark, Marks, WriterMarks
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.errors import IncarnationPruned, PositionTaken, TooManyHoles, TxlogCorrupt
from bookkeeper.tick.plan_batch import CheckedTxlogs, gaps
from bookkeeper.tick.select import READ_BYTES, Limits, cut, in_order
from tests.support.plans import NO_LIMITS, ONE, TWO, good, marks, name, names, planned, sequences, txlog

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_an_unread_txlog_stops_its_incarnation_and_no_other() -> None:
    mine, other = names(1, 2, 3), names(1, 2, run=TWO)
    batch = planned([*mine, *other], CheckedTxlogs(good(mine[0], mine[2], *other)))
    assert batch.names == [mine[0], *other]
    assert not batch.rejected and not batch.holes


def test_a_bad_txlog_is_passed_over_and_leaves_a_hole() -> None:
    one, two, three = names(1, 2, 3)
    batch = planned([one, two, three], CheckedTxlogs(good(one, three), bad={two: TxlogCorrupt("cut")}))
    assert batch.names == [one, three]
    assert batch.holes == [two]


def test_a_gap_that_is_not_known_to_be_missing_stops_its_incarnation() -> None:
    assert planned(names(2), CheckedTxlogs(good(*names(2)))).names == []


def test_a_missing_txlog_is_passed_over_as_a_hole() -> None:
    batch = planned(names(3), CheckedTxlogs(good(*names(3)), not_pending=frozenset(names(1, 2))))
    assert (sequences(batch), batch.holes) == ([3], names(1, 2))


def test_a_hole_is_closed_by_its_txlog() -> None:
    before = marks(one=Mark(5, (3,)))
    batch = planned(names(3, 6), CheckedTxlogs(good(*names(3, 6))), before)
    after = before.advanced(batch.names, {}, 1)
    assert after.mark(name(1)) == Mark(6, (), 1)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(Limits(2, 100, 100), [1, 2]), (Limits(100, 25, 100), [1, 2]), (Limits(100, 100, 1), [1])],
    ids=["files", "bytes", "txlogs"],
)
def test_limits_cut_a_prefix(limits: Limits, expected: list[int]) -> None:
    items = [txlog(about, size=10) for about in names(1, 2, 3, 4)]
    batch = planned(names(1, 2, 3, 4), CheckedTxlogs(good(*items)), limits=limits)
    assert sequences(batch) == expected


def test_one_txlog_is_let_in_however_large() -> None:
    batch = planned(names(1, 2), CheckedTxlogs(good(txlog(name(1), size=10**6), name(2))), limits=Limits(1, 1, 1))
    assert sequences(batch) == [1]


def test_a_large_txlog_that_does_not_fit_lets_other_incarnations_fill_the_commit() -> None:
    order = [name(1), name(1, TWO), name(2), name(2, TWO)]
    items = good(txlog(name(1), size=10), txlog(name(1, TWO), size=95), name(2), name(2, TWO))
    batch = planned(order, CheckedTxlogs(items), limits=Limits(100, 100, 100))
    assert batch.names == [name(1), name(2)]


def test_more_than_64_holes_hold_the_incarnation_and_no_other() -> None:
    far, other = name(MOST_HOLES + 2), name(1, TWO)
    batch = planned([far, other], CheckedTxlogs(good(far, other)))
    assert batch.names == [other]
    assert isinstance(batch.held[far], TooManyHoles)


def test_64_holes_are_still_passed_over() -> None:
    far = name(MOST_HOLES + 1)
    batch = planned([far], CheckedTxlogs(good(far), not_pending=frozenset(names(*range(1, MOST_HOLES + 1)))))
    assert len(batch.holes) == MOST_HOLES


def test_too_long_a_gap_holds_before_its_position_condemns() -> None:
    # Those before it may just not be listed; only they can tell whether its position fits.
    far = txlog(name(MOST_HOLES + 2), position=b"9", after=b"8")
    batch = planned([far.name], CheckedTxlogs(good(far)))
    assert far.name in batch.held and not batch.rejected


def test_an_unknown_incarnation_from_before_the_pruning_is_refused() -> None:
    before = Marks("folder", pruned_before_ms=2_000_000_000_001)
    batch = planned(names(1), CheckedTxlogs(good(*names(1))), before)
    assert isinstance(batch.rejected[name(1)], IncarnationPruned)


# positions


def chain(*steps: tuple[str, int, bytes | None, bytes]) -> CheckedTxlogs:
    """Txlogs (run, sequence, continues from, reaches) of one writer."""
    return CheckedTxlogs(good(*(txlog(name(at, run), position=to, after=came) for run, at, came, to in steps)))


def test_a_chain_is_followed_within_one_batch() -> None:
    known = chain((ONE, 1, None, b"1"), (ONE, 2, b"1", b"2"), (TWO, 1, b"2", b"3"))
    batch = planned([*names(1, 2), name(1, TWO)], known)
    assert sequences(batch) == [1, 2, 1]
    assert batch.positions == {"w": b"3"}


def test_of_a_fork_the_first_gets_in_and_the_other_is_refused() -> None:
    known = chain((ONE, 1, None, b"1"), (TWO, 1, None, b"x"), (TWO, 2, b"x", b"y"))
    batch = planned([name(1), *names(1, 2, run=TWO)], known)
    assert batch.names == [name(1)]
    assert [type(batch.rejected[about]) for about in names(1, 2, run=TWO)] == [PositionTaken] * 2


def test_a_reject_in_the_middle_breaks_the_chain() -> None:
    known = chain((ONE, 1, None, b"1"), (ONE, 3, b"2", b"3"))
    known = CheckedTxlogs(known.good, bad={name(2): TxlogCorrupt("cut")})
    batch = planned(names(1, 2, 3), known)
    assert sequences(batch) == [1]
    assert isinstance(batch.rejected[name(3)], PositionTaken)


def test_a_successor_run_waits_for_a_predecessor_that_could_not_be_read() -> None:
    known = chain((TWO, 1, b"1", b"2"))
    batch = planned([name(1), name(1, TWO)], known)
    assert not batch.names and not batch.rejected


def test_a_successor_run_waits_for_a_predecessor_that_did_not_fit() -> None:
    large = txlog(name(2), size=1000, position=b"2", after=b"1")
    known = chain((ONE, 1, None, b"1"), (TWO, 1, b"2", b"3"))
    batch = planned(
        [*names(1, 2), name(1, TWO)], CheckedTxlogs({**known.good, **good(large)}), limits=Limits(99, 100, 99)
    )
    assert batch.names == [name(1)]
    assert not batch.rejected


def test_a_chain_is_followed_though_the_storage_lists_its_runs_the_wrong_way_round() -> None:
    known = chain((ONE, 1, None, b"1"), (TWO, 1, b"1", b"2"), (TWO, 2, b"2", b"3"))
    batch = planned([*names(1, 2, run=TWO), name(1)], known)
    assert batch.names == [name(1), *names(1, 2, run=TWO)]
    assert batch.positions == {"w": b"3"}


def test_positions_that_wait_for_each_other_are_refused() -> None:
    known = chain((ONE, 1, b"2", b"1"), (TWO, 1, b"1", b"2"))
    batch = planned([name(1), name(1, TWO)], known)
    assert not batch.names
    assert set(batch.rejected) == {name(1), name(1, TWO)}


def test_a_txlog_without_position_leaves_the_position_alone() -> None:
    before = Marks("folder", writers={"w": WriterMarks(b"7", {})})
    batch = planned(names(1), CheckedTxlogs(good(*names(1))), before)
    assert before.advanced(batch.names, batch.positions, 1).writer("w").position == b"7"


# gaps


def test_gaps_are_the_sequences_between_the_mark_and_what_is_listed() -> None:
    assert gaps(names(4, 7), marks(one=Mark(2))) == names(3, 5, 6)


def test_gaps_of_an_endless_jump_are_bounded() -> None:
    assert len(gaps(names(10**9), Marks("folder"))) <= MOST_HOLES + 1


# what one tick reads


def listed(*sizes: int) -> list[Found]:
    return [Found(name(number), size, NOW) for number, size in enumerate(sizes, start=1)]


def test_a_tick_reads_at_most_so_many_txlogs() -> None:
    assert cut(listed(1, 1, 1), Limits(1, 1, 2)) == names(1, 2)


def test_a_tick_reads_at_most_so_many_bytes_of_txlogs_and_always_one() -> None:
    half = READ_BYTES // 2
    assert cut(listed(half, half, 1), NO_LIMITS) == names(1, 2)
    assert cut(listed(READ_BYTES + 1, 1), NO_LIMITS) == names(1)


def test_txlogs_are_read_oldest_first_and_each_run_in_its_order_whatever_the_storages_clock_says() -> None:
    late, early = NOW, NOW - timedelta(hours=1)
    found = [Found(name(1), 1, late), Found(name(2), 1, early), Found(name(1, TWO), 1, NOW - timedelta(minutes=1))]
    assert [item.name for item in in_order(found)] == [name(1, TWO), *names(1, 2)]


# whatever is listed, read and allowed


@st.composite
def situations(draw: st.DrawFn) -> tuple[list, CheckedTxlogs, Marks, Limits]:
    order, found, bad, not_pending = [], {}, {}, set()
    before = {}
    for run in (ONE, TWO):
        last = draw(st.integers(0, 5))
        holes = draw(st.sets(st.integers(1, last))) if last else set()
        before[run] = Mark(last, tuple(sorted(holes)))
        for number in [*sorted(holes), *range(last + 1, last + draw(st.integers(0, 6)) + 1)]:
            about = name(number, run)
            fate = draw(st.sampled_from(["good", "good", "good", "bad", "unread", "missing"]))
            if fate == "good":
                found[about] = txlog(about)
            elif fate == "bad":
                bad[about] = TxlogCorrupt("cut")
            elif fate == "missing":
                not_pending.add(about)
            if fate != "missing":
                order.append(about)
    limits = Limits(draw(st.integers(1, 8)), 10**9, draw(st.integers(1, 8)))
    runs = draw(st.permutations([ONE, TWO]))
    order.sort(key=lambda about: (runs.index(about.incarnation), about.sequence))
    return (
        order,
        CheckedTxlogs(found, bad, frozenset(not_pending)),
        Marks("f", writers={"w": WriterMarks(None, before)}),
        limits,
    )


@given(situations())
def test_no_txlog_is_marked_in_that_is_not_and_no_unread_one_is_passed(situation: tuple) -> None:
    order, known, before, limits = situation
    batch = planned(order, known, before, limits=limits)
    after = before.advanced(batch.names, batch.positions, 1)
    for about in order:
        was_in, now_in = before.is_in(about), after.is_in(about)
        assert now_in == (was_in or about in batch.names)
        unread = about not in known.good and about not in known.bad
        last = after.mark(about)
        if unread and not was_in and about.sequence > (before.mark(about) or Mark()).last:
            assert last is None or last.last < about.sequence
    assert len(batch.names) <= limits.txlogs
