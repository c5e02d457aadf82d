"""
Rows over HTTP into a table by `writer serve`: small requests at a steady rate, and large bodies as fast as they go.

    python -m benchmarks.rows_over_http [--big]

Real processes: `writer serve`, `bookkeeper run`, and this one, which is the clients. A request's time begins when it is
due, also where all connections wait for answers.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.support.daemon import cpu_seconds, ended, memory_mb, running
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Lake
from tests.http.producer import Producer
from tests.servers.process import free_port

COLUMNS = (
    "kind",
    "requests",
    "requests/s",
    "MB/s",
    "p50, ms",
    "p99, ms",
    "refused",
    "files/min",
    "CPU s/min",
    "most memory, MB",
)
TABLE = [{"name": "n", "type": "long"}, {"name": "note", "type": "string"}]
_SMALL, _LINE = 1024, 256


@dataclass(frozen=True, slots=True)
class Size:
    """Requests a second, for so many seconds; connections, each a producer where named; bytes of a large body."""

    rate: int
    seconds: float
    connections: int
    large: int


SIZES = {
    "toy": Size(50, 2, 60, 2**18),
    "short": Size(1000, 30, 1500, 7 * 2**20),
    "big": Size(1000, 300, 1500, 7 * 2**20),
}


@dataclass
class Taken:
    """Seconds that each request took from when it was due, and how many were refused."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    async def add(self, client: Producer, body: bytes, due: float, idle: "deque[Producer]") -> None:
        """Sends one, and gives the client back."""
        status = await client.post(body)
        self.seconds.append(time.perf_counter() - due)
        self.refused += not 200 <= status < 300
        idle.append(client)


def body(size: int) -> bytes:
    """Rows of some _LINE bytes."""
    line = json.dumps({"n": 1234567, "note": "x" * (_LINE - 27)}).encode() + b"\n"
    return line * max(1, size // len(line))


async def steady(clients: list[Producer], rate: int, seconds: float, text: bytes) -> Taken:
    """So many requests a second, by the clients that are idle."""
    taken, idle, tasks = Taken(), deque(clients), set[asyncio.Task[None]]()
    began = time.perf_counter()
    for count in range(round(rate * seconds)):
        due = began + count / rate
        while time.perf_counter() < due or not idle:
            await asyncio.sleep(0.001)
        task = asyncio.create_task(taken.add(idle.popleft(), text, due, idle))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    await _close(clients)
    return taken


async def flat_out(clients: list[Producer], seconds: float, text: bytes) -> Taken:
    """Each client sends the next one when it has an answer."""
    taken, over = Taken(), time.perf_counter() + seconds

    async def go_on(client: Producer) -> None:
        idle = deque[Producer]()
        while (now := time.perf_counter()) < over:
            await taken.add(client, text, now, idle)

    await asyncio.gather(*map(go_on, clients))
    await _close(clients)
    return taken


async def _close(clients: list[Producer]) -> None:
    for client in clients:
        client.close()
    await asyncio.sleep(0.1)


@contextmanager
def serving(lake: Lake) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """`writer serve` and its port."""
    port = free_port()
    words = ["--folder", lake.folder.store.url, "--name", "door", "--no-tokens", "--http", f"127.0.0.1:{port}"]
    with open(lake.root / "serve.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "writers", "serve", *words], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while b"rows are taken" not in (lake.root / "serve.log").read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("writer serve has not begun")
                time.sleep(0.05)
            yield port, process
        finally:
            process.terminate()
            ended(process)


def measure(chosen: Chosen) -> None:
    """
    One row per kind of request.
    """
    report, size = chosen.report, SIZES[chosen.size]
    report.table("rows-over-http", "Rows over HTTP, two cores for server, bookkeeper and clients", COLUMNS)
    sides = ("1 KiB, published", "1 KiB, named, published", "1 KiB, named, committed", "large bodies")
    for side in sides:
        with chosen.folder() as root:
            lake = Lake.at(root, schema=TABLE, partition_by=[], roll_after="1s")
            with running(lake.path), serving(lake) as (port, process):
                text = body(size.large if side == "large bodies" else _SMALL)
                # the first ones open the writers
                asyncio.run(steady(_clients(side, port, size, "warm"), 50, 1.5, text[:_LINE]))
                files, cpu, began = lake.live_files(), cpu_seconds(process.pid), time.perf_counter()
                if side == "large bodies":
                    work = flat_out([Producer(port) for _ in range(4)], size.seconds, text)
                else:
                    work = steady(_clients(side, port, size, "p"), size.rate, size.seconds, text)
                taken = asyncio.run(work)
                wall = time.perf_counter() - began
                used, memory = cpu_seconds(process.pid) - cpu, memory_mb(process.pid)[1]
                count = len(taken.seconds)
                report.row(
                    side,
                    f"{count:,}",
                    number(count / wall),
                    number((count - taken.refused) * len(text) / wall / 1e6),
                    *(number(percentile(taken.seconds, share) * 1000) for share in (0.5, 0.99)),
                    str(taken.refused),
                    number((lake.live_files() - files) * 60 / wall),
                    number(used * 60 / wall),
                    number(memory),
                )


def _clients(side: str, port: int, size: Size, name: str) -> list[Producer]:
    if "named" not in side:
        return [Producer(port) for _ in range(min(400, size.connections))]
    wait = "published" if "published" in side else "committed"
    count = size.connections if name == "p" else 50
    return [Producer(port, f"{name}-{number}", wait) for number in range(count)]


if __name__ == "__main__":
    alone(measure, __doc__)
