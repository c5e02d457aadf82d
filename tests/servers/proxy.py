"""
An HTTP proxy on loopback that plays faults on the way to a REST catalog or an object store.
"""

import http.client
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.line import Answered, Line, Lost, Unanswered
from tests.servers.process import LOOPBACK

_COMMIT = re.compile(r"/v1/(?:[^/]+/)?namespaces/[^/]+/tables/[^/]+(?:\?.*)?")
_LONGEST_SECONDS = 60
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_commit(self) -> bool:
        """Whether it commits to a table that is there."""
        return self.method == "POST" and _COMMIT.fullmatch(self.path) is not None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class Proxy:
    """
    Reached at `uri`; commits go over `line`, or with `all_requests` everything.
    """

    upstream: int
    line: Line = field(default_factory=Line)
    all_requests: bool = False
    port: int = 0
    seen: list[Request] = field(default_factory=list)

    @property
    def uri(self) -> str:
        """Where a client finds it."""
        return f"http://{LOOPBACK}:{self.port}"

    def use(self, line: Line, all_requests: bool = False) -> None:
        """From now on requests go over this line."""
        line.arrived = lambda reply: bool(reply.status < 300)
        self.line, self.all_requests = line, all_requests

    def answer(self, request: Request) -> Reply:
        """The reply to a request; raises Lost or Answered when a fault says so."""
        self.seen.append(request)
        if request.is_commit or self.all_requests:
            return self.line.play(lambda: self.forward(request))
        return self.forward(request)

    def forward(self, request: Request) -> Reply:
        """Sends it to the server; raises Lost when that is down."""
        connection = http.client.HTTPConnection(LOOPBACK, self.upstream, timeout=60)
        try:
            # The client has had its leave to send the body, from here.
            headers = {key: value for key, value in request.headers.items() if key.lower() != "expect"}
            connection.request(request.method, request.path, request.body, headers)
            reply = connection.getresponse()
            return Reply(reply.status, reply.getheaders(), reply.read())
        except OSError as exc:
            raise Lost from exc
        finally:
            connection.close()


@contextmanager
def proxy(upstream: int, kind: type[Proxy] = Proxy) -> Iterator[Proxy]:
    """
    A running proxy before the server on port `upstream`; it plays no faults until it is told to.
    """
    made = kind(upstream)
    server = _Server((LOOPBACK, 0), type("_Bound", (_Handler,), {"made": made}))
    server.daemon_threads = True
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    made: Proxy
    protocol_version = "HTTP/1.1"
    # Two small writes and Nagle's algorithm cost 40 ms a reply.
    wbufsize = -1
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # The host stays as the client named it: S3's signature covers it.
        headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP}
        try:
            reply = self.made.answer(Request(self.command, self.path, headers, body))
        except Unanswered:
            self._wait_for_the_client_to_give_up()
            return
        except Lost:
            self.close_connection = True
            return
        except Answered as error:
            reply = _error(error.status)
        self._send(reply)

    def _wait_for_the_client_to_give_up(self) -> None:
        self.close_connection = True
        self.connection.settimeout(_LONGEST_SECONDS)
        with suppress(OSError):
            self.connection.recv(1)

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        for key, value in reply.headers:
            if key.lower() not in _HOP:
                self.send_header(key, value)
        length = next((value for key, value in reply.headers if key.lower() == "content-length"), None)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _error(status: int) -> Reply:
    what = {"message": "the proxy says so", "type": "InternalServerError", "code": status}
    return Reply(status, [("Content-Type", "application/json")], json.dumps({"error": what}).encode())
