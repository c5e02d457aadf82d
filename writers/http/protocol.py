"""
A connection with bounds: how long its heads may take, how slowly its bodies may come and its answers may be read.

uvicorn bounds none of them. Each connection notes when its present phase began; one task of the loop (`watch`) looks at
all of them each second and cuts off those that are late. Nothing else keeps a connection that does nothing.
"""

import asyncio
import resource
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: a head has arrived whole within HEAD_SECONDS of its first byte, or of the connection; an answer is read, and what
#: comes of a body behind its answer ends, within UNREAD_SECONDS
HEAD_SECONDS, UNREAD_SECONDS = 10.0, 10.0
#: of a body on average, after its first BODY_SECONDS
LEAST_RATE, BODY_SECONDS = 16 * 2**10, 10.0
MOST_CONNECTIONS, MOST_HEAD_BYTES, READ_BYTES = 2000, 16_384, 2**16
_WATCH_SECONDS = 1.0
#: for all that is no connection of a client
_OTHER_FILES = 200


class BoundedProtocol(H11Protocol):
    """One connection, on the server's loop."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # of what comes behind a request that waits for its answer, so much is kept
        with suppress(AttributeError):
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._since, self._got, self._phase = self.loop.time(), 0, "head"
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            _oldest([*self.connections]).transport.abort()

    def data_received(self, data: bytes) -> None:
        self._got += len(data)
        super().data_received(data)
        self.look()

    @property
    def waits_since(self) -> float | None:
        """When it began to wait for a head; None while it has a request."""
        return self._since if self._phase in ("head", "idle") and not self.transport.is_closing() else None

    def look(self) -> None:
        """Cuts it off where it is late."""
        now, phase = self.loop.time(), self._now()
        if phase != self._phase:
            self._since, self._got, self._phase = now, 0, phase
        elif self._is_late(now - self._since):
            self.transport.abort()

    def _now(self) -> str:
        if self.flow.write_paused or self.transport.is_closing():
            return "unread"
        if self.cycle is None or self.cycle.response_complete:
            if self.conn.their_state is h11.SEND_BODY:
                return "unread"
            # between two requests it is uvicorn's to close it
            return "head" if self.cycle is None or self.conn.trailing_data[0] else "idle"
        return "body" if self.cycle.more_body else "answer"

    def _is_late(self, seconds: float) -> bool:
        if self._phase == "body":
            return self._got < LEAST_RATE * (seconds - BODY_SECONDS)
        return seconds > {"head": HEAD_SECONDS, "unread": UNREAD_SECONDS}.get(self._phase, seconds)


def _oldest(connections: Iterable[Any]) -> Any:
    """The one that has waited longest for a head; the newest one waits too."""
    waiting = [item for item in connections if item.waits_since is not None]
    return min(waiting, key=lambda item: item.waits_since)


async def watch(connections: set[Any]) -> None:
    """
    Looks at all connections of a server each second.
    """
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        for connection in [*connections]:
            connection.look()


def allow_connections() -> None:
    """
    Lets this process open so many connections, as far as it may.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
