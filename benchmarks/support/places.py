"""
Storages to measure on: local disk, an S3 server, Azurite; with a counting proxy before each server, and its queue.

The servers are those of the tests, fetched the same way. What the storage would tell a queue of, the benchmark tells it
itself: there is no Event Grid here, and the S3 server knows no notifications.
"""

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.counting_proxy import Wire, wire
from benchmarks.support.sqs import Sqs, sqs
from tests.servers.objects import azure_properties, azurite, bucket, s3, s3_properties

LOCAL, AZURITE, VERSITY = "local disk", "Azurite", "S3 server"
Tell = Callable[[str, Sequence[str]], None]


@dataclass
class Place:
    """One storage: the keys that reach it (`near`), and those that reach it past the counting proxy (`far`)."""

    name: str
    base: str
    near: Mapping[str, str] = field(default_factory=dict)
    far: Mapping[str, str] = field(default_factory=dict)
    wires: tuple[Wire, ...] = ()
    #: makes a queue; its name or URL, and what tells it of (bucket, keys) in one message
    queue: Callable[[], tuple[str, Tell]] | None = None

    def fresh(self) -> str:
        """A URL below which there is nothing yet."""
        return f"{self.base}/{uuid.uuid4().hex[:12]}"

    @contextmanager
    def delayed(self, milliseconds: float) -> Iterator[None]:
        """Each request past a proxy takes so much longer meanwhile."""
        for item in self.wires:
            item.delay(milliseconds / 1000)
        yield
        for item in self.wires:
            item.delay(0)


@contextmanager
def local(root: Path) -> Iterator[Place]:
    """
    A folder of this machine, which no proxy delays.
    """
    yield Place(LOCAL, f"file://{root}/local")


@contextmanager
def s3_server(root: Path) -> Iterator[Place]:
    """
    versitygw (moto where there is no Go), and a queue of our own. Raises Unavailable.
    """
    with ExitStack() as stack:
        server, events = stack.enter_context(s3()), stack.enter_context(sqs())
        blobs, queues = stack.enter_context(wire(server.port)), stack.enter_context(wire(events.port, queue=True))
        far = {**server.properties, **s3_properties(blobs.port), "sqs.endpoint": f"http://127.0.0.1:{queues.port}"}
        name, made = f"{VERSITY} ({server.name})", bucket(server, "bench")
        yield Place(name, made, server.properties, far, (blobs, queues), lambda: _told_by(events))


def _told_by(events: Sqs) -> tuple[str, Tell]:
    url = events.url()
    return url, lambda place, keys: events.tell(url, place, keys)


@contextmanager
def azurite_server(root: Path) -> Iterator[Place]:
    """
    Azurite, blobs and queues. Raises Unavailable.
    """
    with ExitStack() as stack:
        server = stack.enter_context(azurite())
        near = server.properties
        port = int(near["adls.connection-string"].rpartition(":")[2].partition("/")[0])
        blobs, queues = stack.enter_context(wire(server.port)), stack.enter_context(wire(port, queue=True))
        far, made = azure_properties(blobs.port, queues.port), bucket(server, "bench")
        yield Place(AZURITE, made, near, far, (blobs, queues), lambda: _storage_queue(near))


def _storage_queue(near: Mapping[str, str]) -> tuple[str, Tell]:
    from azure.storage.queue import QueueClient

    name = f"q{uuid.uuid4().hex[:12]}"
    client: Any = QueueClient.from_connection_string(near["adls.connection-string"], name)
    client.create_queue()

    def tell(place: str, keys: Sequence[str]) -> None:
        of = f"/blobServices/default/containers/{place}/blobs/"
        events = [{"eventType": "Microsoft.Storage.BlobCreated", "subject": of + key} for key in keys]
        client.send_message(base64.b64encode(json.dumps(events).encode()).decode())

    return name, tell


PLACES = {"local": local, "s3": s3_server, "azurite": azurite_server}
