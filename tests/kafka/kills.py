"""
Instances of `writer kafka` that are killed and frozen at random, as is their broker, while messages and partitions
come.

    python -m tests.kafka.kills --seconds 120 --seed 7

In the end each message of the topics is compared with the table, by topic, partition and offset.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Event

from confluent_kafka import Consumer, Producer, TopicPartition

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.kafka.topics import Topics, queue
from tests.servers.kafka import kafka
from tests.servers.process import Server
from tests.support.crew import Crew
from tests.support.threads import beside
from tests.support.writer_queue import Queue


@dataclass(frozen=True)
class Size:
    """How much of everything; `freezes` of an instance last as many seconds."""

    seconds: float
    instances: int = 3
    topics: int = 3
    partitions: int = 40
    rate: int = 2000
    pause: float = 1.5
    freeze: float = 5.0
    broker: bool = True


@dataclass
class Account:
    """What happened, and what is wrong in the end."""

    done: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    missing: int = 0
    double: int = 0
    strange: int = 0

    @property
    def right(self) -> bool:
        """Whether each message is in the table once, and nothing else is."""
        return not (self.missing or self.double or self.strange)


class World:
    """A broker, a table with its bookkeeper, and instances."""

    def __init__(self, server: Server, folder: Path, size: Size, seed: int) -> None:
        self.server, self.topics, self.size, self.random = server, Topics(server), size, Random(seed)
        self.names = [f"kills-{seed}-{number}" for number in range(size.topics)]
        self.partitions = dict.fromkeys(self.names, size.partitions)
        self.table: Queue = queue(folder, roll_after=timedelta(seconds=1))
        self.account = Account()
        self.roles = [f"instance {number + 1}" for number in range(size.instances)]
        self.crew = Crew({role: self._command(number) for number, role in enumerate(self.roles)}, folder)
        for name in self.names:
            self.topics.make(name, size.partitions)

    def _command(self, number: int, *more: str) -> list[str]:
        share = f"{number + 1}/{self.size.instances}"
        words = ["kafka", "--folder", self.table.made.folder, "--name", "copy", "--brokers", self.topics.brokers]
        topics = [word for name in self.names for word in ("--topic", name)]
        columns = [word for part in ("topic", "partition", "offset") for word in ("--column", f"{part}={part}")]
        return [sys.executable, "-m", "writers", *words, *topics, *columns, "--share", share, "--quiet", *more]

    def disturb(self) -> None:
        """One kill, freeze, crash of the broker, or a partition more."""
        what = self.random.choices(["kill", "term", "freeze", "broker", "partition"], [6, 2, 1, self.size.broker, 1])[0]
        role = self.random.choice(self.roles)
        self.account.done[what] += 1
        if what in ("kill", "term"):
            (self.crew.kill if what == "kill" else self.crew.stop)(role)
            self.crew.start(role)
        elif what == "freeze":
            self.crew.signal(role, signal.SIGSTOP)
            time.sleep(self.random.random() * self.size.freeze)
            self.crew.signal(role, signal.SIGCONT)
        elif what == "broker":
            self.server.crash()
            self.server.start()
        else:
            name = self.random.choice(self.names)
            self.partitions[name] += 1
            self.topics.widen(name, self.partitions[name])

    def run(self) -> None:
        """Until the time is over; then all is read to the end."""
        over = time.monotonic() + self.size.seconds
        for role in self.roles:
            self.crew.start(role)
        with beside(self._produce), beside(self._tick):
            while time.monotonic() < over:
                time.sleep(self.random.random() * self.size.pause * 2)
                self.disturb()
            for role in self.roles:
                self.crew.stop(role)
        self._settle()

    def _settle(self) -> None:
        self.crew.start("last", self._command(0, "--until-end"))
        assert self.crew.wait("last") == 0, self.crew.log("last").read_text("utf-8", "replace")[-3000:]
        folder = Folder(open_store(self.table.made.folder))
        while folder.pending():
            self.table.tick()
        self.account_for()

    def account_for(self) -> None:
        """Compares the topics with the table."""
        found = self.table.table().scan(selected_fields=("topic", "partition", "offset")).to_arrow().to_pydict()
        rows = Counter(zip(found["topic"], found["partition"], found["offset"], strict=True))
        there = {(name, partition, offset) for name in self.names for partition, offset in self._offsets(name)}
        self.account.messages = len(there)
        self.account.missing = len(there - rows.keys())
        self.account.strange = len(rows.keys() - there)
        self.account.double = sum(count - 1 for count in rows.values())

    def _offsets(self, name: str) -> Iterator[tuple[int, int]]:
        settings = {"bootstrap.servers": self.topics.brokers, "group.id": "look", "enable.partition.eof": True}
        consumer = Consumer({**settings, "log_level": 0})
        consumer.assign([TopicPartition(name, number, 0) for number in range(self.partitions[name])])
        ended = 0
        while ended < self.partitions[name]:
            for message in consumer.consume(10_000, 1):
                if message.error() is None:
                    yield message.partition(), message.offset()
                else:
                    ended += 1
        consumer.close()

    def _produce(self, over: Event) -> None:
        producer = Producer({"bootstrap.servers": self.topics.brokers, "linger.ms": 50, "log_level": 0})
        number = 0
        while not over.wait(0.1):
            for _ in range(self.size.rate // 10):
                name = self.names[number % len(self.names)]
                partition = (number * 7) % self.partitions[name]
                try:
                    producer.produce(name, b'{"n": %d}' % number, partition=partition)
                except Exception:  # noqa: BLE001 - a partition that it does not know yet, or a full queue
                    break
                number += 1
            producer.poll(0)
        producer.flush(60)

    def _tick(self, over: Event) -> None:
        while not over.wait(0.3):
            self.table.tick()


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
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=120)
    options.add_argument("--seed", type=int, default=os.getpid())
    options.add_argument("--instances", type=int, default=3)
    options.add_argument("--partitions", type=int, default=40)
    options.add_argument("--rate", type=int, default=2000)
    given = options.parse_args()
    size = Size(given.seconds, given.instances, partitions=given.partitions, rate=given.rate)
    print(f"seed {given.seed}", flush=True)
    with kafka() as server, tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        account = played(server, Path(folder), size, given.seed)
    done = ", ".join(f"{count} {what}" for what, count in sorted(account.done.items()))
    print(f"{time.monotonic() - began:.0f} s; {done}")
    print(f"{account.messages} messages: {account.missing} missing, {account.double} double, {account.strange} strange")
    sys.exit(not account.right)


if __name__ == "__main__":
    main()
