"""What a tick leaves to be read of itself, also when it ended by an error."""

from datetime import timedelta

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.errors import CatalogUnavailable, CommitUnknown, NameMismatch, StorageUnavailable
from bookkeeper.serve.loop import TableLoop, tick_once
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes


def test_a_turn_says_how_old_the_oldest_txlog_is_that_it_left(lake: Lake, writer: Writes) -> None:
    first = lake.clock.now
    writer.publish("a")
    lake.clock.move(seconds=7)
    writer.publish("b")
    waiting = lake.tick(lake.book(window=timedelta(minutes=1)))
    assert (waiting.oldest, waiting.waiting, len(waiting.left)) == (first, 2, 2)
    done = lake.tick()
    assert (done.oldest, done.left) == (None, {})


def test_a_commit_says_how_long_it_took_and_how_old_its_txlogs_were(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    lake.clock.move(seconds=2)
    writer.publish("b")
    book = lake.book(faults)

    def slow() -> None:
        lake.clock.move(seconds=3)

    faults.between("commit_table", slow)
    commit = lake.tick(book, seconds=1).commit
    assert [round(age.total_seconds()) for age in commit.visible_after] == [6, 4]
    assert commit.took == timedelta(seconds=3)


def test_a_turn_says_why_a_txlog_was_rejected(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.put("pending/not-a-name.txlog.avro", b"x")
    done = lake.tick()
    assert {name: type(why) for name, why in done.reasons.items()} == {"not-a-name.txlog.avro": NameMismatch}
    assert done.oldest is None


def test_a_turn_counts_attempts_that_were_refused(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    faults.on("commit_table", "after", CommitUnknown, times=1)
    done = lake.tick(lake.book(faults))
    assert (done.refused, done.oldest) == (1, None)


@pytest.mark.parametrize("where", ["load_table", "replace folder/marks.json"])
def test_what_a_tick_saw_and_did_is_known_though_it_failed(
    lake: Lake, writer: Writes, faults: Faults, where: str
) -> None:
    writer.publish("a")
    book = lake.book(faults)
    slot = TableLoop("events", lambda: book)
    down = {"load_table": CatalogUnavailable}.get(where, StorageUnavailable)
    faults.on(where, "before", down)
    tick_once(slot, Daemon(), lake.clock.move(seconds=1))
    assert slot.error is not None and slot.last_result is not None
    committed = slot.last_result.commit is not None
    assert (committed, len(slot.last_result.left)) == ((False, 1) if where == "load_table" else (True, 0))
    assert lake.keys() == (["a"] if committed else [])
    faults.on("list", "before", StorageUnavailable)
    tick_once(slot, Daemon(), lake.clock.move(seconds=60))
    assert slot.last_result is not None and slot.last_result.commit is None  # nothing is told twice


def test_a_table_that_cannot_be_opened_has_begun_nothing(lake: Lake) -> None:
    def refused() -> None:
        raise CatalogUnavailable("down")

    slot = TableLoop("events", refused)  # type: ignore[arg-type]
    tick_once(slot, Daemon(), lake.clock.now)
    assert slot.last_result is None and slot.failures == 1
