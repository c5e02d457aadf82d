"""
A proxy before a server: it adds latency to each request and keeps a record of it. A process of its own, so that it
slows down nothing.

Half of the latency passes before the request goes on, half before the reply does, for each request on its own. Opening
a connection costs nothing: a real one costs a round trip more, or three with TLS, and is kept as these are.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

_LOOPBACK = "127.0.0.1"
_MOST_BYTES = 2**20
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_EXPECTS = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)
_LAST = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Record(NamedTuple):
    """One request: when it came and when its reply was sent (seconds of the epoch), what it was, what was answered."""

    start: float
    end: float
    method: str
    path: str
    status: int


@dataclass
class Wire:
    """A running proxy, reached at `port`."""

    port: int
    queue: bool
    _process: "subprocess.Popen[str]"

    def delay(self, seconds: float) -> None:
        """From now on each request takes so much longer."""
        self._asked(f"{seconds}")

    def taken(self) -> list[Record]:
        """The requests that were answered since it was asked last, in the order of their ends."""
        return [Record(*item) for item in json.loads(self._asked("taken"))]

    def _asked(self, command: str) -> str:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return process.stdout.readline()


@contextmanager
def wire(upstream: int, queue: bool = False) -> Iterator[Wire]:
    """
    A running proxy before the server on port `upstream`; it adds no latency until `delay`.
    """
    words = [sys.executable, "-m", __name__, str(upstream)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Wire(int(process.stdout.readline()), queue, process)
        finally:
            process.kill()


@dataclass
class Proxy:
    """Passes on what clients ask the server on port `upstream`."""

    upstream: int
    seconds: float = 0.0
    records: list[Record] = field(default_factory=list)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One client's connection, request after request; it has a connection to the server of its own."""
        line = _Line(self.upstream)
        with suppress(asyncio.IncompleteReadError, OSError):
            while not line.ended:
                await self._pass(reader, writer, line)
        line.close()
        writer.close()

    async def _pass(self, reader: StreamReader, writer: StreamWriter, line: "_Line") -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        start = time.time()
        if _EXPECTS.search(head):
            head = _EXPECTS.sub(b"", head)
            writer.write(_CONTINUE)
        request = head + await _body(reader, head)
        method, path, _ = head.split(b" ", 2)
        await asyncio.sleep(self.seconds / 2)
        status, reply = await line.ask(request, method == b"HEAD")
        await asyncio.sleep(self.seconds / 2)
        self.records.append(Record(start, time.time(), method.decode(), path.decode(), status))
        writer.write(reply)
        await writer.drain()


class _Line:
    """A connection to the server, opened again once when the server closed it while nothing was asked."""

    def __init__(self, port: int) -> None:
        self.port, self.ended = port, False
        self.streams: tuple[StreamReader, StreamWriter] | None = None

    async def ask(self, request: bytes, is_head: bool) -> tuple[int, bytes]:
        """Status and reply; raises IncompleteReadError or OSError when the server does not answer."""
        if self.streams is not None:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                return await self._ask(self.streams, request, is_head)
            self.close()
        self.streams = await asyncio.open_connection(_LOOPBACK, self.port, limit=_MOST_BYTES)
        return await self._ask(self.streams, request, is_head)

    async def _ask(
        self, streams: tuple[StreamReader, StreamWriter], request: bytes, is_head: bool
    ) -> tuple[int, bytes]:
        reader, writer = streams
        writer.write(request)
        await writer.drain()
        status = 100
        while status < 200:
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
        self.ended = _LAST.search(head) is not None
        if is_head or status in (204, 304):
            return status, head
        if not _LENGTH.search(head) and not _CHUNKED.search(head):
            self.ended = True
            return status, head + await reader.read()
        return status, head + await _body(reader, head)

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


async def _body(reader: StreamReader, head: bytes) -> bytes:
    """As it was sent, chunk headers included."""
    if found := _LENGTH.search(head):
        return await reader.readexactly(int(found[1]))
    if not _CHUNKED.search(head):
        return b""
    parts, size = list[bytes](), 1
    while size:
        parts.append(await reader.readuntil(b"\r\n"))
        size = int(parts[-1].partition(b";")[0], 16)
        parts.append(await reader.readexactly(size + 2) if size else b"")
    while parts[-1] != b"\r\n":
        parts.append(await reader.readuntil(b"\r\n"))  # trailers, and the empty line that ends them
    return b"".join(parts)


async def _run(upstream: int) -> None:
    """Serves until its stdin ends; answers each line there with one line."""
    between = Proxy(upstream)

    def command() -> None:
        asked, answer = sys.stdin.readline().strip(), list[Record]()
        if not asked:
            os._exit(0)  # there is nothing to save
        elif asked == "taken":
            answer, between.records = between.records, answer
        else:
            between.seconds = float(asked)
        print(json.dumps(answer), flush=True)

    server = await asyncio.start_server(between.serve, _LOOPBACK, 0, limit=_MOST_BYTES, backlog=1024)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), command)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1])))
