"""What a commit writes, on real object stores: under way at once, and whatever part of it a crash leaves undone."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any

import pytest

from bookkeeper.errors import Retry
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.chaos.objects import _rows
from tests.servers.line import Lost
from tests.servers.objects import azure_properties, s3_properties
from tests.servers.proxy import Proxy, Reply, Request, proxy
from tests.servers.shared import place, wanted
from tests.stores.wires import OBJECTS
from tests.support.faults import Crash
from tests.support.lake import Lake
from tests.support.pyiceberg_files import sqlite_catalog
from writers.writer import Writer

#: how the requests of one append's flight are recognised: data file, manifest, manifest list, metadata.json
FLIGHT = ("data/", "-m0.avro", "/snap-", ".metadata.json")
SECONDS = 30


class Queue(Lake):
    """A queue whose catalog is a file, whose all else is on an object store, and whose writer has published a row."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.properties = kind, dict(wanted(kind).properties)
        catalog = sqlite_catalog(root, **{**self.properties, "warehouse": place(kind)})
        super().__init__(root, catalog=catalog, file_names=None)
        self.writer = Writer.open(self.made.folder, "w1", clock=self.clock, stores=self.store)

    def publish(self, key: str) -> None:
        self.writer.write(_rows([key], self.clock))
        self.writer.publish()

    def tick(self, book: Any = None, **move: float) -> Any:
        done = super().tick(book, **move)
        book.inbox.consumed.wait()
        return done


@pytest.fixture(params=OBJECTS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Queue:
    made = Queue(request.param, tmp_path)
    made.publish("a")
    made.tick(made.book())
    made.publish("b")
    return made


class AllAtOnce(Proxy):
    """Holds each request of a flight until all of them are there; one that comes alone is never answered."""

    there: Barrier | None = None

    def forward(self, request: Request) -> Reply:
        if self.there is not None and any(part in request.path for part in FLIGHT):
            try:
                self.there.wait(SECONDS)
            except BrokenBarrierError:
                raise Lost from None
        return super().forward(request)


def test_lookups_manifest_list_and_metadata_are_under_way_at_the_same_time(queue: Queue) -> None:
    with proxy(wanted(queue.kind).port, AllAtOnce) as between:
        assert isinstance(between, AllAtOnce)
        far = {"azurite": azure_properties, "s3": s3_properties}[queue.kind](between.port)
        book = queue.book(far=far)
        queue.tick(book)
        for key in ("c", "d"):
            queue.publish(key)
        between.there = Barrier(2 + 3)  # two data files
        queue.tick(book)
        between.there = None
    assert (queue.keys(), queue.pending()) == (["a", "b", "c", "d"], [])


class Dying:
    """A store whose user dies in the middle of the flight: only the writes and lookups with these numbers are done."""

    def __init__(self, store: Store, done: Sequence[int]) -> None:
        self.store, self.done, self.url, self.at_once = store, done, store.url, store.at_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def create(self, key: str, data: bytes) -> None:
        self._survive(key)
        self.store.create(key, data)

    def heads(self, keys: Sequence[str]) -> Any:
        self._survive(keys[0])
        return self.store.heads(keys)

    def _survive(self, key: str) -> None:
        if next(number for number, part in enumerate(FLIGHT) if part in f"/{key}") not in self.done:
            raise Crash


PARTS = [done for count in range(len(FLIGHT) + 1) for done in combinations(range(len(FLIGHT)), count)]


def test_a_crash_in_the_middle_of_a_flight_leaves_every_row_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, done in enumerate(PARTS):
        with monkeypatch.context() as patched:
            dies_in_flight(queue, patched, done)
        assert queue.tick(queue.book()).commit.txlogs == 1
        queue.publish(f"more-{number}")
    queue.tick(queue.book())
    assert queue.keys() == sorted(["a", "b", *(f"more-{number}" for number in range(len(PARTS)))])
    assert queue.pending() == []


def dies_in_flight(queue: Queue, patched: pytest.MonkeyPatch, done: Sequence[int]) -> None:
    """A bookkeeper that ends in its flight, with this part of it done; with all of it, at the swap."""

    def store(url: str, *_: Any) -> Any:
        return Dying(open_store(url, queue.properties), done)

    # Not by the module's name: a test that loads modules anew leaves another one under it.
    patched.setitem(type(queue.catalog)._prepared.__globals__, "open_store", store)
    if len(done) == len(FLIGHT):
        patched.setattr(type(queue.catalog), "_swap", _crash)
    with pytest.raises(Crash):
        queue.tick(queue.book(store=store))


def test_three_bookkeepers_without_a_lease_commit_every_row_once(queue: Queue) -> None:
    ended, defects = Event(), list[BaseException]()

    def runs() -> None:
        book = queue.book()
        book.inbox.limits = replace(book.inbox.limits, txlogs=2)
        try:
            while not ended.is_set():
                with suppress(Retry):
                    book.tick(queue.clock.now)
            book.inbox.consumed.wait()
        except BaseException as error:  # noqa: BLE001 - it is shown by the test's thread
            defects.append(error)

    running = [Thread(target=runs, daemon=True) for _ in range(3)]
    for thread in running:
        thread.start()
    for number in range(9):
        queue.clock.move(seconds=0.2)
        queue.publish(f"k{number}")
    for _ in range(600):
        if not queue.pending():
            break
        ended.wait(0.1)
    ended.set()
    for thread in running:
        thread.join(SECONDS)
    assert defects == []
    assert (queue.keys(), queue.pending()) == (sorted(["a", "b", *(f"k{number}" for number in range(9))]), [])


def _crash(*_: Any) -> None:
    raise Crash
