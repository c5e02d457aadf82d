"""
A small read-only HTTP server for what a program says of itself: a few fixed paths, GET and HEAD, nothing else.

Whoever asks can cost it one thread for a few seconds: a request has one deadline for all of its bytes, its head a
most, and when too many are under way, the one that has been asking longest is hung up on.
"""

import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from bookkeeper.config.hosts import host_name, served, usual
from bookkeeper.console.exposition import CONTENT_TYPE
from bookkeeper.errors import ConfigInvalid, NotPossible

log = logging.getLogger("bookkeeper")

MOST_AT_ONCE = 32
MOST_HEAD_BYTES = 16_384
PATIENCE_SECONDS = 5.0
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout"}
_REASONS |= {
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_STRANGE = (
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
class Answer:
    """What is answered."""

    body: bytes
    kind: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


#: path -> what answers it, given the query; it may raise, that is a 500
Routes = Mapping[str, Callable[[Mapping[str, str]], Answer]]


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def address(listen: str) -> tuple[str, int]:
    """
    Host and port of `host:port`; raises ConfigInvalid.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigInvalid(f"listen = {listen!r}: HOST:PORT is allowed, such as 127.0.0.1:9464 or 0.0.0.0:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Web:
    """
    Serves `routes` at `listen` from threads of its own, from `open` until `close`.

    A request whose Host is neither a loopback name, nor the name or address of `listen`, nor the address that was
    connected to, nor in `allowed_hosts`, is refused: a page of another site could make a browser ask by its own name.
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
        self._open: OrderedDict[socket.socket, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it is reached."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def open(self) -> "Web":
        """Begins to answer; raises ConfigInvalid, or NotPossible when the port is taken."""
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
        threading.Thread(target=self._accept, args=(self._socket,), name="web", daemon=True).start()
        return self

    def close(self) -> None:
        """Answers nobody any more."""
        self._closed.set()
        if self._socket is not None:
            # Closing alone does not end an accept that is under way.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                asking, _ = listening.accept()
            except OSError:
                self._closed.wait(0.1)  # no file descriptor left, or they hung up: the next one may do better
                continue
            self._admit(asking)
            try:
                threading.Thread(target=self._serve, args=(asking,), name="web request", daemon=True).start()
            except RuntimeError:  # no thread to be had
                self._end(asking)

    def _admit(self, asking: socket.socket) -> None:
        with self._lock:
            self._open[asking] = None
            longest = self._open.popitem(last=False)[0] if len(self._open) > MOST_AT_ONCE else None
        if longest is not None:
            _hang_up(longest)

    def _end(self, asking: socket.socket) -> None:
        with self._lock:
            self._open.pop(asking, None)
        _hang_up(asking)
        asking.close()

    def _serve(self, asking: socket.socket) -> None:
        try:
            answer, bare = self._heard(asking)
            asking.settimeout(self.patience)
            asking.sendall(_bytes(answer, bare))
        except OSError:
            pass  # they hung up, or were hung up on
        finally:
            self._end(asking)

    def _heard(self, asking: socket.socket) -> tuple[Answer, bool]:
        try:
            head = _head(asking, self.patience)
        except _Refused as refused:
            return _said(refused.status, str(refused)), False
        return self._answer(head, asking.getsockname()[0]), head.startswith(b"HEAD ")

    def _answer(self, head: bytes, reached_at: str) -> Answer:
        try:
            method, target, protocol = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            parts = urlsplit(target)
            query = dict(parse_qsl(parts.query, max_num_fields=10))
            names = [host_name(text) for text in (parts.netloc, *_hosts(head)) if text]
        except ValueError:
            return _said(400, "this is no HTTP request")
        if not protocol.startswith("HTTP/1."):
            return _said(400, "HTTP/1.1 is spoken here")
        if strange := [name for name in names if not served(name, reached_at, self._allowed)]:
            return _said(421, _STRANGE.format(name=strange[0]))
        return self._routed(method, parts.path, query)

    def _routed(self, method: str, path: str, query: Mapping[str, str]) -> Answer:
        if method not in ("GET", "HEAD"):
            return _said(405, "only GET and HEAD: nothing can be changed here", {"Allow": "GET, HEAD"})
        route = self.routes.get(path)
        if route is None:
            return _said(404, f"there is {', '.join(sorted(self.routes))}")
        try:
            return route(query)
        except Exception:
            log.exception("request failed", extra={"action": "defect", "path": path})
            return _said(500, "a defect: see the log")


def serve_metrics(listen: str, text: Callable[[], str], allowed_hosts: Iterable[str] = ()) -> Web:
    """
    Serves `text`, in Prometheus' format, as /metrics there; raises ConfigInvalid, NotPossible when the port is taken.
    """
    routes = {"/metrics": lambda query: Answer(text().encode(), CONTENT_TYPE)}
    return Web(listen, routes, allowed_hosts=allowed_hosts).open()


def _hosts(head: bytes) -> list[str]:
    """What the request calls this server; nothing when the program that asks does not say (no browser does that)."""
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    named = [line.partition(b":") for line in lines]
    return [value.decode("latin-1").strip() for name, _, value in named if name.strip().lower() == b"host"]


def _head(asking: socket.socket, patience: float) -> bytes:
    """The request's head; one deadline for all of it, however slowly it drips."""
    got, until = bytearray(), time.monotonic() + patience
    while b"\r\n\r\n" not in got:
        left = until - time.monotonic()
        if left <= 0:
            raise _Refused(408, "the request took too long")
        if len(got) > MOST_HEAD_BYTES:
            raise _Refused(431, "the request is too large")
        asking.settimeout(left)
        try:
            more = asking.recv(4096)
        except TimeoutError:
            continue
        if not more:
            raise ConnectionError("they hung up")
        got += more
    return bytes(got)


def _hang_up(asking: socket.socket) -> None:
    """Ends what its thread waits for; only that thread closes it, or it would read another one's."""
    with suppress(OSError):
        asking.shutdown(socket.SHUT_RDWR)


def _said(status: int, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(f"{text}\n".encode(), TEXT, status, headers or {})


def _bytes(answer: Answer, bare: bool) -> bytes:
    lines = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **_ALWAYS, **answer.headers}
    head = f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Status')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{head}\r\n".encode("ascii") + (b"" if bare else answer.body)
