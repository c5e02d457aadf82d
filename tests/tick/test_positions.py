"""Positions: compare-and-swap on a writer's source offset, inside the commit."""

import os

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.tick.read_budget import ReadBudget
from bookkeeper.tick.tick import Bookkeeper
from tests.support.faults import AFTER, BEFORE, Crash, Faults, crash
from tests.support.lake import Lake, Writes
from tests.tick.test_gaps import blind


def position(lake: Lake, writer: str = "w1") -> bytes | None:
    found: bytes | None = lake.view().marks.writer(writer).position
    return found


def test_a_chain_goes_in_within_one_batch_and_across_ticks(lake: Lake, writer: Writes) -> None:
    book = lake.book()
    writer.goes_on(b"1", "a")
    writer.goes_on(b"2", "b")
    lake.tick(book)
    assert position(lake) == b"2"
    writer.goes_on(b"3", "c")
    lake.tick(book)
    assert (lake.keys(), position(lake)) == (["a", "b", "c"], b"3")


def test_a_restarted_run_continues_from_what_is_pending(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    again = Writes(lake)
    again.position = b"1"
    again.goes_on(b"2", "b")
    lake.tick()
    assert (lake.keys(), position(lake), lake.operations()) == (["a", "b"], b"2", ["append"])


def test_of_two_runs_that_fork_the_chain_one_is_rejected_whole(lake: Lake) -> None:
    old, new = Writes(lake), Writes(lake)
    old.goes_on(b"1", "a")
    lake.tick()
    new.position = b"1"
    lake.clock.move(seconds=1)
    new.goes_on(b"2", "b")
    lake.clock.move(seconds=1)
    lost = [old.goes_on(b"x", "c"), old.goes_on(b"y", "d")]
    lake.tick()
    assert (lake.keys(), position(lake)) == (["a", "b"], b"2")
    assert lake.rejected() == {str(name): "PositionTaken" for name in lost}


def test_a_fork_in_one_batch_lets_the_first_in(lake: Lake) -> None:
    first, second = Writes(lake), Writes(lake)
    first.goes_on(b"1", "a")
    lost = second.goes_on(b"1", "b")
    lake.tick()
    assert (lake.keys(), list(lake.rejected())) == (["a"], [str(lost)])


def test_a_reject_in_the_middle_breaks_the_chain_and_the_restart_reads_those_rows_again(
    lake: Lake, writer: Writes
) -> None:
    writer.goes_on(b"1", "a")
    bad = writer.publish("b", previous_position=b"1", position=b"2", table_uuid="another")
    writer.position = b"2"
    lost = writer.goes_on(b"3", "c")
    lake.tick()
    assert lake.rejected() == {str(bad): "WrongTable", str(lost): "PositionTaken"}
    again = Writes(lake)
    again.position = position(lake)
    again.goes_on(b"2", "b")
    again.goes_on(b"3", "c")
    lake.tick()
    assert lake.keys() == ["a", "b", "c"]


def test_a_successor_waits_for_a_predecessor_that_cannot_be_read_now(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    unread = writer.goes_on(b"1", "a")
    again = Writes(lake)
    again.position = b"1"
    again.goes_on(b"2", "b")
    book = lake.book(faults.on(f"read folder/pending/{unread}", BEFORE, StorageUnavailable))
    result = lake.tick(book)
    assert (result.waiting, lake.rejected()) == (2, {})
    faults.clear()
    lake.tick(book)
    assert (lake.keys(), position(lake)) == (["a", "b"], b"2")


def test_a_successor_waits_for_a_predecessor_that_the_limits_left_out(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    writer.goes_on(b"2", *[f"b{number:04}" for number in range(2000)])
    again = Writes(lake)
    again.position = b"2"
    again.goes_on(b"3", "c")
    book = lake.book(max_bytes=4000)
    for _ in range(3):
        lake.tick(book)
    assert (lake.rejected(), position(lake), len(lake.keys())) == ({}, b"3", 2002)


def test_a_successor_waits_for_a_predecessor_that_there_was_no_room_to_read(lake: Lake, writer: Writes) -> None:
    again = Writes(lake)
    again.position = b"1"
    older = again.goes_on(b"2", "b")
    writer.goes_on(b"1", "a")
    path = lake.made.folder.removeprefix("file://") + f"/pending/{older}"
    os.utime(path, (os.path.getmtime(path) - 60,) * 2)
    book = lake.book()
    book.inbox.read_budget = ReadBudget(0)  # one txlog a tick, the oldest: it continues from the other
    for _ in range(3):
        lake.tick(book)
    assert (lake.rejected(), position(lake), lake.keys()) == ({}, b"2", ["a", "b"])


def test_a_predecessor_that_the_listing_missed_is_looked_for_again(lake: Lake, writer: Writes) -> None:
    unlisted = writer.goes_on(b"1", "a")
    again = Writes(lake)
    again.position = b"1"
    again.goes_on(b"2", "b")
    book = Bookkeeper(lake.settings, blind(lake, unlisted), lake.book().ledger, store=lake.store)
    lake.tick(book)
    assert (lake.keys(), lake.rejected()) == (["a", "b"], {})


def test_a_successor_that_only_the_second_listing_shows_is_not_rejected(lake: Lake, writer: Writes) -> None:
    """That listing may have missed its predecessor, and no further one tells."""
    bad = Writes(lake, "w2").publish("z", previous_position=b"8", position=b"9")
    missed = writer.goes_on(b"1", "a")
    again = Writes(lake)
    again.position = b"1"
    late = again.goes_on(b"2", "b")
    folder = blind(lake)
    folder.missed = [{missed, late}, {missed}]
    book = Bookkeeper(lake.settings, folder, lake.book().ledger, store=lake.store)
    lake.tick(book)
    assert (lake.keys(), lake.rejected()) == ([], {str(bad): "PositionTaken"})
    lake.tick(book)
    assert (lake.keys(), list(lake.rejected()), position(lake)) == (["a", "b"], [str(bad)], b"2")


def test_a_predecessor_that_another_bookkeeper_takes_meanwhile_condemns_no_txlog(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    taken = writer.goes_on(b"1", "a")
    slow, quick = lake.book(faults), lake.book(max_txlogs=1)
    lake.tick(slow)  # one view is loaded, nothing of `b` yet
    writer.position = b"1"
    lake.clock.move(seconds=1)
    second = writer.goes_on(b"2", "b")
    again = Writes(lake)
    again.position = b"2"
    again.goes_on(b"3", "c")
    faults.between(f"read folder/pending/{second}", lambda: quick.tick(lake.clock.now))
    lake.tick(slow, seconds=11)  # its view is loaded after its listing, and before the other commits
    lake.tick(slow)
    assert taken.sequence == 1
    assert (lake.keys(), lake.rejected(), position(lake)) == (["a", "b", "c"], {}, b"3")


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_positions_survive_a_crash_at_the_commit(lake: Lake, writer: Writes, faults: Faults, when: str) -> None:
    writer.goes_on(b"1", "a")
    with pytest.raises(Crash):
        lake.tick(lake.book(faults.on("commit_table", when, crash)))
    writer.goes_on(b"2", "b")
    lake.drain()
    assert (lake.keys(), position(lake), lake.rejected()) == (["a", "b"], b"2", {})


def test_writers_with_and_without_positions_share_a_name_in_peace(lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    Writes(lake).publish("b")
    writer.goes_on(b"2", "c")
    lake.tick()
    assert (lake.keys(), position(lake)) == (["a", "b", "c"], b"2")
