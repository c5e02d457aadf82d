"""
Two instances of `writer serve` behind a proxy, and a bookkeeper, all killed at random while producers send.

    python -m tests.http.kills --producers 300 --requests 10 --seed 7
    python -m tests.http.kills --producers 1500 --requests 14 --rows 50 --away 60

With --away the storage goes away for so many seconds, and then the catalog (locked: nothing can be committed), and all
else goes on. A named producer sends each request until it is answered 2xx, which counts its rows once; a client without
a name sends each once, and an answer below 300 counts. A hostile producer sends wrong sequences. In the end the table
is compared.
"""

import argparse
import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.http.producer import Producer
from tests.http.served import ndjson, numbers, queue
from tests.servers.process import free_port
from tests.support.configured import configured, program
from tests.support.crew import Crew

BOOKKEEPER, EVIL = "bookkeeper", "evil"
#: numbers of the rows of a producer begin with its own, times this
_EACH = 10**6
#: of rows of the hostile producer, and of clients without a name
_EVIL, _UNNAMED = 10**12, 10**13


@dataclass(frozen=True)
class Size:
    """How much of everything; between two kills `pause` seconds pass on average, and there are `kills` at least."""

    producers: int
    requests: int = 10
    rows: int = 50
    unnamed: int = 5
    instances: int = 2
    pause: float = 2.0
    kills: int = 2
    #: seconds that the storage is away, and then the catalog
    away: float = 0.0


@dataclass
class Account:
    """What was sent, what is in the table, and what is wrong."""

    named: set[int] = field(default_factory=set)
    unnamed: set[int] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    #: answers while the storage or the catalog was away, but in its first second
    away: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    double: int = 0
    lost: int = 0
    refused: int = 0

    def compare(self, rows: list[int]) -> None:
        """With the numbers in the table."""
        counts = Counter(row for row in rows if row < _EVIL)
        self.missing = len(self.named - counts.keys())
        self.double = sum(count - 1 for count in counts.values()) + len(counts.keys() - self.named)
        self.lost = len(self.unnamed - {*rows})

    @property
    def right(self) -> bool:
        return not (self.missing or self.double or self.lost or self.refused)


