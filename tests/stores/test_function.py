"""The bookkeeper as a function: an event is the wish for a tick, and is acknowledged when the tick was done."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bookkeeper.function import NotDone, function
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores.open import open_store
from tests.support.configured import Queue, new_queue

BATCH = {"Records": [{"messageId": "m1", "body": "{}"}, {"messageId": "m2", "body": "{}"}]}


def clock() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    made = new_queue("s3", tmp_path)
    made.run("bookkeeper", "init")
    return made


def test_each_call_commits_what_is_pending(queue: Queue) -> None:
    handle = function(queue.settings, clock)
    keys = queue.generate("w1", files=2)
    assert handle(BATCH, None) == {"batchItemFailures": [], "late": {}}
    assert queue.keys() == dict.fromkeys(keys, 1)
    assert handle({"eventType": "Microsoft.Storage.BlobCreated"}) == {"batchItemFailures": [], "late": {}}


def test_while_another_is_at_work_the_event_comes_again(queue: Queue) -> None:
    handle = function(queue.settings, clock)
    other = lease_on(open_store(queue.folder, queue.settings.storage), "lease", "other")
    assert other.hold(clock())
    assert [item["itemIdentifier"] for item in handle(BATCH)["batchItemFailures"]] == ["m1", "m2"]
    with pytest.raises(NotDone, match="another bookkeeper"):
        handle({})
    other.release()
    assert handle({})["late"] == {}


def test_a_table_that_cannot_be_reached_leaves_the_event_unacknowledged(queue: Queue) -> None:
    catalog = queue.config.with_name("catalog")
    catalog.rename(queue.config.with_name("away"))
    with pytest.raises(NotDone, match="events"):
        function(queue.settings, clock)({})
