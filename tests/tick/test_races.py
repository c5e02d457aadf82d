"""Two and three bookkeepers on one table, without a lease: one loses each race, and no row is lost or doubled."""

import random
from contextlib import suppress

import pytest

from bookkeeper.errors import Retry
from bookkeeper.tick.tick import Bookkeeper
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes, append_by_others


@pytest.fixture
def lake(either: Lake) -> Lake:
    return either


SPOTS = [
    "list folder/pending",
    "load_table",
    "read folder/pending",
    "size events/data/",
    "create metadata",
    "commit_table",
    "folder/marks.json",
    "delete folder/pending",
]


@pytest.mark.parametrize("spot", SPOTS)
def test_another_bookkeeper_that_does_a_whole_tick_in_between_changes_nothing(lake: Lake, spot: str) -> None:
    one, two = Writes(lake, "w1"), Writes(lake, "w2")
    faults = Faults()
    slow, quick = lake.book(faults), lake.book()
    one.goes_on(b"1", "a0")
    lake.tick(slow)
    for number in range(1, 4):
        one.goes_on(b"%d" % (number + 1), f"a{number}")
        two.publish(f"b{number}")
    faults.between(spot, lambda: quick.tick(lake.clock.now))
    result = lake.tick(slow)
    lake.tick(slow)
    assert lake.keys() == ["a0", "a1", "a2", "a3", "b1", "b2", "b3"]
    assert (lake.pending(), lake.rejected(), result.holes) == ([], {}, [])


@pytest.mark.parametrize("spot", SPOTS)
def test_another_bookkeeper_in_between_while_a_bad_txlog_is_pending(lake: Lake, spot: str) -> None:
    good, bad = Writes(lake, "good"), Writes(lake, "bad")
    faults = Faults()
    slow, quick = lake.book(faults), lake.book()
    lake.tick(slow)
    good.publish("a")
    name = bad.publish("x", table_uuid="another")
    bad.publish("b")
    faults.between(spot, lambda: quick.tick(lake.clock.now))
    lake.tick(slow, seconds=11)
    lake.tick(slow)
    assert (lake.keys(), lake.rejected()) == (["a", "b"], {str(name): "WrongTable"})
    assert lake.view().marks.mark(name).holes == (1,)  # type: ignore[union-attr]


def test_a_bookkeeper_that_slept_through_everything_wakes_in_the_middle_of_its_delete(lake: Lake) -> None:
    writer, faults = Writes(lake), Faults()
    slow, quick = lake.book(faults), lake.book()
    writer.publish("a")

    def meanwhile() -> None:
        for key in "bc":
            writer.publish(key)
            lake.tick(quick)

    faults.between("delete folder/pending", meanwhile)
    lake.tick(slow)
    lake.tick(slow, seconds=60)
    assert lake.keys() == ["a", "b", "c"]


def test_a_bookkeeper_that_slept_in_the_middle_of_a_reject_loses_no_replay(lake: Lake, writer: Writes) -> None:
    faults = Faults()
    slow, quick = lake.book(faults), lake.book()
    name = writer.publish("x", table_uuid="another")

    def rejected_and_replayed() -> None:
        lake.tick(quick)
        lake.folder.replay(name)

    faults.between("delete folder/pending", rejected_and_replayed)
    lake.tick(slow)
    lake.tick(slow)
    assert list(lake.rejected()) == [str(name)]


def test_two_bookkeepers_with_clocks_that_differ_take_turns(lake: Lake, writer: Writes) -> None:
    from tests.support.lake import Clock

    behind = Clock(lake.clock.now)
    ahead, late = lake.book(), lake.book(clock=behind)
    for number in range(6):
        writer.publish(f"a{number}")
        lake.clock.move(seconds=1)
        behind.now = lake.clock.now
        behind.move(seconds=-20)
        (ahead.tick(lake.clock.now), late.tick(behind.now))
    times = [snapshot.timestamp_ms for snapshot in lake.table().metadata.snapshots]
    assert (lake.keys(), times) == ([f"a{number}" for number in range(6)], sorted(set(times)))


@pytest.mark.parametrize("seed", range(3))
def test_three_bookkeepers_and_a_foreign_writer_in_any_interleaving(lake: Lake, seed: int) -> None:
    dice, faults = random.Random(seed), Faults()
    books = [lake.book(faults) for _ in range(3)]
    writers = [Writes(lake, f"w{number % 2}") for number in range(3)]
    foreign = Writes(lake, "foreign")
    expected = []

    def somebody_acts(depth: int = 2) -> None:
        choice = dice.random()
        if choice < 0.5:
            writer = dice.choice(writers)
            expected.append(f"{writer.name.incarnation[-4:]}-{len(expected)}")
            writer.publish(expected[-1])
        elif choice < 0.6:
            expected.append(f"foreign-{len(expected)}")
            append_by_others(lake, foreign.file([expected[-1]]))
        else:
            interleave(dice.choice(books), depth)

    def interleave(book: Bookkeeper, depth: int) -> None:
        if depth:
            faults.between(dice.choice(SPOTS), lambda: somebody_acts(depth - 1))
        with suppress(Retry):
            lake.tick(book)

    for _ in range(25):
        somebody_acts()
    faults.clear()
    lake.drain()
    assert lake.keys() == sorted(expected)
    assert (lake.pending(), lake.rejected()) == ([], {})
