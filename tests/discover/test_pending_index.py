"""Hints that are lost, late, double or foreign change how soon a txlog is committed, and nothing else."""

from pathlib import Path

import pytest

from bookkeeper.core.names import TxlogName
from bookkeeper.discover.discovery import LOOK, Hints
from bookkeeper.discover.pending_index import PendingIndex
from bookkeeper.errors import StorageUnavailable
from bookkeeper.tick.tick import Bookkeeper
from tests.discover.pending import RUN, Told
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Lake, Writes

LOOK_EVERY = 4


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", look_every=LOOK_EVERY)


def told(lake: Lake, *answers: Hints, faults: Faults | None = None) -> Bookkeeper:
    """A bookkeeper that is told this; its first tick lists, whatever it is told."""
    book = lake.book(faults)
    book.pending_index = PendingIndex(Told(*answers), LOOK_EVERY)
    return book


def committed(lake: Lake, book: Bookkeeper, ticks: int) -> list[int]:
    """Txlogs that each of the next ticks commits."""
    results = [lake.tick(book) for _ in range(ticks)]
    return [result.commit.txlogs if result.commit else 0 for result in results]


def names(*found: TxlogName) -> frozenset[TxlogName]:
    return frozenset(found)


def test_what_is_hinted_is_committed_without_a_listing(lake: Lake) -> None:
    book, writes = told(lake, LOOK), Writes(lake)
    writes.publish("a")
    lake.tick(book)  # the first commit looks through the folder for old marks, too
    book.pending_index.discovery = Told(names(writes.publish("b")))
    listings = lake_listings(book)
    assert committed(lake, book, 1) == [1]
    assert listings == []
    assert lake.keys() == ["a", "b"]


def lake_listings(book: Bookkeeper) -> list[str]:
    """Every listing of pending/ from now on."""
    seen: list[str] = []
    store, listed = book.folder.store, book.folder.store.list

    def counted(prefix: str):
        if prefix == "pending/":
            seen.append(prefix)
        return listed(prefix)

    store.list = counted  # type: ignore[method-assign]
    return seen


def test_a_lost_hint_costs_time_until_the_next_listing(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    writes.publish("a")
    assert committed(lake, book, LOOK_EVERY) == [0] * (LOOK_EVERY - 1) + [1]
    assert lake.keys() == ["a"]


def test_an_idle_tick_between_two_listings_lists_nothing(lake: Lake) -> None:
    book = told(lake)
    lake.tick(book)
    listings = lake_listings(book)
    committed(lake, book, LOOK_EVERY - 1)
    assert listings == []
    lake.tick(book)
    assert listings


def test_a_double_and_a_late_hint_add_nothing(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = writes.publish("a")
    book.pending_index.discovery = Told(names(name), names(name), LOOK, names(name))
    assert committed(lake, book, 4) == [1, 0, 0, 0]
    assert lake.keys() == ["a"]
    assert lake.rejected() == {}


def test_a_foreign_hint_is_passed_over_and_holds_no_txlog_up(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = writes.publish("a")
    book.pending_index.discovery = Told(names(RUN, RUN.at(7), name.at(9), name))
    assert committed(lake, book, 1) == [1]
    assert (lake.keys(), lake.rejected()) == (["a"], {})


def test_hints_out_of_order_wait_for_what_came_before_and_lose_nothing(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    first, second = writes.publish("a"), writes.publish("b")
    book.pending_index.discovery = Told(names(second), names(first))
    assert sum(committed(lake, book, 2)) == 2
    assert lake.keys() == ["a", "b"]


def test_what_does_not_fit_is_remembered_until_it_does(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    book.limits = type(book.limits)(1, 2**40, 10_000)
    lake.tick(book)
    book.pending_index.discovery = Told(names(writes.publish("a"), writes.publish("b"), writes.publish("c")))
    assert committed(lake, book, 3) == [1, 1, 1]
    assert lake.keys() == ["a", "b", "c"]


def test_a_bad_txlog_that_was_hinted_is_rejected_once_and_the_next_goes_in(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = Writes(lake, "bad").name.at(1)
    lake.put(f"pending/{name}", b"no avro")
    book.pending_index.discovery = Told(names(name), names(writes.publish("a")))
    assert committed(lake, book, 2) == [0, 1]
    assert lake.rejected() == {str(name): "TxlogCorrupt"}


def test_after_a_listing_that_failed_only_another_listing_will_do(lake: Lake) -> None:
    faults = Faults()
    book = told(lake, faults=faults)
    lake.tick(book)
    Writes(lake).publish("a")
    book.pending_index.discovery = Told(LOOK)
    faults.on("list folder/pending", BEFORE, StorageUnavailable, times=1)
    with pytest.raises(StorageUnavailable):
        lake.tick(book)
    assert committed(lake, book, 1) == [1]


def test_a_hint_whose_commit_failed_is_not_forgotten(lake: Lake) -> None:
    faults = Faults()
    book, writes = told(lake, faults=faults), Writes(lake)
    lake.tick(book)
    book.pending_index.discovery = Told(names(writes.publish("a")))
    faults.on("read folder/pending", BEFORE, StorageUnavailable, times=1)
    assert committed(lake, book, 2) == [0, 1]


def test_a_txlog_another_bookkeeper_consumed_is_passed_over(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = writes.publish("a")
    lake.tick()
    book.pending_index.discovery = Told(names(name, writes.publish("b")))
    assert sum(committed(lake, book, LOOK_EVERY)) == 1
    assert lake.keys() == ["a", "b"]
