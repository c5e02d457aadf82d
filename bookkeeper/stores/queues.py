"""
The queues there are: SQS and Azure Storage Queue, reached with the keys that reach the storage.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from bookkeeper.errors import NotPossible
from bookkeeper.stores.locations import normal
from bookkeeper.stores.object_store import ObjectStore
from bookkeeper.stores.received import Queue
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import together

_WAIT_SECONDS = 10
_HIDDEN_SECONDS = 30
#: of Azure's queue: between two asks; so many times after a message, then twice as long each time
_PAUSE_SECONDS = 0.05
_LIVELY = 100
_DELETES_AT_ONCE = 8


def queue_of(store: Store, queue: str | None) -> tuple[Queue, str, str]:
    """
    The queue to which a storage reports its new objects, the bucket in its messages, and what the store's keys begin
    with there; raises NotPossible where there is none that is known, or it cannot be opened.
    """
    if not isinstance(store, ObjectStore):
        raise NotPossible(f"nothing notifies of new objects in {store.url}")
    if queue is None:
        raise NotPossible(f"no `queue` is named that notifies of new objects in {store.url}")
    parts = urlsplit(normal(store.url))
    kind = {"s3": Sqs, "abfss": AzureQueue}.get(parts.scheme)
    if kind is None:
        raise NotPossible(f"no queue that is known notifies of new objects in {store.url}")
    try:
        return kind(queue, store.options), parts.username or parts.netloc, store.root
    except (ImportError, ValueError) as exc:
        raise NotPossible(f"{queue}: {type(exc).__name__}") from exc


class Sqs:
    """An SQS queue by its URL; receiving waits on the server's side."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        from botocore.session import Session  # type: ignore[import-untyped]

        from bookkeeper.stores.s3 import account

        given = account(options)
        profile = given.pop("profile", None)
        endpoint = options.get("sqs.endpoint")
        given.pop("endpoint_url", None)
        self.url = url
        self.wait_seconds = int(options.get("sqs.wait-seconds", _WAIT_SECONDS))
        self.client = Session(profile=profile).create_client("sqs", endpoint_url=endpoint, **given)

    def receive(self) -> Sequence[tuple[str, Any]]:
        reply = self.client.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=self.wait_seconds
        )
        return [(item["Body"], item["ReceiptHandle"]) for item in reply.get("Messages", ())]

    def done(self, given: Sequence[Any]) -> None:
        entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(given)]
        self.client.delete_message_batch(QueueUrl=self.url, Entries=entries)


class AzureQueue:
    """
    An Azure Storage Queue by its name or URL. It cannot wait on the server's side, so it is asked again and again.

    As long as messages come, and for a hundred asks more, 0.05 s after the last answer; then after pauses that double,
    up to `most_seconds`. An ask costs 2 to 3 ms of CPU.
    """

    def __init__(self, queue: str, options: Mapping[str, Any], most_seconds: float = 1.0) -> None:
        from azure.storage.queue import QueueClient

        if text := options.get("adls.connection-string"):
            self.client = QueueClient.from_connection_string(text, queue.rstrip("/").rpartition("/")[2])
        else:
            self.client = QueueClient.from_queue_url(queue, credential=_credential(options))
        self.pause = threading.Event()
        self.pause_seconds = self.most_seconds = most_seconds
        self.empty = 0

    def receive(self) -> Sequence[tuple[str, Any]]:
        # One page: only an empty one says that there is no other, and to ask for that takes a round trip.
        pages = self.client.receive_messages(messages_per_page=32, visibility_timeout=_HIDDEN_SECONDS).by_page()
        found = [(item.content, item) for item in next(pages, ())]
        if found:
            self.pause_seconds, self.empty = _PAUSE_SECONDS, 0
        else:
            self.pause.wait(self.pause_seconds)
            self.empty += 1
            if self.empty >= _LIVELY:
                self.pause_seconds = min(2 * self.pause_seconds, self.most_seconds)
        return found

    def done(self, given: Sequence[Any]) -> None:
        # There is no request that deletes several.
        together([partial(self.client.delete_message, item) for item in given], _DELETES_AT_ONCE)


def _credential(options: Mapping[str, Any]) -> Any:
    for key in ("adls.account-key", "adls.sas-token"):
        if options.get(key):
            return options[key]
    from azure import identity

    if options.get("adls.client-secret"):
        keys = ("adls.tenant-id", "adls.client-id", "adls.client-secret")
        return identity.ClientSecretCredential(*[options[key] for key in keys])
    return identity.DefaultAzureCredential()
