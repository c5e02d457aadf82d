"""Events make a watcher list sooner; they are never believed, so lost, doubled and foreign ones cost nothing."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from bookkeeper.errors import NotPossible
from bookkeeper.stores.open import open_store
from tests.servers.shared import place, wanted
from tests.watch.drops import Drops
from writers.watch.command import run_watch
from writers.watch.events import dropped, receive

NEVER = timedelta(days=10_000)


class Told:
    """Events that come by the script: at which seconds of the drops' clock something is told."""

    def __init__(self, drops: Drops, *at: float) -> None:
        self.began, self.clock, self.at, self.closed = drops.desk.clock(), drops.desk.clock, [*at], False

    def take(self) -> frozenset[str] | None:
        passed = (self.clock() - self.began).total_seconds()
        due = [at for at in self.at if at <= passed]
        self.at = [at for at in self.at if at > passed]
        return frozenset({"something"} if due else ())

    def close(self) -> None:
        self.closed = True


def watched(drops: Drops, told: Any, at: dict[float, Callable[[], None]], until: float, **given: Any) -> list[float]:
    """Runs a watcher with what happens at some seconds; returns the seconds of its listings."""
    began, listings = drops.desk.clock(), list[float]()

    def passed() -> float:
        return (drops.desk.clock() - began).total_seconds()

    def wait(seconds: float) -> object:
        drops.wait(seconds)
        for second in [second for second in at if second <= passed()]:
            at.pop(second)()
        return passed() >= until

    dropped_at = began + timedelta(seconds=min(at, default=0))
    watcher = drops.watcher(wait=wait, receive=lambda store, queue: told, once=False, queue="q", **given)
    objects = watcher._prefix.objects

    def listed() -> Any:
        listings.append(passed())
        return (item._replace(modified=dropped_at) for item in objects())

    watcher._prefix.objects = listed  # type: ignore[method-assign]
    watcher.run()
    return listings


def test_an_event_brings_a_listing_within_a_second_and_doubled_ones_no_row_twice() -> None:
    drops = Drops()
    told = Told(drops, 21.0, 21.0, 21.2, 23.0)
    listings = watched(drops, told, {20: lambda: drops.put("a", "b")}, until=30, every=NEVER)
    assert drops.keys() == ["a", "b"] and drops.dropped() == []
    assert [second for second in listings if 1 < second < 21] == []
    assert any(21 <= second < 22.5 for second in listings) and len(listings) < 10
    assert told.closed


def test_an_object_that_is_too_young_when_its_event_comes_is_taken_when_it_has_settled() -> None:
    drops = Drops()
    told = Told(drops, 5.1)
    watched(drops, told, {5: lambda: drops.put("a")}, until=13, every=NEVER, settle=timedelta(seconds=5))
    assert drops.keys() == ["a"]


def test_a_storm_of_events_lists_once_a_second() -> None:
    drops = Drops()
    listings = watched(drops, Told(drops, *(at / 5 for at in range(100))), {}, until=20, every=NEVER)
    assert 15 <= len(listings) <= 22


def test_what_no_event_tells_of_is_found_by_the_listing() -> None:
    drops = Drops()
    watched(drops, Told(drops), {5: lambda: drops.put("a")}, until=25, every=timedelta(seconds=20))
    assert drops.keys() == ["a"]


@pytest.mark.parametrize(
    ("bucket", "key", "counts"),
    [
        ("b", "drops/a", True),
        ("b", "drops/day=1/a b", True),
        ("b", "drops/_bookkeeper/plan-1", False),
        ("b", "drops/day=1/.a", False),
        ("b", "drops/", False),
        ("b", "other/a", False),
        ("c", "drops/a", False),
    ],
)
def test_only_events_of_what_would_be_taken_count(bucket: str, key: str, counts: bool) -> None:
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}
    assert dropped(json.dumps({"Records": [record]}), "b", "drops/") == (["something"] if counts else [])


def test_a_storage_without_events_is_refused_at_the_start() -> None:
    drops = Drops()
    options: dict[str, Any] = {
        "done": "delete", "nulls": (), "kind": None, "max_object": 2**20, "delimiter": None, "base64_bytes": False,
        "ignore_unknown": False, "every": NEVER, "settle": NEVER, "once": False, "backfill": True, "go_on": None,
        "queue": "q", "patience": NEVER, "metrics": None,
    }  # fmt: skip
    given: Any = (open_store, "drops", options, None, None, None, drops.desk.clock)
    stop: Any = type("Stop", (), {"wait": None})
    with pytest.raises(NotPossible, match="nothing notifies of new objects in memory://"):
        run_watch(drops.url, f"{drops.desk.root}/_bookkeeper", *given[:3], stop, *given[4:])


def test_a_real_queue_wakes_a_watcher_that_would_not_list_for_years() -> None:
    from azure.storage.queue import QueueClient

    server, url = wanted("azurite"), place("azurite")
    name = f"q{url[-12:]}"
    client = QueueClient.from_connection_string(server.properties["adls.connection-string"], name)
    client.create_queue()
    store: Any = open_store(url, server.properties)
    drops = Drops(store=store)
    began, put = monotonic(), list[str]()

    def wait(seconds: float) -> object:
        drops.wait(seconds)
        if not put:
            put.append("a")
            drops.put("a")
            subject = f"/blobServices/default/containers/{store.remote.name}/blobs/{store.root}a"
            event = {"eventType": "Microsoft.Storage.BlobCreated", "subject": subject}
            for _ in range(2):
                client.send_message(base64.b64encode(json.dumps(event).encode()).decode())
        return drops.keys() == ["a"] or monotonic() - began > 60

    drops.watcher(wait=wait, receive=lambda _, queue: receive(store, queue), once=False, every=NEVER, queue=name).run()
    assert drops.keys() == ["a"]
    client.close()
