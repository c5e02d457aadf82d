"""
A cluster in memory: what `writer kafka` asks of writers.kafka.client, without a broker, and what happens between two
requests as a test says it.

Topics have ids, messages offsets, leader epochs and timestamps. A consumer is given every error that a real one may
give, but never sees by itself that a topic was made anew: it goes on at its offset, as long as there is one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import KafkaError

from writers.kafka.client import OFFSET_LOST, PARTITION_EOF
from writers.kafka.partitions import Partition, Topic, named_id
from writers.kafka.start_option import EARLIEST, GROUP, LATEST, OFFSET, Start
from writers.timing import pause

_CLUSTER = "scripted"
_IDS = count(1)


@dataclass(frozen=True)
class Scripted:
    """A message, or with `failed` an event, as the client gives it."""

    place: Partition
    at: int
    data: bytes | None = None
    epoch: int | None = None
    millis: int = 0
    failed: KafkaError | None = None

    def __len__(self) -> int:
        return len(self.data or b"")

    def error(self) -> KafkaError | None:
        return self.failed

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.millis

    def leader_epoch(self) -> int | None:
        return self.epoch


@dataclass
class Log:
    """A partition: its messages by offset; what was aborted has an offset and no message."""

    low: int = 0
    end: int = 0
    epoch: int = 0
    messages: dict[int, Scripted] = field(default_factory=dict)
    #: by leader epoch: the offset behind its last message
    ends: dict[int, int] = field(default_factory=dict)

    def is_cut(self, offset: int, epoch: int | None) -> bool:
        """Whether messages before this offset, up to one of this epoch, are other ones now."""
        known = [end for of, end in self.ends.items() if epoch is not None and of <= epoch]
        return epoch is not None and max(known, default=self.low) < offset


class Topics:
    """The topics of the cluster; has the methods of tests.kafka.topics.Topics that need no broker's client."""

    def __init__(self) -> None:
        self.ids, self.logs = dict[str, str](), dict[str, list[Log]]()
        #: as of brokers that give topics no ids
        self.without_ids = False
        #: offsets of groups
        self.groups = dict[tuple[str, Partition], int]()
        self._then: list[Callable[[], None]] = []

    def make(self, name: str, partitions: int = 1) -> None:
        self.ids[name] = f"id-{next(_IDS)}"
        self.logs[name] = [Log() for _ in range(partitions)]

    def delete(self, name: str) -> None:
        del self.ids[name], self.logs[name]

    def widen(self, name: str, partitions: int) -> None:
        self.logs[name] += [Log() for _ in range(partitions - len(self.logs[name]))]

    def send(self, name: str, values: Sequence[Any], partition: int = 0, millis: int = 0) -> None:
        """Values that are not bytes as JSON."""
        log = self.logs[name][partition]
        for value in values:
            data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            log.messages[log.end] = Scripted(Partition(name, partition), log.end, data, log.epoch, millis)
            log.end += 1
        log.ends[log.epoch] = log.end

    def numbers(self, name: str, first: int, last: int, partition: int = 0) -> None:
        self.send(name, [{"n": number} for number in range(first, last)], partition)

    def abort(self, name: str, messages: int, partition: int = 0) -> None:
        """A transaction of so many messages is aborted."""
        log = self.logs[name][partition]
        log.end += messages
        log.ends[log.epoch] = log.end

    def drop_before(self, name: str, partition: int, offset: int) -> None:
        """As retention does it."""
        log = self.logs[name][partition]
        log.low = offset
        log.messages = {at: message for at, message in log.messages.items() if at >= offset}

    def cut(self, name: str, partition: int, offset: int) -> None:
        """An unclean election: what is from this offset on is lost, and other messages take its place."""
        log = self.logs[name][partition]
        log.messages = {at: message for at, message in log.messages.items() if at < offset}
        log.ends = {epoch: min(end, offset) for epoch, end in log.ends.items()}
        log.end, log.epoch = offset, log.epoch + 1

    def after_reading(self, act: Callable[[], None]) -> None:
        """Does this once the next messages were given to a consumer, before they are published."""
        self._then.append(act)

    def was_read(self) -> None:
        """Messages were given to a consumer."""
        while self._then:
            self._then.pop()()

    def cluster(self, group: str) -> "Cluster":
        """The cluster as a source of this group asks it."""
        return Cluster(self, group)


