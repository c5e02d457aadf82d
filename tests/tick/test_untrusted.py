"""What strangers leave in pending/ is refused unread, and the good ones beside it get in in the same tick."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands.replay import replay
from bookkeeper.contract.names import TxlogName
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.probe import Probe
from bookkeeper.errors import NotPossible, TooLarge, TxlogTooLarge
from bookkeeper.stores.local import LocalStore
from bookkeeper.tick.read_budget import ReadBudget
from tests.support.faults import AFTER, BEFORE, Crash, Faults, crash
from tests.support.lake import Lake, Writes

TB = 2**40
Put = Callable[[Path], None]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", max_txlog_bytes=100_000)


def pending(lake: Lake, name: TxlogName | str) -> Path:
    place = Path(lake.made.folder.removeprefix("file://")) / "pending"
    place.mkdir(exist_ok=True)
    return place / str(name)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TB)


def a_little_too_large(path: Path) -> None:
    path.write_bytes(bytes(100_001))


def link(path: Path) -> None:
    (path.parents[3] / "secret").write_bytes(b"secret")
    path.symlink_to(path.parents[3] / "secret")


BAD: dict[Put, str] = {huge: "TxlogTooLarge", a_little_too_large: "TxlogTooLarge", link: "NoTxlogFile"}


@pytest.mark.parametrize("put", BAD)
@pytest.mark.parametrize("probing", [False, True])
def test_a_bad_one_is_refused_with_a_reason_in_the_tick_that_commits_the_good_ones(
    lake: Lake, put: Put, probing: bool
) -> None:
    book, good, bad = lake.book(), Writes(lake, "good"), Writes(lake, "bad")
    if probing:
        book.inbox.pending_index = PendingIndex(Probe(), 1000)
        good.publish("first")
        bad.publish("before")
        lake.tick(book)
    for number in range(20):
        good.publish(f"good-{number}")
    refused = bad.name.at(bad.name.sequence + 1)
    put(pending(lake, refused))
    tracemalloc.start()
    result = lake.tick(book)
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
    assert result.commit is not None and result.commit.txlogs == 20
    assert lake.folder.reason(refused)["error"] == BAD[put]
    assert result.rejected == [str(refused)]
    assert (result.waiting, result.trouble, lake.pending()) == (0, None, [])
    assert lake.keys() == sorted(good.keys + bad.keys)


def test_one_that_is_too_large_takes_no_room_from_the_good_ones(lake: Lake) -> None:
    room = ReadBudget(2**24)
    book, good = lake.book(), Writes(lake, "good")
    book.inbox.read_budget = room
    taken: list[int] = []
    part = room.part
    book.inbox.read_budget.part = lambda wanted, now: (taken.append(wanted), part(wanted, now))[1]  # type: ignore[method-assign]
    name = good.publish("1")
    size = pending(lake, name).stat().st_size
    huge(pending(lake, Writes(lake, "bad").name.at(1)))
    assert lake.tick(book).commit.txlogs == 1
    assert taken == [size + 2**20]


def test_what_an_incarnation_publishes_behind_one_that_is_too_large_gets_in(lake: Lake) -> None:
    writer, book = Writes(lake, "w"), lake.book()
    writer.publish("1")
    huge(pending(lake, writer.name.at(2)))
    writer.name = writer.name.at(2)
    writer.publish("3")
    for _ in range(3):
        lake.tick(book)
    assert lake.keys() == ["1", "3"]
    assert lake.rejected() == {str(writer.name.at(2)): "TxlogTooLarge"}


def test_one_that_grows_after_it_was_found_is_refused_for_that(lake: Lake) -> None:
    writer, other = Writes(lake, "w"), Writes(lake, "good")
    name, faults = writer.publish("1"), Faults()
    other.publish("2")

    def grow() -> None:
        with pending(lake, name).open("ab") as file:
            file.write(bytes(50_000))

    faults.between(f"read folder/pending/{name}", grow)
    result = lake.tick(lake.book(faults))
    assert result.commit.txlogs == 1 and lake.keys() == ["2"]
    assert "it grew after it was found" in lake.folder.reason(name)["reason"]


def test_one_that_is_in_the_table_already_is_deleted_however_large_it_is(lake: Lake) -> None:
    writer = Writes(lake, "w")
    name = writer.publish("1")
    lake.tick()
    huge(pending(lake, name))
    lake.tick()
    assert (lake.pending(), lake.rejected(), lake.keys()) == ([], {}, ["1"])


def test_what_cannot_be_moved_is_held_said_once_and_makes_nothing_late(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(store: Any, key: str, to: str) -> None:
        raise TooLarge(key)

    monkeypatch.setattr(LocalStore, "move", too_large)
    book, bad = lake.book(), Writes(lake, "bad").name.at(1)
    huge(pending(lake, bad))
    for number in range(3):
        Writes(lake, f"good-{number}").publish(str(number))
        result = lake.tick(book)
        assert (result.commit.txlogs, result.held, result.rejected, result.oldest) == (1, [bad], [], None)
    said = [(record.action, record.levelname) for record in caplog.records if hasattr(record, "txlog")]
    assert said == [("hold", "ERROR")]
    assert lake.folder.reason(bad)["error"] == "TxlogTooLarge"


def test_a_stranger_that_is_too_large_is_moved_too(lake: Lake) -> None:
    huge(pending(lake, "Stranger.txlog.avro"))
    result = lake.tick()
    assert result.rejected == ["Stranger.txlog.avro"] and os.listdir(pending(lake, "x").parent) == []


def test_replay_refuses_it_by_its_size_until_the_limit_is_raised(lake: Lake) -> None:
    writer = Writes(lake, "w")
    name = writer.publish("1")
    lake.tick(lake.book(max_txlog_bytes=1024))
    assert lake.rejected() == {str(name): "TxlogTooLarge"}
    book = lake.book(max_txlog_bytes=1024)
    with pytest.raises(TxlogTooLarge, match="at most 1024 "):
        replay(lake.folder, book.ledger, book.settings, name, lake.clock.now)
    replay(lake.folder, book.ledger, lake.settings, name, lake.clock.now)
    lake.drain()
    assert (lake.keys(), lake.rejected()) == (["1"], {})


def test_replay_of_a_link_in_rejected_follows_nothing(lake: Lake) -> None:
    name, book = Writes(lake, "w").name.at(1), lake.book()
    place = pending(lake, name).parent.parent / "rejected"
    place.mkdir()
    link(place / str(name))
    with pytest.raises(NotPossible, match="no regular file"):
        replay(lake.folder, book.ledger, book.settings, name, lake.clock.now)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", ["replace folder/rejected", "move", "delete folder/pending/bad"])
def test_a_crash_while_one_that_is_too_large_is_refused_is_made_good_by_the_next_tick(
    lake: Lake, step: str, when: str
) -> None:
    good, bad, faults = Writes(lake, "good"), Writes(lake, "bad").name.at(1), Faults()
    good.publish("1")
    huge(pending(lake, bad))
    faults.on(step, when, crash, times=1)
    with pytest.raises(Crash):
        lake.tick(lake.book(faults))
    lake.drain()
    assert (lake.keys(), lake.pending(), lake.rejected()) == (["1"], [], {str(bad): "TxlogTooLarge"})
    kept = [item for item in lake.folder.store.list("rejected/") if not item.key.endswith(".json")]
    assert [item.size for item in kept] == [TB]


def test_marks_that_became_huge_are_written_anew(lake: Lake) -> None:
    writer = Writes(lake, "w")
    writer.publish("1")
    lake.tick()
    huge(pending(lake, "x").parent.parent / "marks.json")
    writer.publish("2")
    lake.tick(seconds=11)
    assert lake.folder.marks() == lake.view().marks_copy and lake.keys() == ["1", "2"]
