"""What a tick costs in requests, which is what object stores bill: counted on the wire."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from urllib.parse import urlsplit

import pytest

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.config.settings import Catalog
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.probe import Probe
from tests.chaos.objects import _rows
from tests.discover.pending import Told
from tests.servers.line import Line
from tests.servers.objects import azure_properties, s3_properties
from tests.servers.proxy import Proxy, Reply, Request, proxy
from tests.servers.shared import place, wanted
from tests.stores.wires import OBJECTS
from tests.support.lake import Lake
from writers.writer import Writer


class Counted(Lake):
    """A queue on nothing but storage, with a proxy that counts before its bookkeeper."""

    def __init__(self, kind: str, between: Proxy) -> None:
        near = {**wanted(kind).properties, "py-catalog-impl": STORAGE, "warehouse": place(kind)}
        super().__init__(Path(), catalog=Catalog("lake", near), file_names=None)
        far = {"azurite": azure_properties, "s3": s3_properties}[kind](between.port)
        self.between, self.counted, self.writers = between, self.book(far=far), dict[str, Writer]()

    def publish(self, writers: int) -> None:
        """One txlog of each."""
        for number in range(writers):
            name = f"w{number}"
            if name not in self.writers:
                self.writers[name] = Writer.open(self.made.folder, name, clock=self.clock, stores=self.store)
            self.writers[name].write(_rows([f"{name}-{self.clock.now.timestamp()}"], self.clock))
            self.writers[name].publish()

    def requests(self, seconds: float = 1) -> int:
        """How many one tick makes."""
        line = Line()
        self.between.use(line, all_requests=True)
        self.tick(self.counted, seconds=seconds)
        self.counted.inbox.consumed.wait()
        return line.requests


@contextmanager
def counted(kind: str) -> Iterator[Counted]:
    """A queue whose first tick, which opens and loads everything, is over."""
    with proxy(wanted(kind).port) as between:
        made = Counted(kind, between)
        made.publish(5)
        made.requests()
        yield made
        assert len(made.table().scan().to_arrow()) > 0


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_idle_tick_is_one_listing_and_a_look_at_the_marks(kind: str) -> None:
    with counted(kind) as queue:
        assert queue.requests() == 2


@dataclass
class Watched(Proxy):
    """A proxy that notes each request and its answer, as they happen."""

    events: list[str] = field(default_factory=list)
    #: requests that let the server say whether it wants their bodies: a round trip more
    hesitant: list[str] = field(default_factory=list)
    #: the ends of requests the first of which wait until all of them are under way
    together: set[str] = field(default_factory=set)
    barrier: Barrier = field(default_factory=lambda: Barrier(1))

    def at_once(self, *ends: str) -> None:
        self.together, self.barrier = {*ends}, Barrier(len(ends), timeout=60)

    def forward(self, request: Request) -> Reply:
        end = urlsplit(request.path).path.rpartition("/")[2]
        self.events.append(f"{request.method} {end}")
        if any(name.lower() == "expect" for name in request.headers):
            self.hesitant.append(end)
        if end in self.together and request.method == "GET":
            self.together.remove(end)
            self.barrier.wait()
        reply = super().forward(request)
        self.events.append(f"{request.method} {end} {reply.status}")
        return reply

    def named(self, *parts: str) -> list[str]:
        """The events with one of these in their names."""
        return [event for event in self.events if any(part in event for part in parts)]


RECORDS = ("card.json", "marks.json")


@contextmanager
def watched(kind: str) -> Iterator[tuple["Counted", Watched]]:
    """A queue behind a proxy that watches, with a commit of its own behind it."""
    with proxy(wanted(kind).port, Watched) as between:
        assert isinstance(between, Watched)
        made = Counted(kind, between)
        made.publish(2)
        made.requests()
        made.requests(seconds=11)
        between.events.clear()
        yield made, between


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_reload_is_two_conditional_reads_at_once_and_reads_no_manifest_list(kind: str) -> None:
    with watched(kind) as (queue, between):
        queue.publish(1)
        queue.requests()
        between.events.clear()
        queue.requests()
        idle = len(between.named(*RECORDS))
        between.events.clear()
        between.at_once(*RECORDS)
        queue.requests(seconds=11)
        assert not between.together and len(between.named(*RECORDS)) - idle <= 2 * 2, "each is asked and answered"
        assert not between.named("snap-", ".avro", "card.json 2", "marks.json 2")
        answered = [between.events.index(f"GET {record} 304") for record in RECORDS]
        assert max(answered) < min(between.events.index(event) for event in between.named("version-hint"))


@pytest.mark.parametrize("kind", OBJECTS)
def test_after_an_error_nothing_that_was_remembered_is_asked_for_by_its_tag(kind: str) -> None:
    with watched(kind) as (queue, between):
        queue.counted.loaded.forget()
        queue.requests()
        for record in RECORDS:
            assert next(event for event in between.named(record) if event != f"GET {record}").startswith(
                f"GET {record} 20"
            )


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_hinted_tick_begins_with_the_txlog_itself(kind: str) -> None:
    with watched(kind) as (queue, between):
        queue.publish(2)
        names = frozenset(item.name for item in queue.folder.pending())
        queue.counted.inbox.pending_index.discovery, queue.counted.inbox.pending_index.look_every = Told(names), 1000
        between.at_once(*[str(name) for name in names])
        queue.requests()
        assert {*between.events[:2]} == {f"GET {name}" for name in names} and not between.together
        assert not between.named("HEAD") and len(between.named(*[f"GET {name}" for name in names])) == 2 * 2


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_commit_costs_two_requests_a_txlog_and_some_that_do_not_grow(kind: str) -> None:
    with counted(kind) as queue:
        costs = []
        for writers in (1, 5, 9):
            queue.publish(writers)
            costs.append(queue.requests())
        # Read the txlog, look for its file; where there are no batches, delete the txlog.
        each = 3 if kind == "azurite" else 2
        assert [costs[1] - costs[0], costs[2] - costs[1]] == [4 * each, 4 * each]
        # LIST, manifest, manifest list, metadata.json, version hint, marks.json; S3 deletes all txlogs by one request.
        assert costs[0] == 9, costs


@pytest.mark.parametrize("kind", OBJECTS)
def test_no_put_waits_for_leave_to_send_its_body(kind: str) -> None:
    with watched(kind) as (queue, between):
        queue.publish(1)
        queue.requests()
        assert between.named("PUT marks.json") and not between.hesitant


def test_probing_asks_for_each_writer_and_lists_now_and_then() -> None:
    with counted("azurite") as queue:
        queue.counted.inbox.pending_index = PendingIndex(Probe(), look_every=5)
        queue.publish(5)
        queue.requests()  # lists, and so meets the writers
        # After rows rewrites/ is listed once more: in the fourth.
        assert [queue.requests() for _ in range(6)] == [1 + 5] * 3 + [1 + 5 + 1] + [2] + [1 + 5]
