"""Storage that fails: what is retried, what is refused, and what is never sent twice with other bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from bookkeeper.errors import (
    AlreadyExists,
    Backpressure,
    Fenced,
    NotPossible,
    StorageUnavailable,
    UnknownOutcome,
)
from bookkeeper.stores.open import open_store
from tests.support.desk import Broken, Desk, Ledger, Tampered, noisy_rows, only, rows
from writers.retries import ATTEMPTS


@dataclass
class Faults:
    """Stores whose calls of one operation fail a number of times, before or after they took effect."""

    operation: str
    times: int
    after: bool = False
    error: Callable[[], BaseException] = lambda: StorageUnavailable("503")
    calls: list[str] = field(default_factory=list)

    def __call__(self, url: str) -> Any:
        idle = lambda operation, key: None  # noqa: E731
        first, second = (idle, self._fail) if self.after else (self._fail, idle)
        return Tampered(open_store(url), first, second)

    def _fail(self, operation: str, key: str) -> None:
        if operation == self.operation and not key.startswith("card"):
            self.calls.append(key)
            if self.times:
                self.times -= 1
                raise self.error()


class GoesDark:
    """Stores that answer nothing any more from the first create on, which is applied or not."""

    def __init__(self, applied: bool) -> None:
        self.applied, self.dark = applied, False

    def __call__(self, url: str) -> Any:
        return Tampered(open_store(url), self._before, self._after)

    def _before(self, operation: str, key: str) -> None:
        self.dark = self.dark or (operation == "create" and not self.applied)
        self._after("", "")

    def _after(self, operation: str, key: str) -> None:
        self.dark = self.dark or operation == "create"
        if self.dark:
            raise StorageUnavailable("no route to host")


def _broken(desk: Desk, operation: str, times: int, **more: Any) -> Faults:
    desk.stores = Faults(operation, times, **more)
    return desk.stores


def test_a_short_outage_while_publishing_is_waited_out(desk: Desk) -> None:
    faults = _broken(desk, "create", 3)
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
    assert desk.keys() == ["a"]
    assert len(faults.calls) == 4
    assert desk.clock.waits == [0.2, 0.4, 0.8]


def test_a_lost_reply_finds_its_own_bytes(desk: Desk) -> None:
    faults = _broken(desk, "create", 1, after=True)
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
    assert len(set(faults.calls)) == 1
    assert desk.keys() == ["a"]


def test_a_lost_reply_of_a_txlog_that_was_consumed_meanwhile_is_published_again_and_recognised(desk: Desk) -> None:
    ledger = Ledger(desk)
    faults = _broken(desk, "create", 1, after=True)
    tick_once = iter([ledger.tick])

    def wait(seconds: float) -> None:
        next(tick_once, lambda: None)()

    with desk.writer(wait=wait) as writer:
        writer.write(rows("a"))
        writer.publish()
    assert len(faults.calls) == 2
    ledger.tick()
    assert ledger.keys() == ["a"]
    assert desk.txlogs() == []


def test_a_txlog_that_is_consumed_while_its_put_is_looked_at_was_published(desk: Desk) -> None:
    ledger = Ledger(desk)
    lost = iter([True])

    def consume(operation: str, key: str) -> None:
        if operation == "read" and key.startswith("pending/"):
            ledger.tick()

    def lose(operation: str, key: str) -> None:
        if operation == "create" and next(lost, False):
            raise StorageUnavailable("no reply")

    desk.stores = lambda url: Tampered(open_store(url), consume, lose)
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        writer.write(rows("b"))
    ledger.tick()
    assert ledger.keys() == ["a", "b"]


@pytest.mark.parametrize("applied", [False, True])
def test_an_unknown_outcome_stops_the_run(desk: Desk, applied: bool) -> None:
    faults = GoesDark(applied)
    desk.stores = faults
    writer = desk.writer()
    with writer:
        writer.write(rows("a"))
        with pytest.raises(UnknownOutcome):
            writer.publish()
        faults.dark = False
        for refused in (writer.publish, lambda: writer.write(rows("b")), writer.roll):
            with pytest.raises(UnknownOutcome):
                refused()
    assert desk.keys() == (["a"] if applied else [])


@pytest.mark.parametrize("applied", [False, True])
def test_a_publish_with_an_unknown_outcome_leaves_its_data_files_where_they_are(desk: Desk, applied: bool) -> None:
    """Nothing even tries to delete one: the txlog may be there."""
    asked: list[str] = []
    faults = GoesDark(applied)
    desk.stores = lambda url: Tampered(faults(url), lambda operation, key: asked.append(operation))
    with desk.writer() as writer:
        writer.write(rows("a"))
        with pytest.raises(UnknownOutcome):
            writer.publish()
    assert "create" in asked and "delete_many" not in asked


def test_every_retry_sends_the_same_bytes(desk: Desk) -> None:
    sent = []

    def stores(url: str) -> Any:
        store = open_store(url)
        create = store.create

        def failing(key: str, data: bytes) -> None:
            sent.append((key, data))
            if len(sent) < 3:
                raise StorageUnavailable("503")
            create(key, data)

        store.create = failing  # type: ignore[method-assign]
        return store

    desk.stores = stores
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
    assert len(sent) == 3
    assert len(set(sent)) == 1


def test_an_interrupt_while_publishing_leaves_the_outcome_unknown(desk: Desk) -> None:
    _broken(desk, "create", 1, error=Broken)
    with desk.writer() as writer:
        writer.write(rows("a"))
        with pytest.raises(Broken):
            writer.publish()
        with pytest.raises(UnknownOutcome):
            writer.publish()
    assert desk.txlogs() == []


def test_a_foreign_txlog_under_our_name_fences_the_run(desk: Desk) -> None:
    _broken(desk, "create", 1, error=lambda: AlreadyExists("it is there"))
    with desk.writer() as writer:
        writer.write(rows("a"))
        read = writer._folder.store.read
        foreign = lambda key, most=None: b"other bytes" if "pending/" in key else read(key, most)  # noqa: E731
        writer._folder.store.__dict__["read"] = foreign
        with pytest.raises(Fenced):
            writer.publish()


def test_publish_may_be_called_again_after_an_outage_of_the_data_store(desk: Desk) -> None:
    faults = _broken(desk, "upload", 100)
    with desk.writer() as writer:
        writer.write(rows("a"))
        with pytest.raises(StorageUnavailable):
            writer.publish()
        assert desk.txlogs() == []
        faults.times = 0
        name = writer.publish()
    assert name is not None
    assert name.sequence == 1
    assert desk.keys() == ["a"]


def test_write_takes_no_more_rows_while_finished_files_cannot_be_stored(desk: Desk) -> None:
    desk.set_card(target_file_size=20_000)
    faults = _broken(desk, "upload", 100)
    with desk.writer() as writer:
        writer.write(noisy_rows(["a"], 30_000))
        with pytest.raises(StorageUnavailable):
            writer.write(rows("b"))
        assert writer.unpublished_rows == 1
        faults.times = 0
        writer.write(rows("c"))
    assert desk.keys() == ["a", "c"]


def test_a_write_that_fails_half_way_ends_the_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = desk.writer()
    writer.write(rows("a"))
    monkeypatch.setattr("bookkeeper.format.parquet_writer.ParquetFile.add", _out_of_memory)
    with writer:
        with pytest.raises(MemoryError):
            writer.write(rows("b"))
        with pytest.raises(NotPossible, match="half-way"):
            writer.publish()
    assert desk.txlogs() == []


def _out_of_memory(*_: Any) -> None:
    raise MemoryError


def test_a_full_queue_makes_publish_wait_until_the_bookkeeper_catches_up(desk: Desk) -> None:
    desk.set_card(pending_limit=2)
    ledger = Ledger(desk)

    def wait(seconds: float) -> None:
        desk.clock.wait(seconds)
        if len(desk.clock.waits) == 3:
            ledger.tick()

    with desk.writer(wait=wait) as writer:
        for key in "abc":
            writer.write(rows(key))
            writer.publish()
    assert desk.clock.waits == [1.0, 1.0, 1.0]
    ledger.tick()
    assert ledger.keys() == ["a", "b", "c"]


def test_a_queue_that_stays_full_raises_backpressure_and_keeps_the_rows(desk: Desk) -> None:
    desk.set_card(pending_limit=1)
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        writer.write(rows("b"))
        with pytest.raises(Backpressure, match="1 txlogs are pending"):
            writer.publish()
        assert sum(desk.clock.waits) == 300
        desk.folder.delete([item.name for item in desk.folder.pending()])
        name = writer.publish()
    assert name is not None
    assert name.sequence == 2


def test_a_stop_ends_the_wait_at_once(desk: Desk) -> None:
    desk.set_card(pending_limit=1)
    writer = desk.writer(wait=lambda seconds: True)
    writer.write(rows("a"))
    writer.publish()
    desk.clock.move(seconds=2)
    writer.write(rows("b"))
    with pytest.raises(Backpressure):
        writer.publish()


def test_pending_is_listed_at_most_once_a_second(desk: Desk) -> None:
    listings: list[str] = []
    desk.stores = lambda url: Tampered(open_store(url), lambda operation, key: listings.append(operation))
    with desk.writer() as writer:
        before = listings.count("list")
        for number in range(5):
            writer.write(rows(str(number)))
            writer.publish()
        assert listings.count("list") == before + 1
        desk.clock.move(seconds=1)
        writer.write(rows("later"))
        writer.publish()
        assert listings.count("list") == before + 2
        desk.clock.move(seconds=-3600)
        writer.write(rows("earlier"))
        writer.publish()
        assert listings.count("list") == before + 3


def test_a_file_older_than_half_the_orphan_age_is_written_again_under_a_new_name(desk: Desk) -> None:
    desk.set_card(orphan_age_ms=3_600_000)
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.roll()
        desk.clock.move(minutes=31)
        writer.write(rows("b"))
        writer.publish()
    files = only(desk.txlogs()).files
    assert [file.path[-13:] for file in files] == ["00003.parquet", "00002.parquet"]
    assert desk.keys() == ["a", "b"]
    stored = [item.key for item in open_store(f"{desk.root}/data").list("")]
    assert len(stored) == 3, "the first file is left to the orphan sweep"


def test_a_publish_in_which_the_process_stood_still_for_the_orphan_age_is_not_confirmed(desk: Desk) -> None:
    desk.set_card(orphan_age_ms=3_600_000)

    def stand_still(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("pending/"):
            desk.clock.move(minutes=61)

    desk.stores = lambda url: Tampered(open_store(url), stand_still)
    with desk.writer() as writer:
        writer.write(rows("a"))
        for why in ("may have been swept", "not known"):
            with pytest.raises(UnknownOutcome, match=why):
                writer.publish()
    assert len(desk.txlogs()) == 1


def test_the_writer_deletes_nothing(desk: Desk) -> None:
    operations: list[str] = []
    desk.stores = lambda url: Tampered(open_store(url), lambda operation, key: operations.append(operation))
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish(position=b"1")
        writer.write(rows("b"))
    assert set(operations) <= {"read", "read_tagged", "read_versions", "read_many", "list", "create", "upload", "size"}


def test_retries_are_bounded(desk: Desk) -> None:
    faults = _broken(desk, "upload", 100)
    with desk.writer() as writer:
        writer.write(rows("a"))
        with pytest.raises(StorageUnavailable):
            writer.roll()
        assert len(faults.calls) == ATTEMPTS
        faults.times = 0
