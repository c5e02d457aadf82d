"""A broker's topics for tests, and copies of them into a table as `writer kafka` makes them, in this process."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from bookkeeper.commands.columns import schema_of
from bookkeeper.config.dead_letters import KEY
from bookkeeper.config.dead_letters import SCHEMA as SCHEMA_OF_LETTERS
from bookkeeper.stores.open import open_store
from tests.servers.process import Server
from tests.support.keyed_rows import rows as live_rows
from tests.support.threads import beside
from tests.support.writer_queue import Queue
from writers.kafka import start_option
from writers.kafka.client import Cluster
from writers.kafka.slot_loop import read_slot
from writers.kafka.source import Shared, Wanted
from writers.kafka.source import run as copy_topics
from writers.loader.formats import Format
from writers.opener import Opener
from writers.timing import PATIENCE, pause, utc_now

SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "topic", StringType()),
    NestedField(3, "partition", IntegerType()),
    NestedField(4, "offset", LongType()),
)
FILLED = {"topic": "topic", "partition": "partition", "offset": "offset"}
JSON = Format("ndjson")


class Topics:
    """Topics of a running broker."""

    def __init__(self, server: Server) -> None:
        self.brokers = server.properties["bootstrap.servers"]
        self._settings = {"bootstrap.servers": self.brokers, "log_level": 0}
        self.admin = AdminClient(self._settings)

    def cluster(self, group: str) -> Cluster:
        """The cluster as a source of this group asks it."""
        return Cluster(self.brokers, {}, group)

    def make(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
        while not self._exists(name):
            pause(0.01)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()
        while self._exists(name):
            pause(0.01)

    def _exists(self, name: str) -> bool:
        try:
            self.admin.describe_topics(TopicCollection([name]))[name].result()
        except Exception:  # noqa: BLE001 - of any kind, it is not there
            return False
        return True

    def widen(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result()

    def drop_before(self, name: str, partition: int, offset: int) -> None:
        """As retention does it."""
        done = self.admin.delete_records([TopicPartition(name, partition, offset)])
        for future in done.values():
            future.result()

    def send(
        self, name: str, values: Sequence[Any], partition: int = 0, keys: Sequence[bytes] = (), **more: Any
    ) -> None:
        """Values that are not bytes as JSON, each with a key of its own or without one."""
        producer = Producer({**self._settings, "linger.ms": 5})  # anew: it remembers topics that were deleted
        for value, key in zip(values, keys or [None] * len(values), strict=True):
            data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(name, data, key, partition=partition, **more)
        assert producer.flush(30) == 0

    def numbers(self, name: str, first: int, last: int, partition: int = 0) -> None:
        self.send(name, [{"n": number} for number in range(first, last)], partition)


class Copy:
    """A copy of topics, real or scripted ones, into a queue's table, run to the end of the topics."""

    def __init__(
        self, topics: Any, queue: Queue, *names: str, name: str = "copy", letters: Queue | None = None
    ) -> None:
        self.topics, self.queue, self.names, self.name, self.letters = topics, queue, names, name, letters
        self.folder = queue.made.folder
        self.shared: Shared | None = None
        self.patience = PATIENCE

    def run(
        self, begin: str = "earliest", go_on: Sequence[str] = (), stopping: Any = lambda: False, **more: Any
    ) -> Shared:
        """Raises what `writer kafka` raises."""
        given = {"form": JSON, "filled": FILLED, "slots": 4, "until_end": True, **more}
        wanted = Wanted(
            self.name, self.names, start_option.parsed(begin), go_on=[*map(start_option.go_on, go_on)], **given
        )

        def wait(seconds: float) -> bool:
            pause(min(seconds, 0.1))
            return bool(stopping())

        def opener(folder: str) -> Opener:
            return Opener(folder, open_store, utc_now, wait, self.patience)

        self.shared = Shared(
            wanted,
            self.topics.cluster(self.name),
            opener(self.folder),
            self.queue.clock,
            wait,
            stopping,
            None if self.letters is None else opener(self.letters.made.folder),
        )
        copy_topics(self.shared, read_slot)
        return self.shared

    def tick(self) -> None:
        """Commits what is pending, of dead letters too."""
        self.queue.tick()
        if self.letters is not None:
            self.letters.tick()

    def put_aside(self) -> list[tuple[str, int, int]]:
        """The dead letters once all is committed: topic, partition, offset, in this order."""
        assert self.letters is not None
        self.letters.tick()
        return sorted((row["topic"], row["partition"], row["offset"]) for row in live_rows(self.letters, *KEY))

    def rows(self) -> list[tuple[str, int, int, int]]:
        """What is in the table once all is committed: topic, partition, offset, number, in this order."""
        self.queue.tick()
        found = self.queue.table().scan().to_arrow().select(["topic", "partition", "offset", "n"])
        return sorted(tuple(row.values()) for row in found.to_pylist())


def queue(root: Path, schema: Schema = SCHEMA, **table: Any) -> Queue:
    """
    A table for messages with a number.
    """
    return Queue(root, schema=schema, **table)


def letters_queue(root: Path) -> Queue:
    """
    The table of dead letters.
    """
    return Queue(root, schema=schema_of(SCHEMA_OF_LETTERS), key=KEY, roll_after=timedelta(seconds=1))


def until(true: Callable[[], object]) -> None:
    """
    Waits for another thread, process or the broker.
    """
    for _ in range(3000):
        if true():
            return
        pause(0.01)
    raise AssertionError("it did not happen within half a minute")


def running(copy: Copy, **more: object) -> AbstractContextManager[None]:
    """
    A copy that goes on until the block ends; what it raises is raised then.
    """
    return beside(lambda over: copy.run(until_end=False, stopping=over.is_set, **more))
