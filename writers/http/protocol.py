"""
HTTP/1.1 by uvicorn and httptools, with bounds that uvicorn has not: on the bytes of a head, on the time that it takes,
on how slowly a body comes, on how slowly answers are read, and on the requests that are sent before earlier answers.

Requests cost no timer: all connections are looked at once a second.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from writers.http.headers import MOST_HEAD_BYTES

log = logging.getLogger(__name__)

#: connections at once: the one that has waited longest for a head makes room for the next
MOST_CONNECTIONS = 4000
#: a head is there within HEAD_SECONDS of its first byte, or of the connection; an answer is read, and what comes of a
#: body behind its answer ends, within UNREAD_SECONDS; a client waits so long between two requests
HEAD_SECONDS, UNREAD_SECONDS, IDLE_SECONDS = 10.0, 10.0, 60.0
#: bytes a second of a body on average, after its first BODY_SECONDS
LEAST_RATE, BODY_SECONDS = 16 * 2**10, 10.0
_LOOK_SECONDS = 1.0
#: bytes of chunks' sizes and trailers, beside eight for each byte of the body
_MOST_AROUND = 2**20
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    "a head of more than %d bytes",
)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begins()
        #: whether a head has begun, or a first one is waited for
        self._in_head = True
        self._paused_at: float | None = None
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def _begins(self) -> None:
        self._since = self.loop.time()
        #: bytes of this request in all, and those of its body
        self._bytes, self._body_bytes = 0, 0

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if self._in_head and self._bytes > MOST_HEAD_BYTES:
            self._refuse_head()
        elif self._bytes > _MOST_AROUND + 9 * self._body_bytes:
            self.cut("a body in tiny chunks")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._begins()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._in_head, self._since = False, self.loop.time()
        if size > MOST_HEAD_BYTES:
            self._refuse_head()
            raise ValueError(_TOO_LARGE[1] % MOST_HEAD_BYTES)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()
        if self.pipeline:  # uvicorn reads on after each answer, and one client's requests came to gigabytes
            self.flow.pause_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Connections that wait are looked at by `is_late`."""

    def pause_writing(self) -> None:
        self._paused_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._paused_at = None
        super().resume_writing()

    def late(self, now: float) -> str:
        """What takes this client too long, "" where nothing does; `now` by the loop's clock."""
        if self._paused_at is not None and now - self._paused_at > UNREAD_SECONDS:
            return "answers are not read"
        took = now - self._since
        if self._in_head:
            return "no head" if took > HEAD_SECONDS else ""
        if self.cycle.response_complete:
            seconds = UNREAD_SECONDS if self.cycle.more_body else IDLE_SECONDS
            return "no other request" if took > seconds else ""
        slow = self.cycle.more_body and self._body_bytes < LEAST_RATE * (took - BODY_SECONDS)
        return "a slow body" if slow else ""

    @property
    def waits_since(self) -> float | None:
        """When it began to wait for a head; None while it has a request."""
        waits = self._in_head or (self.cycle.response_complete and not self.cycle.more_body)
        return self._since if waits and not self.transport.is_closing() else None

    def _make_room(self) -> None:
        connections: Iterable[Any] = self.connections
        waiting = [(item.waits_since, item) for item in connections if item.waits_since is not None]
        min(waiting, key=lambda item: item[0])[1].cut("too many connections")

    def cut(self, why: str) -> None:
        """Ends the connection, whatever it is about."""
        log.info("connection cut", extra={"action": "cut", "client": str(self.client), "cause": why})
        if (raw := self.transport.get_extra_info("socket")) is not None:
            # What is not read yet is thrown away, else the kernel would keep it for minutes.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _refuse_head(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_LARGE[0])
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)


async def every_second(connections: set[Any], act: Callable[[], None]) -> None:
    """
    Cuts late connections, and calls `act`, once a second until it is cancelled.
    """
    loop = asyncio.get_running_loop()
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = loop.time()
            for connection in [*connections]:
                if why := connection.late(now):
                    connection.cut(why)
            act()
