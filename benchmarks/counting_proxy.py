"""
A proxy before a server that counts requests by the kinds a bill has; a process of its own, so that it slows nobody.
"""

import http.client
import multiprocessing
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, urlsplit

from tests.servers.line import Lost
from tests.servers.process import LOOPBACK
from tests.servers.proxy import Proxy, Reply, Request, proxy

LEASE = "LEASE"


def kind(request: Request, queue: bool = False) -> str:
    """
    What a bill calls a request to S3 or to Azure's blobs; everything at a queue is QUEUE, what renews a lease LEASE.
    """
    where = urlsplit(request.path)
    asked = parse_qs(where.query, keep_blank_values=True)
    if queue:
        return "QUEUE"
    if where.path.endswith("/lease"):
        return LEASE
    if "list-type" in asked or asked.get("comp") == ["list"]:
        return "LIST"
    if request.method == "POST":
        return "DELETE" if "delete" in asked else "OTHER"
    return request.method


class Lean(Proxy):
    """Keeps a connection for each client's: one request then costs a millisecond less."""

    kept = threading.local()

    def forward(self, request: Request) -> Reply:
        """Sends it; raises Lost when the server is down. One that closed a connection meanwhile is called again."""
        connection = getattr(self.kept, "connection", None)
        self.kept.connection = None
        if connection is not None:
            with suppress(OSError, http.client.HTTPException):
                return self._sent(connection, request)
            connection.close()
        try:
            return self._sent(http.client.HTTPConnection(LOOPBACK, self.upstream), request)
        except (OSError, http.client.HTTPException) as exc:
            raise Lost from exc

    def _sent(self, connection: http.client.HTTPConnection, request: Request) -> Reply:
        connection.request(request.method, request.path, request.body, request.headers)
        reply = connection.getresponse()
        answer = Reply(reply.status, reply.getheaders(), reply.read())
        self.kept.connection = connection
        return answer


@dataclass
class Wire:
    """A counting proxy, reached at `port`."""

    port: int
    _pipe: Connection

    def counted(self) -> Counter[str]:
        """What has passed since it was asked last."""
        self._pipe.send(True)
        found: Counter[str] = self._pipe.recv()
        return found


@contextmanager
def wire(upstream: int, queue: bool = False) -> Iterator[Wire]:
    """
    A running proxy before the server on port `upstream`.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_count, args=(upstream, queue, theirs), daemon=True)
    process.start()
    try:
        yield Wire(ours.recv(), ours)
    finally:
        ours.send(False)
        process.join(20)
        if process.is_alive():
            process.kill()


def _count(upstream: int, queue: bool, pipe: Connection) -> None:
    with proxy(upstream, Lean) as between:
        pipe.send(between.port)
        while pipe.recv():
            seen, between.seen = between.seen, []
            pipe.send(Counter(kind(request, queue) for request in seen))
