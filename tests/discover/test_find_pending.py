"""Hints that are lost, late, double or foreign change how soon a txlog is committed, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from bookkeeper.contract.names import TxlogName
from bookkeeper.discover.discovery import LOOK, Hints
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.probe import Probe
from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.store import ObjectVersion
from bookkeeper.tick.inbox import MORE_BYTES, UNLISTED_BYTES
from bookkeeper.tick.read_budget import ReadBudget
from bookkeeper.tick.tick import Bookkeeper
from tests.discover.pending import RUN, Told
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Clock, Lake, Writes

LOOK_EVERY = 4


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", look_every=LOOK_EVERY)


def told(lake: Lake, *answers: Hints, faults: Faults | None = None) -> Bookkeeper:
    """A bookkeeper that is told this; its first tick lists, whatever it is told."""
    book = lake.book(faults)
    book.inbox.pending_index = PendingIndex(Told(*answers), LOOK_EVERY)
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
    book.inbox.pending_index.discovery = Told(names(writes.publish("b")))
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
    book.inbox.pending_index.discovery = Told(names(name), names(name), LOOK, names(name))
    assert committed(lake, book, 4) == [1, 0, 0, 0]
    assert lake.keys() == ["a"]
    assert lake.rejected() == {}


def test_a_foreign_hint_is_passed_over_and_holds_no_txlog_up(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = writes.publish("a")
    book.inbox.pending_index.discovery = Told(names(RUN, RUN.at(7), name.at(9), name))
    assert committed(lake, book, 1) == [1]
    assert (lake.keys(), lake.rejected()) == (["a"], {})


def test_hints_out_of_order_wait_for_what_came_before_and_lose_nothing(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    first, second = writes.publish("a"), writes.publish("b")
    book.inbox.pending_index.discovery = Told(names(second), names(first))
    assert sum(committed(lake, book, 2)) == 2
    assert lake.keys() == ["a", "b"]


def test_what_does_not_fit_is_remembered_until_it_does(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    book.inbox.limits = type(book.inbox.limits)(1, 2**40, 10_000)
    lake.tick(book)
    book.inbox.pending_index.discovery = Told(names(writes.publish("a"), writes.publish("b"), writes.publish("c")))
    assert committed(lake, book, 3) == [1, 1, 1]
    assert lake.keys() == ["a", "b", "c"]


def test_a_bad_txlog_that_was_hinted_is_rejected_once_and_the_next_goes_in(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = Writes(lake, "bad").name.at(1)
    lake.put(f"pending/{name}", b"no avro")
    book.inbox.pending_index.discovery = Told(names(name), names(writes.publish("a")))
    assert sum(committed(lake, book, 2)) == 1
    assert lake.rejected() == {str(name): "TxlogCorrupt"}


def order(faults: Faults, since: int, *parts: str) -> list[str]:
    """Which of these parts the operations since then have in their text, in their order."""
    return [part for operation in faults.seen[since:] for part in parts if part in operation]


def test_a_hinted_txlog_is_the_first_thing_a_tick_reads_and_is_read_once(lake: Lake) -> None:
    faults = Faults()
    book, writes = told(lake, faults=faults), Writes(lake)
    lake.tick(book)
    name, other = writes.publish("a"), Writes(lake, "w2").publish("b")
    book.inbox.pending_index.discovery = Told(names(name, other))
    since = len(faults.seen)
    assert committed(lake, book, 1) == [2]
    reads = {f"read folder/pending/{each}" for each in (name, other)}
    assert {*faults.seen[since : since + 2]} == reads
    assert not [seen for seen in faults.seen[since + 2 :] if "pending/" in seen and "delete" not in seen]


@pytest.mark.parametrize("seconds", [1, 11])
def test_a_hinted_txlog_is_refused_only_after_a_listing_and_a_load(lake: Lake, seconds: float) -> None:
    """Also in a tick that has loaded the table anyway, after the txlog was read: no listing has shown it yet."""
    faults = Faults()
    book = told(lake, faults=faults)
    lake.tick(book)
    name = Writes(lake, "bad").name.at(1)
    lake.put(f"pending/{name}", b"no avro")
    book.inbox.pending_index.discovery = Told(names(name))
    since = len(faults.seen)
    lake.tick(book, seconds=seconds)
    assert faults.seen[since] == f"read folder/pending/{name}"
    listed = faults.seen.index("list folder/pending/", since)
    loaded = faults.seen.index("load_table", listed)
    assert any("replace folder/rejected" in operation for operation in faults.seen[loaded:])
    assert not any("folder/rejected" in operation for operation in faults.seen[since:loaded])
    assert lake.rejected() == {str(name): "TxlogCorrupt"}


def test_a_hinted_txlog_of_a_newer_schema_is_committed_after_one_load(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    with lake.table().update_schema() as change:
        change.add_column("extra", StringType())
    lake.tick()  # another bookkeeper writes the card
    name = writes.publish("a")
    book.inbox.pending_index.discovery = Told(names(name))
    assert committed(lake, book, 1) == [1]
    assert (lake.keys(), lake.rejected()) == (["a"], {})


def test_a_hinted_name_that_is_not_there_is_no_hole(lake: Lake) -> None:
    """Only the one before what is there is missing, and only after a listing and a load."""
    faults = Faults()
    book, writes = told(lake, faults=faults), Writes(lake)
    lake.tick(book)
    lost, name = writes.publish("a"), writes.publish("b")
    lake.folder.delete([lost])
    book.inbox.pending_index.discovery = Told(names(lost, name, name.at(3), RUN))
    since = len(faults.seen)
    result = lake.tick(book)
    assert (result.holes, lake.keys(), lake.rejected()) == ([lost], ["b"], {})
    assert order(faults, since, "list folder/pending", "load_table", "commit_table") == [
        "list folder/pending",
        "load_table",
        "commit_table",
    ]


def test_one_that_a_slower_bookkeeper_reads_late_is_no_hole(lake: Lake) -> None:
    """Another one commits and deletes what is hinted to this one, just before this one reads it."""
    faults = Faults()
    book, writes = told(lake, faults=faults), Writes(lake)
    lake.tick(book)
    first, second = writes.publish("a"), writes.publish("b")
    book.inbox.pending_index.discovery = Told(names(first, second))
    faults.between(f"read folder/pending/{first}", lake.tick)
    result = lake.tick(book)
    assert (result.holes, result.commit, lake.keys(), lake.rejected()) == ([], None, ["a", "b"], {})
    third = writes.publish("c")
    book.inbox.pending_index.discovery = Told(names(first, third))
    assert committed(lake, book, 1) == [1]
    assert (lake.keys(), lake.rejected()) == (["a", "b", "c"], {})


def test_a_hinted_txlog_that_is_large_is_listed_first_and_committed_in_the_same_tick(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper.tick.inbox.UNLISTED_BYTES", 100)
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    book.inbox.pending_index.discovery = Told(names(writes.publish("a")))
    listings = lake_listings(book)
    assert committed(lake, book, 1) == [1]
    assert listings == ["pending/"]


def test_a_hinted_txlog_that_the_storage_does_not_date_is_listed_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    read = book.folder.store.read_versions

    def undated(known: dict[str, str], most: Any = None) -> Any:
        answers = read(known, most)
        return {
            key: answer._replace(modified=None) if isinstance(answer, ObjectVersion) else answer
            for key, answer in answers.items()
        }

    monkeypatch.setattr(book.folder.store, "read_versions", undated)
    book.inbox.pending_index.discovery = Told(names(writes.publish("a")))
    listings = lake_listings(book)
    assert (committed(lake, book, 1), listings) == ([1], ["pending/"])


def test_what_one_wave_of_asking_leaves_unanswered_is_asked_for_again(lake: Lake) -> None:
    faults = Faults()
    book, writes, other = told(lake, faults=faults), Writes(lake, "w1"), Writes(lake, "w2")
    book.inbox.pending_index = PendingIndex(Probe(), 1000)
    writes.publish("a")
    other.publish("x")
    lake.tick(book)
    writes.publish("b")
    lost = other.publish("y")
    faults.on(f"read folder/pending/{lost}", BEFORE, StorageUnavailable, times=1)
    assert committed(lake, book, 2) == [1, 1]
    assert lake.keys() == ["a", "b", "x", "y"]


def test_room_for_what_no_listing_has_sized_is_reserved_while_it_is_read(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    asked: list[int] = []
    part = book.inbox.read_budget.part
    book.inbox.read_budget.part = lambda wanted, now: (asked.append(wanted), part(wanted, now))[1]  # type: ignore[method-assign]
    found = [writes.publish("a"), writes.publish("b")]
    book.inbox.pending_index.discovery = Told(names(*found))
    size = sum(item.size for item in lake.folder.pending())
    assert committed(lake, book, 1) == [2]
    assert asked == [2 * UNLISTED_BYTES, size, size + MORE_BYTES]
    assert not book.inbox.read_budget._parts


def test_with_next_to_no_room_hints_are_listed_and_one_is_read_all_the_same(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    book.inbox.read_budget = ReadBudget(10)
    book.inbox.pending_index.discovery = Told(names(writes.publish("a"), writes.publish("b")))
    listings = lake_listings(book)
    assert committed(lake, book, 2) == [1, 1]
    assert listings


def test_what_is_hinted_is_dated_by_the_storage_and_proves_the_clock_for_nothing(lake: Lake) -> None:
    faults = Faults()
    book, writes = told(lake, faults=faults), Writes(lake)
    lake.tick(book)
    lake.clock.move(minutes=20)
    book.inbox.pending_index.discovery = Told(names(writes.publish("a")))
    assert committed(lake, book, 1) == [1]
    assert not [seen for seen in faults.seen if "clock" in seen]


def test_what_is_hinted_proves_nothing_where_the_storage_says_another_time(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    book.inbox.limits = type(book.inbox.limits)(1, 2**40, 10_000)
    hinted = names(writes.publish("a"), writes.publish("b"))
    disk = Clock(lake.clock.now)
    book.folder.store.clock = disk  # type: ignore[attr-defined]
    lake.clock.move(minutes=55)
    book.inbox.pending_index.discovery = Told(hinted)
    for _ in range(2):  # the second is left over from the first tick
        assert committed(lake, book, 1) == [1]
        assert lake.table().metadata.last_updated_ms / 1000 <= disk.now.timestamp() + 1


def test_after_a_listing_that_failed_only_another_listing_will_do(lake: Lake) -> None:
    faults = Faults()
    book = told(lake, faults=faults)
    lake.tick(book)
    Writes(lake).publish("a")
    book.inbox.pending_index.discovery = Told(LOOK)
    faults.on("list folder/pending", BEFORE, StorageUnavailable, times=1)
    with pytest.raises(StorageUnavailable):
        lake.tick(book)
    assert committed(lake, book, 1) == [1]


def test_a_hint_whose_commit_failed_is_not_forgotten(lake: Lake) -> None:
    faults = Faults()
    book, writes = told(lake, faults=faults), Writes(lake)
    lake.tick(book)
    book.inbox.pending_index.discovery = Told(names(writes.publish("a")))
    faults.on("read folder/pending", BEFORE, StorageUnavailable, times=1)
    assert committed(lake, book, 2) == [0, 1]


def test_a_txlog_another_bookkeeper_consumed_is_passed_over(lake: Lake) -> None:
    book, writes = told(lake), Writes(lake)
    lake.tick(book)
    name = writes.publish("a")
    lake.tick()
    book.inbox.pending_index.discovery = Told(names(name, writes.publish("b")))
    assert sum(committed(lake, book, LOOK_EVERY)) == 1
    assert lake.keys() == ["a", "b"]
