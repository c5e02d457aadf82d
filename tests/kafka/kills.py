"""
Instances of `writer kafka` and a bookkeeper that are killed and frozen at random, as is their broker, while messages
and partitions come, and topics are deleted and made anew.

    python -m tests.kafka.kills --seconds 120 --seed 7
    python -m tests.kafka.kills --seconds 3600 --messages 1000000 --freeze 40
    python -m tests.kafka.kills --seconds 400 --bad 0.02

With --bad messages are no rows, half of them to one half of the instances only: they become dead letters or rows. In
the end each message of the topics is compared with the tables, by topic and its generation, partition and offset.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from bookkeeper.config.dead_letters import KEY
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.kafka.sent import Account, Load, Sent, read
from tests.kafka.topics import SCHEMA, Topics, letters_queue, queue
from tests.servers.kafka import kafka
from tests.servers.process import Server
from tests.support.configured import configured, program
from tests.support.crew import Crew
from tests.support.keyed_rows import rows as live_rows
from tests.support.threads import beside
from tests.support.writer_queue import Queue

BOOKKEEPER = "bookkeeper"
_SCHEMA = Schema(*SCHEMA.fields, NestedField(5, "generation", IntegerType()))
#: how often each happens, of their sum
EVENTS = {
    "kill": 6,
    "term": 2,
    "freeze": 2,
    "broker killed": 1,
    "broker frozen": 1,
    "partition added": 1,
    "made anew": 2,
}


@dataclass(frozen=True)
class Size:
    """
    How much of everything. A freeze lasts up to `freeze` seconds; between two events `pause` pass on average. It ends
    after `seconds`, or once so many `messages` were sent (0: any number).
    """

    seconds: float
    messages: int = 0
    instances: int = 3
    topics: int = 3
    partitions: int = 40
    rate: int = 2000
    pause: float = 1.5
    freeze: float = 5.0
    bad: float = 0.0
    #: events, of which a slow machine sees fewer in these seconds
    least: int = 0


class World:
    """A broker, a table with its bookkeeper, and instances."""

    def __init__(self, server: Server, folder: Path, size: Size, seed: int) -> None:
        self.server, self.size, self.random = server, size, Random(seed)
        self.names = [f"kills-{seed}-{number}" for number in range(size.topics)]
        topics = Topics(server)
        self.brokers = topics.brokers
        self.load = Load(topics, self.names, size.partitions, size.rate, size.messages, size.bad)
        self.table: Queue = queue(folder, _SCHEMA, roll_after=timedelta(seconds=1))
        self.letters = letters_queue(folder / "letters") if size.bad else None
        self.account = Account()
        instances = {f"instance {number + 1}": self._command(number) for number in range(size.instances)}
        tables = [self.table] if self.letters is None else [self.table, self.letters]
        self.bookkeepers = {f"{BOOKKEEPER} {number}": _bookkeeper(table) for number, table in enumerate(tables)}
        self.crew = Crew({**self.bookkeepers, **instances}, folder)

    def _command(self, number: int, *more: str) -> list[str]:
        share = f"{number + 1}/{self.size.instances}"
        words = ["kafka", "--folder", self.table.made.folder, "--name", "copy", "--brokers", self.brokers]
        topics = [word for name in self.names for word in ("--topic", name, "--go-on", f"{name}=earliest")]
        columns = [word for part in ("topic", "partition", "offset") for word in ("--column", f"{part}={part}")]
        if self.letters is not None:
            words += ["--dead-letters", self.letters.made.folder, *(["--ignore-unknown"] if number % 2 else [])]
        return [sys.executable, "-m", "writers", *words, *topics, *columns, "--share", share, "--quiet", *more]

    def run(self) -> None:
        """Until the time is over, or all is sent; then all is read to the end."""
        over = time.monotonic() + self.size.seconds
        for role in self.crew.commands:
            self.crew.start(role)
        with beside(self.load):
            while self._goes_on(over):
                time.sleep(self.random.random() * self.size.pause * 2)
                self._disturb()
            for role in [*self.crew.running]:
                if role not in self.bookkeepers:
                    self.crew.stop(role)
        self._settle()

    def _goes_on(self, over: float) -> bool:
        if 0 < self.size.messages <= self.load.count:
            return False
        return time.monotonic() < over or self.account.done.total() < self.size.least

    def _disturb(self) -> None:
        """One event; what has ended by itself, such as an instance that began while a topic was away, begins again."""
        for role in self.crew.ended():
            self._count("ended by itself", role)
            self.crew.start(role)
        what = self.random.choices([*EVENTS], [*EVENTS.values()])[0]
        role, name = self.random.choice([*self.crew.commands]), self.random.choice(self.names)
        if what in ("kill", "term", "freeze"):
            self._count(what, role)
            self._end(role, what)
        else:
            self.account.done[what] += 1
            self._change(what, name)

    def _count(self, what: str, role: str) -> None:
        self.account.done[f"{what}: {role.partition(' ')[0]}"] += 1

    def _end(self, role: str, what: str) -> None:
        if what == "freeze":
            self.crew.signal(role, signal.SIGSTOP)
            time.sleep(self._freeze())
            self.crew.signal(role, signal.SIGCONT)
        else:
            (self.crew.kill if what == "kill" else self.crew.stop)(role)
            self.crew.start(role)

    def _freeze(self) -> float:
        return self.random.random() * self.size.freeze

    def _change(self, what: str, name: str) -> None:
        if what == "broker killed":
            self.server.crash()
            self.server.start()
        elif what == "broker frozen":
            with self.server.frozen():
                time.sleep(self._freeze())
        elif what == "partition added":
            self.load.widen(name)
        else:
            self.load.make_anew(name)

    def _settle(self) -> None:
        """All is read, and committed by bookkeepers that nothing happens to."""
        self.crew.start("last", self._command(0, "--until-end"))
        assert self.crew.wait("last") == 0, self.crew.log("last").read_text("utf-8", "replace")[-3000:]
        for role, table in zip(self.bookkeepers, filter(None, [self.table, self.letters]), strict=True):
            self.crew.kill(role)
            self.crew.start(role)
            folder = Folder(open_store(table.made.folder))
            self.crew.until(lambda folder=folder: not folder.pending())  # type: ignore[misc]
            self.crew.stop(role)
        found = self.table.table().scan().to_arrow().select([*Sent._fields]).to_pydict()
        rows = [Sent(*row) for row in zip(*found.values(), strict=True)]
        aside = [] if self.letters is None else live_rows(self.letters, *KEY)
        letters = [read(it["topic"], it["partition"], it["offset"], it["value"]) for it in aside]
        self.account.compare(self.load.there(), self.load.deleted, rows, letters)


def _bookkeeper(table: Queue) -> list[str]:
    section = {"identifier": table.settings.identifier, "roll-after": "1s"}
    return program("bookkeeper", configured(table, bookkeeper={"every": "200ms"}, tables__events=section))


def played(server: Server, folder: Path, size: Size, seed: int) -> Account:
    """
    One run; the account of it.
    """
    world = World(server, folder, size, seed)
    with world.crew:
        world.run()
    return world.account


def main() -> None:
    """Exits 1 where a message is missing or double."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=120, help="how long (default: %(default)s)")
    options.add_argument("--messages", type=int, default=0, help="it also ends once so many were sent")
    options.add_argument("--freeze", type=float, default=5, help="seconds, of the longest freeze")
    options.add_argument("--seed", type=int, default=os.getpid())
    options.add_argument("--instances", type=int, default=3)
    options.add_argument("--partitions", type=int, default=40)
    options.add_argument("--bad", type=float, default=0, help="share of messages that are no rows")
    options.add_argument("--rate", type=int, default=2000, help="messages a second")
    given = vars(options.parse_args())
    seed = given.pop("seed")
    print(f"seed {seed}", flush=True)
    with kafka() as server, tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        account = played(server, Path(folder), Size(**given), seed)
    print(f"{time.monotonic() - began:.0f} s")
    print("\n".join(f"{count:5} {what}" for what, count in sorted(account.done.items())))
    print(f"{account.messages} messages; {account.deleted} of deleted topics, of which {account.kept} are in the table")
    if given["bad"]:
        print(f"{account.letters} are dead letters")
    print(f"{account.missing} missing, {account.double} double, {account.strange} strange")
    sys.exit(not account.right)


if __name__ == "__main__":
    main()
