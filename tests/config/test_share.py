"""Shares of the tables, and the lease of a table of another share: borrowed, offered back, given up."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.config.load import parse as settings_in
from bookkeeper.config.share import parse, share_of
from bookkeeper.errors import ConfigInvalid
from bookkeeper.leases.failover import FailoverLease

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GRACE, OFFER, PAUSE = (timedelta(seconds=seconds) for seconds in (15, 60, 2))


class Room:
    """A lease that one of several has."""

    def __init__(self) -> None:
        self.holder: object = None

    def lease(self) -> "One":
        return One(self)


class One:
    offering = False
    lasting = None

    def __init__(self, room: Room) -> None:
        self.room = room

    def hold(self, now: datetime) -> bool:
        if self.room.holder is None:
            self.room.holder = self
        return self.room.holder is self

    def release(self) -> None:
        if self.room.holder is self:
            self.room.holder = None


def borrowed(room: Room) -> FailoverLease:
    return FailoverLease(room.lease(), GRACE, OFFER, PAUSE)


def held(lease: FailoverLease, first: int, last: int) -> list[int]:
    """In which of these seconds it has the lease."""
    return [second for second in range(first, last) if lease.hold(NOW + timedelta(seconds=second))]


def test_a_share_is_written_as_one_of_n() -> None:
    assert (parse("1/1"), parse("2/3")) == ((1, 1), (2, 3))
    for text in ("", "0/2", "3/2", "1", "1/2/3", "a/b", "01/2", " 1/2", "1/2\n"):
        with pytest.raises(ValueError, match="one of n shares"):
            parse(text)


def test_a_share_that_is_none_is_refused_and_so_is_one_without_leases() -> None:
    with pytest.raises(ConfigInvalid, match=r"bookkeeper.share = '3/2': one of n shares.* is allowed"):
        settings_in('[bookkeeper]\nshare = "3/2"', {})
    with pytest.raises(ConfigInvalid, match="needs bookkeeper"):
        settings_in('[bookkeeper]\nshare = "1/2"\nlease = false', {})


@given(st.text(), st.integers(1, 9))
def test_one_more_share_takes_tables_from_the_others_and_moves_no_other(identifier: str, shares: int) -> None:
    before, after = share_of(identifier, shares), share_of(identifier, shares + 1)
    assert 1 <= before <= shares and after in (before, shares + 1)


def test_shares_are_about_equal_and_the_same_for_ever() -> None:
    count = Counter(share_of(f"lake.table_{number}", 4) for number in range(1000))
    assert min(count.values()) > 200
    assert [share_of(f"ns.t{number}", 2) for number in range(8)] == [2, 1, 1, 1, 1, 2, 1, 2]


def test_it_is_taken_only_after_it_was_free_for_the_grace_time_without_a_break() -> None:
    room = Room()
    lease, own = borrowed(room), room.lease()
    assert held(lease, 0, 10) == [] and room.holder is None
    assert own.hold(NOW) and held(lease, 10, 20) == []
    own.release()
    assert held(lease, 20, 40) == list(range(35, 40))


def test_its_owner_gets_it_at_its_next_try_while_another_only_looks_at_it() -> None:
    room = Room()
    assert held(borrowed(room), 0, 14) == []
    assert room.lease().hold(NOW)


def test_it_is_offered_back_for_a_moment_and_taken_again_when_its_owner_is_away() -> None:
    lease = borrowed(Room())
    assert held(lease, 0, 141) == [*range(15, 75), *range(77, 137), 139, 140]
    assert not lease.offering


def test_its_owner_takes_it_when_it_is_offered_and_keeps_it() -> None:
    room = Room()
    lease, own = borrowed(room), room.lease()
    took = None
    for second in range(200):
        lease.hold(NOW + timedelta(seconds=second))
        if second >= 20 and took is None and own.hold(NOW):
            took = second
    assert took == 75 and room.holder is own and not lease.offering
    own.release()
    assert held(lease, 200, 220) == list(range(215, 220))


def test_a_borrowed_lease_that_is_lost_is_borrowed_again_like_the_first_time() -> None:
    room = Room()
    lease = borrowed(room)
    assert held(lease, 0, 17) == [15, 16]
    room.holder = "another"
    assert held(lease, 17, 30) == []
    room.holder = None
    assert held(lease, 30, 47) == [45, 46]


def test_it_can_be_given_back() -> None:
    room = Room()
    lease = borrowed(room)
    held(lease, 0, 20)
    lease.release()
    assert room.holder is None and held(lease, 20, 30) == []


def test_a_clock_that_jumps_back_does_not_keep_it_for_ever() -> None:
    lease = borrowed(Room())
    assert held(lease, 7200, 7220) == list(range(7215, 7220))
    assert not lease.hold(NOW) and lease.offering
