"""
The cluster, as the source asks it: topics and ends of partitions, and one consumer for each slot, which is assigned
its partitions. Nothing is subscribed, and the group decides nothing: its offsets are for Kafka's own tools.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from bookkeeper.errors import ConfigInvalid, NotPossible, SourceUnavailable
from writers.kafka.messages import Message
from writers.kafka.partitions import Partition, Topic, named_id
from writers.kafka.start_option import EARLIEST, GROUP, LATEST, OFFSET, Start

log = logging.getLogger(__name__)

PARTITION_EOF, OFFSET_LOST = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET
_SECONDS = 30.0
_PROPERTIES_BYTES = 2**16
_NO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_HAS_MEMBERS = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.ILLEGAL_GENERATION)
STOP_MEMBERS = "Stop its consumers, wait until their session has timed out, and give the command again."
_CHECK = "Check that --brokers can be reached, and security.protocol in the file of --client."
#: what trying again does not mend
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
#: what exactly once rests on, or what is made of other options
_OURS = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}
_OTHERS_OURS = frozenset({"group.id", "bootstrap.servers", "queued.max.messages.kbytes", "fetch.max.bytes"})


def properties_in(path: Path | None) -> dict[str, str]:
    """
    The settings in a file of `key=value` lines, librdkafka's and those of a schema registry; raises ConfigInvalid.
    """
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            text = file.read(_PROPERTIES_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigInvalid(f"--client {path} cannot be read: {exc}") from exc
    if len(text) > _PROPERTIES_BYTES:
        raise ConfigInvalid(f"--client {path} is larger than {_PROPERTIES_BYTES} bytes")
    found = dict[str, str]()
    for line in map(str.strip, text.splitlines()):
        key, sign, value = line.partition("=")
        if line and not line.startswith("#"):
            if not sign:
                raise ConfigInvalid(f"--client {path}: a line without `=`; key=value is expected")
            found[key.strip()] = value.strip()
    for key in found:
        if key in _OURS or key in _OTHERS_OURS:
            raise ConfigInvalid(f"--client {path}: {key} is set by this program")
    return found


class Cluster:
    """
    The cluster at `brokers`; `client` are settings of librdkafka, and of a registry, which are left out here.

    Its methods raise SourceUnavailable.
    """

    def __init__(self, brokers: str, client: Mapping[str, str], group: str) -> None:
        own = {key: value for key, value in client.items() if not key.startswith("schema.registry.")}
        self._settings: dict[str, Any] = {**own, "bootstrap.servers": brokers}
        self._group = group
        #: what the client last said of its connections
        self._trouble: KafkaError | None = None
        self._admin = _made(AdminClient, {**self._settings, "error_cb": self._note})
        self._id: str | None = None

    def _note(self, error: KafkaError) -> None:
        # That all brokers are down says less than what was said of one of them before.
        if self._trouble is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def _answer(self, future: Any) -> Any:
        """
        What a request gave; raises what it raised, SourceUnavailable, and ConfigInvalid where the first one is refused
        for credentials or certificates.
        """
        over = time.monotonic() + _SECONDS
        while not future.done():
            self._admin.poll(0.05)  # calls `_note`
            trouble = self._trouble
            if trouble is not None and self._id is None and trouble.code() in _REFUSED:
                hint = "Look at security.protocol, sasl.* and ssl.* in the file of --client."
                raise ConfigInvalid(f"Kafka: {trouble.str()}", hint=hint)
            if time.monotonic() >= over:
                what = f"Kafka did not answer{'' if trouble is None else f': {trouble.str()}'}"
                raise SourceUnavailable(what, hint=_CHECK if self._id is None else SourceUnavailable.hint)
        return future.result()

    def id(self) -> str:
        """The id of the cluster."""
        if self._id is None:
            with _asked():
                self._id = str(self._answer(self._admin.describe_cluster(request_timeout=_SECONDS)).cluster_id)
        return self._id

    def names(self) -> list[str]:
        """The names of all topics that this client may see."""
        with _asked():
            return [*self._admin.list_topics(timeout=_SECONDS).topics]

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Those of these topics that there are."""
        cluster = self.id()
        with _asked():
            asked = self._admin.describe_topics(TopicCollection([*names]), request_timeout=_SECONDS)
        found = dict[str, Topic]()
        for name, future in asked.items():
            with _asked(), suppress(_TopicMissing):
                about = self._described(future)
                # As Kafka's own tools write it; librdkafka takes + and /.
                topic_id = str(about.topic_id).replace("+", "-").replace("/", "_")
                if topic_id == _NO_UUID:
                    topic_id = named_id(name)
                found[name] = Topic(cluster, name, topic_id, len(about.partitions))
        return found

    def _described(self, future: Any) -> Any:
        try:
            return self._answer(future)
        except KafkaException as exc:
            if exc.args[0].code() in _NO_TOPIC:
                raise _TopicMissing from exc
            raise

    def messages_at(self, places: Mapping[Partition, int]) -> dict[Partition, Message]:
        """The messages at these offsets; of a partition that has none there, there is none in the result."""
        settings = {**self._settings, **_OURS, "group.id": self._group, "queued.min.messages": 1}
        consumer, found, left = _made(Consumer, settings), dict[Partition, Message](), {*places}
        try:
            with _asked():
                consumer.assign([TopicPartition(*partition, offset) for partition, offset in places.items()])
                over = time.monotonic() + _SECONDS
                while left:
                    if time.monotonic() >= over:
                        raise TimeoutError
                    for message in consumer.consume(len(left), 0.5):
                        partition, error = Partition(message.topic(), message.partition()), message.error()
                        if message.topic() is None or partition not in left:
                            continue
                        if error is None and message.offset() == places[partition]:
                            found[partition] = message
                        if error is None or error.code() in (PARTITION_EOF, OFFSET_LOST):
                            left.remove(partition)
                        elif not error.retriable():
                            raise KafkaException(error)
        finally:
            consumer.close()
        return found

    def offsets_of(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Where a consumer group stands in those of these partitions that it has read."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*item) for item in partitions])
        with _asked():
            (future,) = self._admin.list_consumer_group_offsets([wanted], request_timeout=_SECONDS).values()
            found = self._answer(future).topic_partitions
        return {Partition(item.topic, item.partition): item.offset for item in found if item.offset >= 0}

    def members(self, group: str) -> list[str]:
        """The members that a consumer group has now, in words; none of a group that is not there."""
        with _asked():
            (future,) = self._admin.describe_consumer_groups([group], request_timeout=_SECONDS).values()
            try:
                about = self._answer(future)
            except KafkaException as exc:
                if exc.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return []
                raise
        return [f"{member.client_id} at {member.host}" for member in about.members]

    def set_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Sets where a consumer group stands, in one request; raises NotPossible where the group has members."""
        given = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        with _asked():
            wanted = [ConsumerGroupTopicPartitions(group, given)]
            (future,) = self._admin.alter_consumer_group_offsets(wanted, request_timeout=_SECONDS).values()
            try:
                done = self._answer(future).topic_partitions
                failed = next((item.error for item in done if item.error is not None), None)
            except KafkaException as exc:
                failed = exc.args[0]
            if failed is not None:
                if failed.code() in _HAS_MEMBERS:
                    raise NotPossible(f"the group {group} got a member meanwhile", hint=STOP_MEMBERS)
                raise KafkaException(failed)

    def consumer(self, memory: int) -> "SlotConsumer":
        """A consumer without partitions, which keeps about so many bytes of messages ahead."""
        settings = {
            **self._settings,
            **_OURS,
            "group.id": self._group,
            "queued.max.messages.kbytes": max(1024, memory // 1024),
            # Else a hundred thousand, each of which takes some 300 bytes beside what is in it.
            "queued.min.messages": max(1000, memory // 500),
            "fetch.max.bytes": max(2**20, min(50 * 2**20, memory)),
            "fetch.wait.max.ms": 250,
            # How long a partition is left alone once so much is ahead; by default a second.
            "fetch.queue.backoff.ms": 50,
        }
        return SlotConsumer(_made(Consumer, settings))


class _TopicMissing(Exception):
    """There is no such topic."""


def _made(kind: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    try:
        return kind({**settings, "log_level": 4}, logger=log)
    except (KafkaException, TypeError, ValueError) as exc:
        raise ConfigInvalid(f"the settings of the Kafka client are refused: {exc}") from exc


@contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except KafkaException as exc:
        error = exc.args[0]
        raise SourceUnavailable(f"Kafka: {error.str() if isinstance(error, KafkaError) else error}") from exc
    except TimeoutError as exc:
        raise SourceUnavailable("Kafka did not answer") from exc


class SlotConsumer:
    """
    One consumer; to be used by one thread. Its methods raise SourceUnavailable.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assign(self, places: Mapping[Partition, tuple[int, int | None]]) -> None:
        """Begins to read these partitions too, each at an offset, after a message of a leader epoch if it is known."""
        given = [
            TopicPartition(*partition, offset, **({} if epoch is None else {"leader_epoch": epoch}))
            for partition, (offset, epoch) in places.items()
        ]
        with _asked():
            self._consumer.incremental_assign(given)
            # Only after a seek librdkafka asks the leader whether the log still has that epoch at that offset.
            for item in given:
                if item.leader_epoch is not None:
                    self._consumer.seek(item)

    def unassign(self, partition: Partition) -> None:
        """Reads this partition no further; messages of it that were read already may still come."""
        with _asked():
            self._consumer.incremental_unassign([TopicPartition(*partition)])

    def consume(self, most: int, seconds: float) -> list[Message]:
        """At most so many messages and events, as soon as there are some."""
        with _asked():
            found: list[Message] = self._consumer.consume(most, timeout=seconds)
            return found

    def range(self, partition: Partition) -> tuple[int, int]:
        """The first offset of a partition, and the one behind its last committed message."""
        with _asked():
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=_SECONDS)
            return low, high

    def end(self, partition: Partition) -> int | None:
        """The end of a partition as the last fetch showed it; None before the first."""
        with _asked():
            found = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        return found[1] if found and found[1] >= 0 else None

    def begin(self, partition: Partition, start: Start) -> int:
        """The offset at which a partition begins; not of a group."""
        assert start.kind != GROUP
        if start.kind == OFFSET:
            return start.offset
        low, high = self.range(partition)
        if start.kind == EARLIEST:
            return low
        if start.kind == LATEST:
            return high
        with _asked():
            wanted = TopicPartition(*partition, start.millis)
            (found,) = self._consumer.offsets_for_times([wanted], timeout=_SECONDS)
            if found.error is not None:
                raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else high

    def tell(self, reached: Mapping[Partition, int]) -> None:
        """Commits these offsets of the group, for Kafka's own tools; a refusal is logged, for nothing rests on it."""
        given = [TopicPartition(*partition, offset) for partition, offset in reached.items()]
        try:
            self._consumer.commit(offsets=given, asynchronous=False)
        except KafkaException as exc:
            log.warning("group offsets not committed", extra={"action": "tell", "cause": exc.args[0].str()})

    def close(self) -> None:
        """Ends it."""
        self._consumer.close()
