"""
HTTP/1.1 by uvicorn and httptools, with bounds that uvicorn has not: on the bytes of a head, on the time that it takes,
on how slowly a body comes, and on how slowly answers are read.

Requests cost no timer: all connections are looked at once a second.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger(__name__)

MOST_HEAD_BYTES = 16_384
#: a head is there after this, and a client waits so long between two requests
HEAD_SECONDS, IDLE_SECONDS = 10.0, 60.0
#: a body comes with so many bytes a second, from its sixth second on; an answer is read within so many seconds
BODY_RATE, BODY_GRACE, READ_SECONDS = 1024, 5.0, 10.0
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
        if self._paused_at is not None and now - self._paused_at > READ_SECONDS:
            return "answers are not read"
        took = now - self._since
        if self._in_head:
            return "no head" if took > HEAD_SECONDS else ""
        if self.cycle.response_complete:
            seconds = HEAD_SECONDS if self.cycle.more_body else IDLE_SECONDS
            return "no other request" if took > seconds else ""
        slow = self.cycle.more_body and self._body_bytes < BODY_RATE * (took - BODY_GRACE)
        return "a slow body" if slow else ""

    def cut(self, why: str) -> None:
        """Ends the connection, whatever it is about."""
        log.info("connection cut", extra={"action": "cut", "client": str(self.client), "cause": why})
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
            await asyncio.sleep(1)
            now = loop.time()
            for connection in [*connections]:
                if why := connection.late(now):
                    connection.cut(why)
            act()
