"""
A small read-only HTTP server for page, probes and metrics: a few fixed paths, GET and HEAD, nothing else.

A client can cost it one thread for a few seconds: a request has one deadline for all of its bytes and a largest head,
and when more than 32 connections are open, the oldest is shut down.

Servers of others were tried. waitress closes a request that trickles in without an answer, leaves further connections
unanswered once its limit is reached, and hides the host in an absolute request line (`GET http://evil/ HTTP/1.1`) from
the application: it would take subclasses of three undocumented classes to keep what is promised here.
"""

import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from bookkeeper.config.hosts import host_name, served, usual
from bookkeeper.console.exposition import CONTENT_TYPE
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.threads import start

log = logging.getLogger("bookkeeper")

MOST_AT_ONCE = 32
MOST_HEAD_BYTES = 16_384
PATIENCE_SECONDS = 5.0
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
_FOREIGN_HOST = (
    "the request is for the host {name}, and this server does not serve that name. It serves localhost, the address "
    "that is connected to, the host in `listen`, and names in `allowed-hosts` of [bookkeeper] or --allowed-host."
)
_ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one request."""

    body: bytes
    content_type: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, head_only: bool = False) -> bytes:
        """The bytes on the wire."""
        headers = {"Content-Type": self.content_type, "Content-Length": str(len(self.body)), **_ALWAYS, **self.headers}
        head = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{head}\r\n".encode("ascii") + (b"" if head_only else self.body)


#: path -> the function that answers it, given the query; an exception of it is a 500
Routes = Mapping[str, Callable[[Mapping[str, str]], Response]]


class _Refused(Exception):
    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.response = Response(f"{text}\n".encode(), TEXT, status, headers)


def address(listen: str) -> tuple[str, int]:
    """
    Host and port of `host:port`; raises ConfigInvalid.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigInvalid(f"listen = {listen!r}: HOST:PORT is allowed, such as 127.0.0.1:9464 or 0.0.0.0:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


class WebServer:
    """
    Serves `routes` at `listen` from its own threads, from `open` until `close`.

    A request is refused unless its Host is a loopback name, the name or address in `listen`, the address that was
    connected to, or in `allowed_hosts`: else a page of another site could make a browser read it (DNS rebinding).
    """

    def __init__(
        self,
        listen: str,
        routes: Routes,
        patience_seconds: float = PATIENCE_SECONDS,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        self.listen, self.routes, self.patience = listen, routes, patience_seconds
        self._allowed = {usual(name) for name in allowed_hosts}
        self._socket: socket.socket | None = None
        self._closed = threading.Event()
        #: the oldest first
        self._connections: OrderedDict[socket.socket, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address that clients use."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def open(self) -> "WebServer":
        """Starts to serve; raises ConfigInvalid, or NotPossible when the port is taken."""
        host, port = address(self.listen)
        self._allowed.add(usual(host))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=128)
        except OSError as exc:
            raise NotPossible(
                f"cannot listen on {self.listen}: {exc.strerror or exc}",
                hint="Is another one running here? `listen` in [bookkeeper], or --listen, says where: another port, "
                'port 0 for any free one, "" for none.',
            ) from exc
        start(partial(self._accept, self._socket), "web")
        return self

    def close(self) -> None:
        """Stops listening; a response under way is still sent."""
        self._closed.set()
        if self._socket is not None:
            # close() alone does not end an accept() that is under way.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                self._closed.wait(0.1)  # no file descriptor left, or the client is gone: the next one may do better
                continue
            with self._lock:
                self._connections[connection] = None
                oldest = self._connections.popitem(last=False)[0] if len(self._connections) > MOST_AT_ONCE else None
            if oldest is not None:
                _shut_down(oldest)
            try:
                start(partial(self._serve, connection), "web request")
            except RuntimeError:  # the system has no thread left
                self._end(connection)

    def _serve(self, connection: socket.socket) -> None:
        head = b""
        try:
            try:
                head = _read_head(connection, self.patience)
                response = self._respond(head, connection.getsockname()[0])
            except _Refused as refused:
                response = refused.response
            connection.settimeout(self.patience)
            connection.sendall(response.encode(head_only=head.startswith(b"HEAD ")))
        except OSError:
            pass  # the client is gone, or its connection was shut down
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)
        _shut_down(connection)
        connection.close()

    def _respond(self, head: bytes, reached_at: str) -> Response:
        try:
            method, target, protocol = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            parts = urlsplit(target)
            query = dict(parse_qsl(parts.query, max_num_fields=10))
            names = [host_name(text) for text in (parts.netloc, *_hosts(head)) if text]
        except ValueError as exc:
            raise _Refused(400, "this is no HTTP request") from exc
        if not protocol.startswith("HTTP/1."):
            raise _Refused(400, "HTTP/1.1 is spoken here")
        if foreign := [name for name in names if not served(name, reached_at, self._allowed)]:
            raise _Refused(421, _FOREIGN_HOST.format(name=foreign[0]))
        if method not in ("GET", "HEAD"):
            raise _Refused(405, "only GET and HEAD: nothing can be changed here", Allow="GET, HEAD")
        if parts.path not in self.routes:
            raise _Refused(404, f"there is {', '.join(sorted(self.routes))}")
        try:
            return self.routes[parts.path](query)
        except Exception as exc:
            log.exception("request failed", extra={"action": "defect", "path": parts.path})
            raise _Refused(500, "a defect: see the log") from exc


def serve_metrics(listen: str, text: Callable[[], str], allowed_hosts: Iterable[str] = ()) -> WebServer:
    """
    Serves `text`, in Prometheus' format, at /metrics; raises ConfigInvalid, NotPossible when the port is taken.
    """
    routes = {"/metrics": lambda query: Response(text().encode(), CONTENT_TYPE)}
    return WebServer(listen, routes, allowed_hosts=allowed_hosts).open()


def _hosts(head: bytes) -> list[str]:
    """Every Host header; none from a program that sends none (every browser sends one)."""
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    named = [line.partition(b":") for line in lines]
    return [value.decode("latin-1").strip() for name, _, value in named if name.strip().lower() == b"host"]


def _read_head(connection: socket.socket, patience: float) -> bytes:
    """The request's head; one deadline for all of it, however slowly it trickles in."""
    got, until = bytearray(), time.monotonic() + patience
    while b"\r\n\r\n" not in got:
        left = until - time.monotonic()
        if left <= 0:
            raise _Refused(408, "the request took too long")
        if len(got) > MOST_HEAD_BYTES:
            raise _Refused(431, "the request is too large")
        connection.settimeout(left)
        try:
            more = connection.recv(4096)
        except TimeoutError:
            continue
        if not more:
            raise ConnectionError("the client closed the connection")
        got += more
    return bytes(got)


def _shut_down(connection: socket.socket) -> None:
    """Ends what its thread waits for. Only that thread closes it: the number could be another connection's by then."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