class Proxy:
    """Each connection goes to the next instance, or to another one where that is not there."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._next = ports, 0
        self._tasks = set[asyncio.Task[None]]()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, to = await self._connected()
            await asyncio.gather(_piped(reader, to), _piped(there, writer))
        except (OSError, asyncio.CancelledError):  # cancelled: all is over
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def end(self) -> None:
        """Cuts off all connections."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # what is closing closes

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._next += 1
        for turn in range(len(self._ports)):
            try:
                return await asyncio.open_connection("127.0.0.1", self._ports[(self._next + turn) % len(self._ports)])
            except OSError:
                continue
        raise OSError("no instance is there")


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class World:
    """A table with its bookkeeper, and instances."""

    def __init__(self, folder: Path, size: Size, seed: int) -> None:
        self.size, self.random, self.account = size, Random(seed), Account()
        self.table = queue(folder)
        self.ports = [free_port() for _ in range(size.instances)]
        section = {"identifier": self.table.settings.identifier, "roll-after": "1s"}
        keeper = program("bookkeeper", configured(self.table, bookkeeper={"every": "200ms"}, tables__events=section))
        self.crew = Crew({BOOKKEEPER: keeper, **{f"door {port}": self._door(port) for port in self.ports}}, folder)
        self._done = False
        #: what is away now, and the task that all producers wait for
        self._away = ""
        self._outages: asyncio.Task[None] | None = None

    def _door(self, port: int) -> list[str]:
        words = ["serve", "--folder", self.table.made.folder, "--name", "door", "--no-tokens"]
        return [sys.executable, "-m", "writers", *words, "--http", f"127.0.0.1:{port}"]

    async def run(self) -> None:
        """Until each producer has sent all; then all is committed."""
        for role in self.crew.commands:
            self.crew.start(role)
        for port in self.ports:
            await _is_up(port)
        proxy = Proxy(self.ports)
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self._outages = asyncio.create_task(self._go_away())
        beside = [self._outages, *(asyncio.create_task(act) for act in (self._kill(), self._evil(port)))]
        beside += [asyncio.create_task(self._unnamed(number, port)) for number in range(self.size.unnamed)]
        await asyncio.gather(*(self._named(number, port) for number in range(self.size.producers)))
        self._done = True
        await asyncio.gather(*beside)
        server.close()
        await proxy.end()

    async def _named(self, number: int, port: int) -> None:
        client = Producer(port, f"p{number}", self.random.choice(["committed", "published"]))
        while client.sequence < self.size.requests:
            first = number * _EACH + client.sequence * self.size.rows
            rows = range(first, first + self.size.rows)
            status = await self._sent(client, rows)
            if 200 <= status < 300:
                self.account.named |= {*rows}
            elif status in (0, 429, 503):
                client.close()
                await asyncio.sleep(self.random.random())
            else:
                self.account.refused += 1
                return
        assert self._outages is not None
        while self.account.kills.total() < self.size.kills or not self._outages.done():
            await asyncio.sleep(0.1)
        self._outages.result()
        client.wait = "committed"  # what was answered 202 was kept: sent again, it is committed or taken now
        await self._confirmed(client, number)

    async def _confirmed(self, client: Producer, number: int) -> None:
        """A client that was answered 202 keeps what is above `committed`; here it sends all of it again."""
        for sequence in range(1, self.size.requests + 1):
            first = number * _EACH + (sequence - 1) * self.size.rows
            client.sequence = sequence - 1
            while not 200 <= await self._sent(client, range(first, first + self.size.rows)) < 300:
                client.close()
                await asyncio.sleep(self.random.random())
        client.close()

    async def _unnamed(self, number: int, port: int) -> None:
        client, sent = Producer(port), 0
        while not self._done:
            first, sent = _UNNAMED + number * _EACH * _EACH + sent, sent + 10
            rows = range(first, first + 10)
            if 200 <= await self._sent(client, rows) < 300:
                self.account.unnamed |= {*rows}
            else:
                client.close()
                await asyncio.sleep(0.2)
        client.close()

    async def _evil(self, port: int) -> None:
        client, turn = Producer(port, EVIL), 0
        while not self._done:
            turn += 1
            sequence = self.random.choice([1, turn, turn // 2 + 1, 10**9, self.random.randint(1, 10**17)])
            status = await client.post(ndjson(_EVIL + turn), sequence)
            self.account.statuses[f"{EVIL}: {status}"] += 1
            await asyncio.sleep(0.01)
        client.close()

    async def _sent(self, client: Producer, rows: range) -> int:
        status = await client.post(ndjson(*rows))
        self.account.statuses[str(status)] += 1
        if self._away:
            self.account.away[f"{self._away}: {status}"] += 1
        return status

    async def _kill(self) -> None:
        while not self._done:
            await asyncio.sleep(self.random.random() * 2 * self.size.pause)
            for role in self.crew.ended():
                self.account.kills[f"ended by itself: {role}"] += 1
                self.crew.start(role)
            role = self.random.choice([*self.crew.commands])
            self.account.kills[role.partition(" ")[0]] += 1
            self.crew.kill(role)
            await asyncio.sleep(self.random.random() * self.size.pause / 2)
            self.crew.start(role)
            if role != BOOKKEEPER:
                await self._is_up(role)

    async def _is_up(self, role: str) -> None:
        """Until it takes requests; where it cannot begin, its supervisor starts it again."""
        up = asyncio.create_task(_is_up(int(role.split()[1])))
        while not (await asyncio.wait([up], timeout=1))[0]:
            for ended in self.crew.ended():
                why = "could not begin" if ended == role else "ended by itself"
                self.account.kills[f"{why}: {ended.partition(' ')[0]}"] += 1
                self.crew.start(ended)

    async def _go_away(self) -> None:
        """The storage of the txlogs, then the catalog; requests are sent all the time."""
        folder, catalog = self.table.root / "demo" / "events" / "_bookkeeper", self.table.root / "catalog.db"
        for what, away in (("storage", _moved(folder)), ("catalog", _locked(catalog))) if self.size.away else ():
            await asyncio.sleep(self.size.pause)
            with away:
                await asyncio.sleep(1)
                self._away = what
                await asyncio.sleep(self.size.away)
                self._away = ""

    def settle(self) -> None:
        """All is committed; the table is compared."""
        folder = Folder(open_store(self.table.made.folder))
        self.crew.until(lambda: not folder.pending())
        self.account.compare(numbers(self.table))


@contextmanager
def _moved(path: Path) -> Iterator[None]:
    """Fails where anything was made in its place meanwhile."""
    aside = path.with_name("aside")
    path.rename(aside)
    try:
        yield
    finally:
        aside.rename(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


async def _is_up(port: int) -> None:
    """Until an instance takes requests: else a slow machine would do nothing but start them."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def played(folder: Path, size: Size, seed: int) -> Account:
    """
    One run; the account of it.
    """
    world = World(folder, size, seed)
    with world.crew:
        asyncio.run(world.run())
        world.settle()
    return world.account


def main() -> None:
    """Exits 1 where a row is missing or double."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--producers", type=int, default=300)
    options.add_argument("--requests", type=int, default=10, help="of each producer")
    options.add_argument("--rows", type=int, default=50, help="of each request")
    options.add_argument("--unnamed", type=int, default=5, help="clients without a name")
    options.add_argument("--instances", type=int, default=2)
    options.add_argument("--pause", type=float, default=2.0, help="seconds between two kills, on average")
    options.add_argument("--away", type=float, default=0.0, help="seconds that storage and catalog are away, each")
    options.add_argument("--seed", type=int, default=os.getpid())
    given = vars(options.parse_args())
    seed = given.pop("seed")
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        account = played(Path(folder), Size(**given), seed)
    print(f"{time.monotonic() - began:.0f} s; killed {dict(account.kills)}; answers {dict(account.statuses)}")
    if given["away"]:
        print(f"storage and catalog were away for {given['away']:g} s each; answers meanwhile {dict(account.away)}")
    print(f"{len(account.named)} rows of named producers: {account.missing} missing, {account.double} double")
    print(f"{len(account.unnamed)} acknowledged rows without a name: {account.lost} lost")
    print(f"{account.refused} producers were refused")
    sys.exit(not account.right)


if __name__ == "__main__":
    main()