class Cluster:
    """As writers.kafka.client.Cluster."""

    def __init__(self, topics: Topics, group: str) -> None:
        self._topics, self._group = topics, group

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        known = self._topics
        return {
            name: Topic(_CLUSTER, name, named_id(name) if known.without_ids else known.ids[name], len(known.logs[name]))
            for name in names
            if name in known.ids
        }

    def messages_at(self, places: Mapping[Partition, int]) -> dict[Partition, Scripted]:
        found = {item: self._topics.logs[item.topic][item.number].messages.get(at) for item, at in places.items()}
        return {item: message for item, message in found.items() if message is not None}

    def offsets_of(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        known = self._topics.groups
        return {item: known[group, item] for item in partitions if (group, item) in known}

    def consumer(self, memory: int) -> "SlotConsumer":
        return SlotConsumer(self._topics, self._group)


class SlotConsumer:
    """As writers.kafka.client.SlotConsumer."""

    def __init__(self, topics: Topics, group: str) -> None:
        self._topics, self._group = topics, group
        #: the next offset of each partition, and where its end was last told; None: its place is lost
        self._at, self._told = dict[Partition, int | None](), dict[Partition, int]()
        self._events: list[Scripted] = []

    def _log(self, partition: Partition) -> Log | None:
        found = self._topics.logs.get(partition.topic, [])
        return found[partition.number] if partition.number < len(found) else None

    def assign(self, places: Mapping[Partition, tuple[int, int | None]]) -> None:
        for partition, (offset, epoch) in places.items():
            self._at[partition] = offset
            self._told.pop(partition, None)
            log = self._log(partition)
            if log is not None and log.is_cut(offset, epoch):
                self._lose(partition, "log truncation")

    def unassign(self, partition: Partition) -> None:
        self._at.pop(partition, None)

    def _lose(self, partition: Partition, why: str) -> None:
        self._at[partition] = None
        self._events.append(Scripted(partition, -1, failed=KafkaError(OFFSET_LOST, why)))

    def consume(self, most: int, seconds: float) -> list[Scripted]:
        found = list[Scripted]()
        for partition, at in [*self._at.items()]:
            log = self._log(partition)
            if log is not None and at is not None:
                found += self._read(partition, at, log, most - len(found))
        if any(item.failed is None for item in found):
            self._topics.was_read()
        given, self._events = found + self._events, []
        if not given:
            pause(min(seconds, 0.01))
        return given

    def _read(self, partition: Partition, at: int, log: Log, most: int) -> list[Scripted]:
        if not log.low <= at <= log.end:
            self._lose(partition, "offset out of range")
            return []
        found = [log.messages[offset] for offset in range(at, log.end) if offset in log.messages][: max(0, most)]
        last = found[-1].at + 1 if found else at
        if not any(offset in log.messages for offset in range(last, log.end)):
            last = log.end
            if self._told.get(partition) != last:
                self._told[partition] = last
                self._events.append(Scripted(partition, last, failed=KafkaError(PARTITION_EOF)))
        self._at[partition] = last
        return found

    def range(self, partition: Partition) -> tuple[int, int]:
        log = self._log(partition)
        assert log is not None, f"{partition} is not there"
        return log.low, log.end

    def end(self, partition: Partition) -> int | None:
        return self._told.get(partition)

    def begin(self, partition: Partition, start: Start) -> int:
        assert start.kind != GROUP
        low, high = self.range(partition)
        if start.kind in (OFFSET, EARLIEST, LATEST):
            return {OFFSET: start.offset, EARLIEST: low, LATEST: high}[start.kind]
        log = self._log(partition)
        assert log is not None
        return min((at for at, message in log.messages.items() if message.millis >= start.millis), default=high)

    def tell(self, reached: Mapping[Partition, int]) -> None:
        self._topics.groups |= {(self._group, partition): offset for partition, offset in reached.items()}

    def close(self) -> None:
        self._at.clear()
