"""
The queues there are: SQS and Azure Storage Queue, reached with the keys that reach the storage.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

_WAIT_SECONDS = 10
_HIDDEN_SECONDS = 30


class Sqs:
    """An SQS queue by its URL; receiving waits on the server's side."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        from botocore.session import Session

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
    """An Azure Storage Queue by its name or URL; it cannot wait on the server's side, so it is asked every second."""

    def __init__(self, queue: str, options: Mapping[str, Any], every_seconds: float = 1.0) -> None:
        from azure.storage.queue import QueueClient

        if text := options.get("adls.connection-string"):
            self.client = QueueClient.from_connection_string(text, queue.rstrip("/").rpartition("/")[2])
        else:
            self.client = QueueClient.from_queue_url(queue, credential=_credential(options))
        self.pause = threading.Event()
        self.every_seconds = every_seconds

    def receive(self) -> Sequence[tuple[str, Any]]:
        pages = self.client.receive_messages(messages_per_page=32, max_messages=32, visibility_timeout=_HIDDEN_SECONDS)
        found = [(item.content, item) for item in pages]
        if not found:
            self.pause.wait(self.every_seconds)
        return found

    def done(self, given: Sequence[Any]) -> None:
        for item in given:
            self.client.delete_message(item)


def _credential(options: Mapping[str, Any]) -> Any:
    for key in ("adls.account-key", "adls.sas-token"):
        if options.get(key):
            return options[key]
    from azure import identity

    if options.get("adls.client-secret"):
        keys = ("adls.tenant-id", "adls.client-id", "adls.client-secret")
        return identity.ClientSecretCredential(*[options[key] for key in keys])
    return identity.DefaultAzureCredential()
