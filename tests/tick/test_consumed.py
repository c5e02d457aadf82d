"""On an object store nothing waits for the deletion of consumed txlogs but the next one; it comes after the marks."""

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import StorageUnavailable
from bookkeeper.serve.loop import TableLoop, close
from bookkeeper.serve.tables import once
from bookkeeper.stores.store import Store
from tests.support.lake import Lake, Writes

SECONDS = 60


class Far:
    """The folder's store, far away: a deletion takes until it is released."""

    at_once = 8

    def __init__(self, store: Store) -> None:
        self.store, self.url = store, store.url
        self.reached, self.released = threading.Event(), threading.Event()
        self.deleted: list[list[str]] = []
        #: what marks.json said when each deletion was sent
        self.marks: list[Any] = []
        self.trouble: StorageUnavailable | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def delete_many(self, keys: Iterable[str]) -> int:
        self.deleted.append([*keys])
        self.marks.append(Folder(self.store).marks())
        self.reached.set()
        assert self.released.wait(SECONDS)
        if self.trouble is not None:
            raise self.trouble
        return self.store.delete_many(self.deleted[-1])


@pytest.fixture
def far(lake: Lake) -> Far:
    return Far(lake.store(lake.made.folder))


def book_on(lake: Lake, far: Far) -> Any:
    book = lake.book()
    book.folder.store = far  # type: ignore[assignment]
    return book


def test_the_next_tick_begins_and_commits_while_the_deletion_is_under_way(lake: Lake, writer: Writes, far: Far) -> None:
    book = book_on(lake, far)
    first = writer.publish("a")
    assert lake.tick(book).commit.txlogs == 1
    assert far.reached.wait(SECONDS)
    assert far.marks[0].marks.is_in(first), "marks.json was out before"
    idle = lake.tick(book)
    assert (idle.commit, idle.pending, idle.waiting, idle.oldest) == (None, 0, 0, None)
    second = writer.publish("b")
    ticking = threading.Thread(target=lake.tick, args=(book,), daemon=True)
    ticking.start()
    for _ in range(SECONDS * 100):
        if lake.keys() == ["a", "b"]:
            break
        ticking.join(0.01)
    assert len(far.deleted) == 1, "the second deletion waits for the first; its commit did not"
    far.released.set()
    ticking.join(SECONDS)
    book.inbox.consumed.wait()
    assert far.deleted == [[f"pending/{first}"], [f"pending/{second}"]]
    assert (lake.keys(), lake.pending(), lake.operations()) == (["a", "b"], [], ["append", "append"])


def test_a_reload_and_a_second_listing_beside_the_deletion_take_nothing_for_new(
    lake: Lake, writer: Writes, far: Far
) -> None:
    book = book_on(lake, far)
    writer.publish("a")
    lake.tick(book)
    book.loaded.forget()
    lake.folder.delete([writer.publish("gone")])
    writer.publish("b")  # a gap before it: the listing is made twice
    ticking = threading.Thread(target=lake.tick, args=(book,), daemon=True)
    ticking.start()
    assert far.reached.wait(SECONDS)
    far.released.set()
    ticking.join(SECONDS)
    book.inbox.consumed.wait()
    assert len(far.deleted) == 2
    assert (lake.keys(), lake.pending(), lake.rejected()) == (["a", "b"], [], {})


def test_what_a_deletion_left_is_deleted_by_a_later_tick(
    lake: Lake, writer: Writes, far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    book = book_on(lake, far)
    far.trouble = StorageUnavailable("busy")
    far.released.set()
    name = writer.publish("a")
    lake.tick(book)
    book.inbox.consumed.wait()
    assert lake.pending() == [str(name)]
    assert "delete" in {getattr(record, "action", "") for record in caplog.records}
    far.trouble = None
    lake.tick(book)
    book.inbox.consumed.wait()
    assert (lake.keys(), lake.pending(), len(far.deleted)) == (["a"], [], 2)


def test_a_table_that_is_closed_and_a_single_tick_wait_for_the_deletion(lake: Lake, writer: Writes, far: Far) -> None:
    writer.publish("a")
    slot = TableLoop("events", lambda: book_on(lake, far))
    releasing = threading.Timer(0.2, far.released.set)
    releasing.start()
    once([slot], Daemon(), lake.clock)
    assert lake.pending() == [] and far.released.is_set()

    far.released.clear()
    writer.publish("b")
    slot.book = book_on(lake, far)
    lake.tick(slot.book)
    threading.Timer(0.2, far.released.set).start()
    close(slot)
    assert (lake.keys(), lake.pending()) == (["a", "b"], [])
