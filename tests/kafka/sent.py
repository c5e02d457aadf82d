"""
What is sent to topics while it is copied, and the account of it: which messages the table must have, once each.

A topic may be deleted and made anew. Each message says the generation of its topic, and the row keeps it: of a deleted
topic the table has what was read until then, so of each partition the first messages without a gap.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.kafka.topics import Topics

#: no row for any reader, and one for those that pass over fields that the table does not have
_BROKEN, _ODD = b'{"n": "%dz", "generation": %d}', b'{"n": %d, "generation": %d, "odd": 1}'


class Sent(NamedTuple):
    """A message, and the row of it."""

    topic: str
    generation: int
    partition: int
    offset: int
    n: int


@dataclass
class Account:
    """
    What happened, and what is wrong in the end. `messages` are those of the topics that there are, `deleted` those of
    deleted ones, of which `kept` are in the table.
    """

    done: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    deleted: int = 0
    kept: int = 0
    letters: int = 0
    missing: int = 0
    double: int = 0
    strange: int = 0

    @property
    def sent(self) -> int:
        """Messages of all topics; how many of them are of deleted ones is chance."""
        return self.messages + self.deleted

    @property
    def right(self) -> bool:
        """Whether each message that has to be in the table is there once, and nothing else is."""
        return not (self.missing or self.double or self.strange)

    def compare(
        self, there: Collection[Sent], deleted: Collection[Sent], rows: Sequence[Sent], letters: Sequence[Sent] = ()
    ) -> None:
        """Compares the tables with the messages of topics, and of deleted ones, whose letters may be ahead of rows."""
        counted, wanted, gone = Counter([*rows, *letters]), set(there), set(deleted)
        self.letters = len(letters)
        last = dict[tuple[str, int, int], int]()
        for row in rows:
            last[row[:3]] = max(row.offset, last.get(row[:3], -1))
        passed = {item for item in gone if item.offset < last.get(item[:3], -1)}
        self.messages, self.deleted = len(wanted), len(gone)
        self.kept = len(gone & counted.keys())
        self.missing = len((wanted | passed) - counted.keys())
        self.strange = len(counted.keys() - wanted - gone)
        self.double = len(rows) + len(letters) - len(counted)


class Load:
    """
    Sends messages to topics in a thread, at most so many (0: any number); the topics are widened and made anew through
    it.
    """

    def __init__(
        self, topics: Topics, names: Sequence[str], partitions: int, rate: int, most: int = 0, bad: float = 0
    ) -> None:
        """`bad`: the share of messages that are no row, or one to some readers only."""
        self._every = round(1 / bad) if bad else 0
        self._topics, self._names, self._first, self._rate = topics, names, partitions, rate
        self._partitions, self._generations = dict.fromkeys(names, partitions), dict.fromkeys(names, 1)
        self._most, self._lock = most, Lock()
        self._producer = self._new_producer()
        #: how many messages were given to the client
        self.count = 0
        self.deleted = list[Sent]()
        for name in names:
            topics.make(name, partitions)

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._topics.brokers, "linger.ms": 50, "log_level": 0})

    def __call__(self, over: Event) -> None:
        """Sends until the event is set, and returns once all has arrived."""
        while not over.wait(0.1):
            with self._lock:
                self._send(self._rate // 10)
                self._producer.poll(0)
        self._arrive()

    def _send(self, count: int) -> None:
        left = self._most - self.count if self._most else count
        for _ in range(min(count, left)):
            name = self._names[self.count % len(self._names)]
            value = b'{"n": %d, "generation": %d}' % (self.count, self._generations[name])
            if self._every and self.count % self._every == 0:
                value = (_BROKEN if self.count // self._every % 2 else _ODD) % (self.count, self._generations[name])
            try:
                self._producer.produce(name, value, partition=self.count * 7 % self._partitions[name])
            except (KafkaException, BufferError):  # a partition that it does not know yet, or a full queue
                break
            self.count += 1

    def _arrive(self) -> None:
        assert self._producer.flush(120) == 0, "messages have not arrived"

    def widen(self, name: str) -> None:
        """Adds a partition."""
        self._partitions[name] += 1
        self._topics.widen(name, self._partitions[name])

    def make_anew(self, name: str) -> None:
        """Deletes a topic, once all has arrived that was sent to it, and makes one of its name."""
        with self._lock:
            self._arrive()
            self.deleted += self._messages(name)
            self._topics.delete(name)
            self._generations[name] += 1
            self._partitions[name] = self._first
            self._topics.make(name, self._first)
            self._producer = self._new_producer()  # it remembers topics that were deleted

    def there(self) -> list[Sent]:
        """The messages of the topics as they are now."""
        return [item for name in self._names for item in self._messages(name)]

    def _messages(self, name: str) -> Iterator[Sent]:
        settings = {"bootstrap.servers": self._topics.brokers, "group.id": "look", "enable.partition.eof": True}
        consumer = Consumer({**settings, "log_level": 0})
        consumer.assign([TopicPartition(name, number, 0) for number in range(self._partitions[name])])
        ended = 0
        while ended < self._partitions[name]:
            for message in consumer.consume(10_000, 1):
                if message.error() is None:
                    yield sent(name, message)
                else:
                    ended += message.topic() is not None
        consumer.close()


def sent(name: str, message: Any) -> Sent:
    """
    A message as it was sent.
    """
    return read(name, message.partition(), message.offset(), message.value())


def read(name: str, partition: int, offset: int, value: bytes) -> Sent:
    """
    A message as it was sent, by its parts.
    """
    said = json.loads(value)
    return Sent(name, said["generation"], partition, offset, int(str(said["n"]).removesuffix("z")))
