"""A queue of events: real ones on Azurite and moto, and what its troubles cost."""

import base64
import json
import logging
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.paging import ItemPaged
from azure.storage.queue._models import MessagesPaged

from bookkeeper.config.settings import Table
from bookkeeper.console.readable import readable
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.discover.discovery import LOOK, Discovery
from bookkeeper.discover.open import open_discovery
from bookkeeper.discover.queue import QueueDiscovery
from bookkeeper.stores.open import open_store
from bookkeeper.stores.queues import AzureQueue
from tests.servers.objects import azure_properties, bucket
from tests.servers.shared import place, wanted

RUN = TxlogName("w1", new_incarnation(1, bytes(10)), 1)


class Script:
    """A source that answers what it is told to, then nothing for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.gone = list(answers), threading.Event()
        self.deleted: list[Any] = []
        #: every answer was taken and done
        self.idle = threading.Event()

    def receive(self) -> Sequence[tuple[str, Any]]:
        if not self.answers:
            self.idle.set()
            self.gone.wait(0.05)
            return ()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [(text, text) for text in answer]

    def done(self, given: Sequence[Any]) -> None:
        self.deleted += given


def named(text: str) -> list[TxlogName]:
    return [RUN.at(int(text))] if text.isdigit() else []


def woken(found: Discovery, seconds: float = 60) -> bool:
    """Whether it says within some time that it knows something."""
    return readable(found.wakes(), seconds)


def test_what_messages_tell_is_hinted_once_and_the_loop_is_woken() -> None:
    source = Script(["1", "foreign", "2"], ["2", "1"])
    found = QueueDiscovery(source, named, "q")
    try:
        assert woken(found)
        first = found.hints()
        assert first == LOOK  # it may have missed what came before it began
        assert source.idle.wait(60)
        assert found.hints() in (frozenset(), {RUN.at(1), RUN.at(2)})
        assert sorted(source.deleted) == ["1", "1", "2", "2", "foreign"]
    finally:
        found.close()
    assert (found.hints(), found.wakes()) == (LOOK, ())


def test_what_comes_after_its_end_is_left_for_another() -> None:
    asked, ended = threading.Event(), threading.Event()

    class Long(Script):
        def receive(self) -> Sequence[tuple[str, Any]]:
            asked.set()
            ended.wait(60)
            return super().receive()

    source = Long(["1"])
    found = QueueDiscovery(source, named, "q")
    thread = next(thread for thread in threading.enumerate() if thread.name == "receive q")
    assert asked.wait(60)
    found.close()
    ended.set()
    thread.join(60)
    assert not thread.is_alive() and source.deleted == []


class Heard(logging.Handler):
    """What a thread logs, and that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.records, self.some = list[logging.LogRecord](), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.some.set()


def test_a_queue_that_does_not_answer_means_listing() -> None:
    heard, log = Heard(), logging.getLogger("bookkeeper")
    log.addHandler(heard)
    found = QueueDiscovery(Script(*[OSError("secret-token in an url")] * 20), named, "q")
    try:
        assert heard.some.wait(60)
        assert [found.hints(), found.hints()] == [LOOK, LOOK]
        assert "OSError" in heard.records[0].cause  # type: ignore[attr-defined]
        assert "secret" not in str(vars(heard.records[0]))
    finally:
        found.close()
        log.removeHandler(heard)


def _azure() -> tuple[Table, Any, Callable[[str], None]]:
    from azure.storage.queue import QueueClient

    server, url = wanted("azurite"), place("azurite")
    name = f"q{url[-12:]}"
    client = QueueClient.from_connection_string(server.properties["adls.connection-string"], name)
    client.create_queue()
    store = open_store(url, server.properties)

    def tell(key: str) -> None:
        container = store.remote.name  # type: ignore[attr-defined]
        subject = f"/blobServices/default/containers/{container}/blobs/{store.root}{key}"  # type: ignore[attr-defined]
        event = {"eventType": "Microsoft.Storage.BlobCreated", "subject": subject}
        client.send_message(base64.b64encode(json.dumps(event).encode()).decode())

    return Table(name="events", discover="notify", queue=name), store, tell


def _aws() -> tuple[Table, Any, Callable[[str], None]]:
    from botocore.session import get_session

    server = wanted("aws")
    given = {"endpoint_url": server.properties["s3.endpoint"], "region_name": "us-east-1"}
    given |= {"aws_access_key_id": "test", "aws_secret_access_key": "testtest"}
    sqs, client = (get_session().create_client(name, **given) for name in ("sqs", "s3"))
    url = bucket(server, f"told-{RUN.incarnation[-8:]}")
    queue = sqs.create_queue(QueueName="told")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    wish = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}
    client.put_bucket_notification_configuration(Bucket=url.removeprefix("s3://"), NotificationConfiguration=wish)
    sqs.close()
    client.close()
    options = {**server.properties, "sqs.endpoint": server.properties["s3.endpoint"]}
    options["sqs.wait-seconds"] = "0"  # moto does nothing else meanwhile
    return Table(name="events", discover="notify", queue=queue), open_store(f"{url}/q", options), lambda key: None


@pytest.mark.parametrize("made", [_azure, _aws], ids=["azurite", "moto"])
def test_a_real_queue_tells_of_a_published_txlog(made: Callable[[], Any]) -> None:
    table, store, tell = made()
    found = open_discovery(table, store)
    try:
        assert found.hints() == LOOK
        for key in (f"pending/{RUN}", "pending/stranger.txt", f"elsewhere/{RUN.at(2)}", f"pending/{RUN.at(3)}"):
            store.create(key, b"1")
            tell(key)
        names: set[TxlogName] = set()
        while names != {RUN, RUN.at(3)}:
            assert woken(found), f"only {names} came"
            hints = found.hints()
            assert hints != LOOK
            names |= set(hints)
    finally:
        found.close()


def _answering(answers: list[list[str]], asked: list[int]) -> Any:
    """A client whose `receive_messages` is paged as the SDK's is: a page more is one more ask."""

    def ask(**_: Any) -> Any:
        asked.append(1)
        made = [SimpleNamespace(**dict.fromkeys(_MESSAGE), message_text=text) for text in answers.pop(0)]
        return SimpleNamespace(items_property=made)

    def receive(**given: Any) -> Any:
        given = {"results_per_page": given["messages_per_page"], "max_messages": given.get("max_messages")}
        return ItemPaged(ask, **given, page_iterator_class=MessagesPaged)

    return SimpleNamespace(receive_messages=receive)


_MESSAGE = ("message_id", "insertion_time", "expiration_time", "pop_receipt", "time_next_visible", "dequeue_count")


def test_azures_queue_is_queueten_while_messages_come_and_less_often_when_none_came_for_long() -> None:
    queue = AzureQueue("hints", {"adls.connection-string": azure_properties(1, 2)["adls.connection-string"]})
    pauses, deleted, asked = list[float](), list[str](), list[int]()
    queue.pause = SimpleNamespace(wait=pauses.append)  # type: ignore[assignment]
    queue.client = _answering([["m"], *[[]] * 104, ["m"], []], asked)
    assert [item for item, _ in queue.receive()] == ["m"] and not pauses
    for _ in range(106):
        queue.receive()
    assert pauses == [0.05] * 100 + [0.1, 0.2, 0.4, 0.8] + [0.05]
    assert len(asked) == 107
    queue.client = SimpleNamespace(delete_message=deleted.append)  # type: ignore[assignment]
    queue.done(["a", "b", "c"])
    assert sorted(deleted) == ["a", "b", "c"]
