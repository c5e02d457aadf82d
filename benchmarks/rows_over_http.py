"""
Rows over HTTP: `writer serve` under a steady rate of small requests, and with large bodies one after the other.

    python -m benchmarks.rows_over_http [--big]

Real processes on this machine: `bookkeeper run`, `writer serve`, and the clients, which share its cores. A request is
sent when its time has come, also where earlier ones have no answer; its time counts from then.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from benchmarks.support.daemon import cpu_seconds, ended, memory_mb, running
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Lake

COLUMNS = (
    "requests",
    "requests/s",
    "MB/s",
    "answered p50, ms",
    "p99, ms",
    "not taken",
    "files/min",
    "writer, CPU s/min",
    "writer, MB",
    "bookkeeper, CPU s/min",
    "clients, CPU s/min",
)
TABLE = [{"name": "n", "type": "long"}, {"name": "note", "type": "string"}]
_TAKEN = (200, 202)


@dataclass(frozen=True, slots=True)
class Size:
    """Requests a second, seconds of each side, and the first of them that are not measured; producers; bytes a body."""

    rate: int
    seconds: float
    lead: float
    producers: int
    large: int


SIZES = {
    "toy": Size(50, 2, 0, 20, 20_000),
    "short": Size(1000, 30, 5, 1500, 2**20),
    "big": Size(1000, 120, 10, 1500, 2**20),
}


@dataclass
class Answers:
    """When each request was due and answered, seconds of the monotonic clock, and by which status."""

    taken: list[tuple[float, float]] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    bytes: int = 0

    def add(self, due: float, at: float, status: int, size: int) -> None:
        """One more."""
        self.statuses[status] += 1
        if status in _TAKEN:
            self.taken.append((due, at))
            self.bytes += size


class Connection:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, head: bytes, body: bytes) -> int:
        """The status of the answer."""
        self._writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length))
        return int(answer[9:12])

    @property
    def is_closed(self) -> bool:
        """Whether the server has closed it, which it does after a while."""
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        """Closes it."""
        self._writer.close()


class Clients:
    """Connections to the server, as many as are wanted at once."""

    def __init__(self, port: int) -> None:
        self._port, self._free = port, list[Connection]()
        self.answers = Answers()

    async def post(self, due: float, head: bytes, body: bytes) -> None:
        """Sends one request by a connection that is free, or a new one."""
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed:
                break
        else:
            connection = Connection(*await asyncio.open_connection("127.0.0.1", self._port, limit=2**20))
        status = await connection.post(head, body)
        self.answers.add(due, time.monotonic(), status, len(body))
        self._free.append(connection)

    def close(self) -> None:
        """Closes all of them."""
        for connection in self._free:
            connection.close()


def head(query: str = "", *more: str) -> bytes:
    """The head of a request, but for the length of its body."""
    lines = [f"POST /v1/tables/events/rows{query} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/x-ndjson"]
    return "".join(f"{line}\r\n" for line in (*lines, *more)).encode()


def rows(number: int, size: int) -> bytes:
    """Rows of 1 KiB, of so many bytes in all."""
    row = json.dumps({"n": number, "note": "x" * 990}).encode() + b"\n"
    return row * max(1, size // len(row))


async def paced(clients: Clients, size: Size, request: Callable[[int], bytes]) -> None:
    """Requests at a steady rate."""
    began, sent, going = time.monotonic(), 0, set[asyncio.Task[None]]()
    while sent < size.rate * size.seconds:
        due = began + sent / size.rate
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        task = asyncio.create_task(clients.post(due, request(sent), rows(sent, 1)))
        going.add(task)
        task.add_done_callback(going.discard)
        sent += 1
    await asyncio.gather(*going)


async def large(clients: Clients, size: Size, request: Callable[[int], bytes]) -> None:
    """Large bodies, 16 at once, each behind the one before it."""
    until, body = time.monotonic() + size.seconds, rows(0, size.large)

    async def one_after_the_other() -> None:
        while time.monotonic() < until:
            await clients.post(time.monotonic(), request(0), body)

    await asyncio.gather(*(one_after_the_other() for _ in range(16)))


@contextmanager
def serving(lake: Lake, port: int, max_body: int) -> Iterator["subprocess.Popen[bytes]"]:
    """
    `writer serve`, once it listens.
    """
    given = ["--folder", lake.folder.store.url, "--name", "door", "--no-tokens", "--http", f"127.0.0.1:{port}"]
    given += ["--max-body", str(max_body), "--memory", str(max(2**26, 64 * max_body)), "--log-level", "error"]
    with open(lake.root / "writer.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "writers", "serve", *given], stdout=log, stderr=log)
        try:
            asyncio.run(_listens(port, process))
            yield process
        finally:
            process.terminate()
            ended(process)


async def _listens(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        with suppress(ConnectionRefusedError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"writer serve ended with {process.returncode}")


def side(chosen: Chosen, name: str, load: Callable[[Clients, Size], "asyncio.Future[None]"], size: Size) -> None:
    """One row."""
    with chosen.folder() as root:
        lake = Lake.at(root, schema=TABLE, partition_by=[])
        with running(lake.path) as book, serving(lake, port := _free_port(), 2 * size.large) as server:
            used = [cpu_seconds(server.pid), cpu_seconds(book.pid), time.process_time()]
            began, files = time.monotonic(), lake.live_files()

            async def act() -> Answers:
                clients = Clients(port)
                await load(clients, size)
                clients.close()
                return clients.answers

            answers = asyncio.run(act())
            seconds = time.monotonic() - began
            after = [cpu_seconds(server.pid), cpu_seconds(book.pid), time.process_time()]
            memory = memory_mb(server.pid)[1]
            time.sleep(2)  # what is published last is committed
            files = lake.live_files() - files
        late = [1000 * (at - due) for due, at in answers.taken if due - began >= size.lead]
        cpu = [number((now - before) * 60 / seconds) for before, now in zip(used, after, strict=True)]
        chosen.report.row(
            name,
            number(len(answers.taken) / seconds),
            number(answers.bytes / seconds / 1e6),
            *(number(percentile(late, share)) if late else "-" for share in (0.5, 0.99)),
            str(sum(count for status, count in answers.statuses.items() if status not in _TAKEN)),
            number(files * 60 / seconds),
            cpu[0],
            number(memory),
            *cpu[1:],
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def measure(chosen: Chosen) -> None:
    """
    A row for each way to send.
    """
    size = SIZES[chosen.size]
    title = f"{size.rate:,} requests of 1 KiB a second over HTTP, and bodies of {size.large:,} bytes"
    chosen.report.table("rows-over-http", title, COLUMNS)

    def named(query: str) -> Callable[[int], bytes]:
        def request(number: int) -> bytes:
            producer, sequence = number % size.producers, number // size.producers + 1
            return head(query, f"Producer: p-{producer}", f"Sequence: {sequence}")

        return request

    plain = head()
    side(chosen, "unnamed: published", lambda clients, size: paced(clients, size, lambda number: plain), size)
    for query, what in (("?wait=published", "named: published"), ("", "named: committed")):
        side(chosen, what, lambda clients, size, query=query: paced(clients, size, named(query)), size)  # type: ignore[misc]
    side(chosen, "unnamed, large bodies", lambda clients, size: large(clients, size, lambda number: plain), size)


if __name__ == "__main__":
    alone(measure, __doc__)
