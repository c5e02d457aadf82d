"""
One run of a slot: its partitions are read, written, and published with how far each was read.

What a crash leaves: rows that were not published are lost together with their offsets, and the next run reads them
again from the end of the slot's chain; data files that no txlog names are swept by the reaper. So a place that the next
run would not find again, such as the end of a topic, is published before anything is read behind it. A txlog is
published only after the topics were looked at once more: what was read between two looks that show one id is of that
topic.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import Backpressure, SourceUnavailable, StorageUnavailable
from writers.kafka.bad_messages import BadMessages
from writers.kafka.client import OFFSET_LOST, PARTITION_EOF, Cluster, SlotConsumer
from writers.kafka.cursor import Batch, Cursor, Handling, TopicChanged, sorted_batch
from writers.kafka.dead_letters import Letters
from writers.kafka.lag import Ages, offset_lags
from writers.kafka.lost_place import lost_place, may_go_on
from writers.kafka.messages import Converted, Message, Outdated, converted, partition_of
from writers.kafka.named_topics import not_there, seen_of
from writers.kafka.partitions import Partition, Seen, Topic, next_of
from writers.loader.change_lines import split_deleted
from writers.newer_card import NewerCard
from writers.timing import Clock, Wait, Waited
from writers.writer import Writer

log = logging.getLogger(__name__)

#: how often a slot looks what is committed, tells Kafka, and measures lag
LOOK_EVERY = timedelta(seconds=5)
#: how long a run that ends waits for its letters to be committed
_FINISH, _FINISH_PAUSE = timedelta(seconds=30), 0.2
#: what the client and Python need for a message, beside what is in it
_MESSAGE_BYTES = 500
#: messages of a batch: at most, and of the first one, whose messages may have any size
MOST_MESSAGES, FIRST_MESSAGES = 10_000, 500


class Run:
    """
    To be used by one thread. `step` and `finish` raise Fenced, UnknownOutcome, TopicChanged and what a writer raises.
    """

    def __init__(
        self,
        cluster: Cluster,
        consumer: SlotConsumer,
        writer: Writer,
        cursors: Sequence[Cursor],
        fresh: Sequence[Cursor],
        handling: Handling,
        letters: Letters | None,
        clock: Clock,
        wait: Wait,
    ) -> None:
        """
        `fresh`: those of the cursors that begin with this run; the first txlog says where they began. Without `letters`
        bad messages are passed over, or stop their partition.
        """
        self._letters = letters
        #: a batch with bad messages that waits for a txlog of this run to be committed
        self._kept: Batch | None = None
        self._cluster, self._consumer, self._writer = cluster, consumer, writer
        self._handling, self._clock, self._wait = handling, clock, wait
        self.cursors = {cursor.partition: cursor for cursor in cursors}
        self._bad = BadMessages(letters, self.cursors, self._stop, handling.skipped)
        self._moved = {cursor.channel: cursor.text for cursor in fresh}
        #: topics of rows that are not published, also of partitions that have stopped since
        self._touched = dict[str, Topic]()
        #: of topics without ids: a message from before the next txlog, by partitions that it has messages of
        self._proofs = dict[Partition, Seen]()
        self._card, self._reader = writer.card, handling.reader(writer)
        self._most, self._waits, self._bytes = FIRST_MESSAGES, False, 0
        self._newer_card = NewerCard(writer, clock)
        self._looked_at = clock()
        #: whether all that this run has published is committed
        self._settled, self._count = True, 0
        #: whether a txlog of this run is known to be committed
        self._fenced = False
        earlier = {item.partition: item.place.next for item in cursors if item not in fresh}
        self._ages = Ages(earlier, clock())
        consumer.assign({item.partition: (item.place.next, item.place.epoch) for item in cursors})

    @property
    def proven(self) -> bool:
        """Whether a txlog of this run was committed, and none waits to be; or nothing was there for one."""
        done = self._settled and not self._writer.unpublished_rows
        return (self._settled and self._count > 0) or (done and self.ended)

    @property
    def ended(self) -> bool:
        """Whether each partition was read to the end that it had when this run began, or to one that it had since."""
        return all(
            cursor.ended or (cursor.high is not None and cursor.place.next >= cursor.high)
            for cursor in self.cursors.values()
        )

    def step(self, seconds: float, eager: bool = False) -> None:
        """
        Takes what there is within so many seconds; publishes when it is time, or, `eager`, at the end of partitions.
        """
        if self._has_unpublished_place:
            self._publish()
        try:
            self._read(seconds)
        except SourceUnavailable:  # of a registry: what was read before it is not held up
            self.finish()
            raise
        full = self._handling.full(self._bytes) or (self._letters is not None and self._letters.full)
        due = full or self._waits or self._has_unpublished_place or self._writer.due()
        if due or (eager and self.ended) or not self._writer.unpublished_rows:
            self._publish()
        self._look()

    def _read(self, seconds: float) -> None:
        if self._waits or self._kept is not None:
            self._wait(seconds)
        else:
            batch = sorted_batch(self._consumer.consume(self._most, seconds))
            if self._writer.due():  # else these rows would be a small file of their own
                self._publish()
            self._take(batch)
        if self._kept is not None and self._fences():
            kept, self._kept = self._kept, None
            self._take(kept)

    def finish(self) -> None:
        """
        Publishes what is left, but where its letters are not committed within half a minute: it is then read again.
        Raises also Backpressure, StorageUnavailable, SourceUnavailable.
        """
        waited = Waited(self._clock)
        while self._has_more() and not self._send(ends=True):
            if self._wait(_FINISH_PAUSE) or waited() >= _FINISH:
                return
        self._looked_at -= LOOK_EVERY
        self._look()

    def close(self) -> None:
        """Ends it without publishing."""
        self._handling.full(0)
        self._writer.close()
        self._consumer.close()

    def _take(self, batch: Batch) -> None:
        messages, last = batch.messages, batch.last
        if not last.keys() <= self.cursors.keys():  # of a partition that was stopped: it was read ahead
            last = {key: message for key, message in last.items() if key in self.cursors}
            messages = [message for message in messages if (message.topic(), message.partition()) in last]
        if messages and not self._write(messages, last):
            self._kept = batch  # with its events: they say that partitions were read behind these messages
            return
        for event in batch.events:
            self._note(event)

    def _write(self, messages: list[Message], last: dict[tuple[str, int], Message]) -> bool:
        """False where there are messages to put aside and no txlog of this run is committed: nothing is taken then."""
        size = sum(map(len, messages)) / len(messages) + _MESSAGE_BYTES
        self._most = max(1, min(MOST_MESSAGES, round(self._handling.batch_bytes / size)))
        judged, rest = self._bad.judged(messages, self._reader)
        result = self._converted(rest) if rest else Converted()
        if self._letters is not None and (judged or any(not bad.final for bad in result.bad)) and not self._fences():
            return False
        for key, message in last.items():
            cursor = self.cursors[Partition(*key)]
            stopped = result.stopped.get(cursor.partition)
            seen = None
            if cursor.topic.is_named:
                first = next(item for item in messages if partition_of(item) == cursor.partition)
                self._proofs.setdefault(cursor.partition, cursor.place.seen or seen_of(first))
                seen = seen_of(message) if stopped is None else None
            cursor.move(message.offset() + 1 if stopped is None else stopped, message.leader_epoch(), seen)
            self._moved[cursor.channel] = cursor.text
            self._touched[cursor.topic.name] = cursor.topic
        if result.tables:
            rows = pa.concat_tables(result.tables)
            self._ages.read(messages, last, self._clock())
            if self._handling.changes:
                self._writer.change(*split_deleted(rows), offsets=self._moved)
            else:
                (self._writer.upsert if self._writer.keys else self._writer.write)(rows, offsets=self._moved)
            self._moved, self._bytes = {}, self._bytes + rows.nbytes
        self._bytes += self._bad.put_aside([*judged, *result.bad], result.stopped)
        self._bad.report(result.bad)
        return True

    def _fences(self) -> bool:
        """
        Whether a txlog of this run is committed, so that earlier runs publish nothing more. If there is none yet, one
        is published that says where it stands.
        """
        try:
            if not self._count:
                self._check_topics()
                stand = {cursor.channel: cursor.text for cursor in self.cursors.values()}
                self._published(self._writer.publish(offsets={**stand, **self._moved}, alone=True))
            if not self._fenced:
                self._writer.look()
                self._fenced = self._writer.all_committed
        except (Backpressure, StorageUnavailable, SourceUnavailable) as exc:
            log.warning("bad messages wait", extra={"action": "put aside", "cause": str(exc)})
        return self._fenced

    def _converted(self, messages: list[Message]) -> Converted:
        if self._writer.card is not self._card:
            self._card, self._reader = self._writer.card, self._handling.reader(self._writer)
        skips, is_newest = self._handling.skips(), not self._newer_card.may_ask
        try:
            return converted(self._reader, messages, skips, is_newest)
        except Outdated:
            self._newer_card.ask()
        if self._writer.card is not self._card:
            self._card, self._reader = self._writer.card, self._handling.reader(self._writer)
        return converted(self._reader, messages, skips, is_newest=True)

    def _note(self, event: Message) -> None:
        """An event of a partition, or of the connection, in place of a message."""
        error = event.error()
        cursor = None if event.topic() is None else self.cursors.get(Partition(event.topic(), event.partition()))
        if cursor is None:
            if error.code() != PARTITION_EOF:
                log.warning("kafka", extra={"action": "read", "cause": error.str()})
        elif error.code() == PARTITION_EOF:
            cursor.ended = True
            if event.offset() > cursor.place.next:
                cursor.move(event.offset(), None)
                self._moved[cursor.channel] = cursor.text
        elif error.code() == OFFSET_LOST:
            self._go_on(cursor, error.str())
        elif not error.retriable():
            self._stop(cursor.partition, f"Kafka: {error.str()}", "Look at the topic and the rights; then start again.")

    def _go_on(self, cursor: Cursor, cause: str) -> None:
        """The place of a partition is not there any more; raises TopicChanged where the topic is another one."""
        self._check_topics()
        at, partition = cursor.place.next, cursor.partition
        low, high = self._consumer.range(partition)
        lost = lost_place(at, low, high, cause)
        start = self._handling.go_on(partition)
        offset = None if start is None else self._consumer.begin(partition, start)
        if offset is None or not may_go_on(at, low, high, offset):
            hint = f"To go on without what is lost: --go-on {partition.topic}:{partition.number}={lost.go_on}"
            self._stop(partition, lost.what, hint)
            return
        log.warning(
            "place lost", extra={"action": "go on", "partition": str(partition), "cause": lost.what, "to": offset}
        )
        cursor.begin(offset, cut=at >= low)
        self._moved[cursor.channel] = cursor.text
        self._ages.drop(partition)
        self._consumer.unassign(partition)
        self._consumer.assign({partition: (offset, None)})

    def _stop(self, partition: Partition, reason: str, hint: str) -> None:
        del self.cursors[partition]
        self._ages.drop(partition)
        self._consumer.unassign(partition)
        self._handling.stop(partition, reason, hint)

    def _publish(self) -> None:
        """Publishes; where that is not possible now, nothing more is read until it is."""
        try:
            self._waits = not self._send()
        except (Backpressure, StorageUnavailable, SourceUnavailable) as exc:
            if not self._waits:
                facts = {"action": "publish", "writer": self._writer.name, "cause": str(exc)}
                log.warning("reading waits", extra=facts)
            self._waits = self._has_more()

    def _has_more(self) -> bool:
        waiting = self._letters is not None and self._letters.waiting
        return waiting or self._has_unpublished_place or self._writer.unpublished_rows > 0

    @property
    def _has_unpublished_place(self) -> bool:
        """Whether a partition has a place that no txlog has; its next messages are read behind a txlog that has it."""
        return any(cursor.unpublished for cursor in self.cursors.values())

    def _send(self, ends: bool = False) -> bool:
        """Publishes what there is to publish; False where its letters are not committed yet."""
        if self._has_more() or self._writer.due():
            self._check_topics()
        elif not self._moved:
            return True
        alone = self._has_unpublished_place
        if (letters := self._letters) is not None:
            if letters.waiting:
                if not letters.send(self._passed()):
                    return False
                alone = alone or ends or letters.verdicts.crowded
            for cursor in self.cursors.values():
                if cursor.cut:  # behind the letters of what was there, before a run can begin behind the place
                    letters.verdicts.forget(cursor.channel)
        self._published(self._writer.publish(offsets=self._moved, alone=alone))
        return True

    def _published(self, name: TxlogName | None) -> None:
        self._moved = {}
        if name is not None:
            self._settled, self._count, self._bytes = False, self._count + 1, 0
            self._touched, self._proofs = {}, {}
            for cursor in self.cursors.values():
                cursor.published()

    def _passed(self) -> dict[str, int]:
        return {channel: next_of(text) for channel, text in self._writer.committed_offsets().items()}

    def _check_topics(self) -> None:
        """Raises TopicChanged where what was read may be of another topic than its channel says."""
        known = self._touched | {cursor.topic.name: cursor.topic for cursor in self.cursors.values()}
        found = self._cluster.topics([*known]) if known else {}
        for name, topic in known.items():
            now = found.get(name)
            if now is None or (now.id, now.cluster) != (topic.id, topic.cluster):
                raise TopicChanged(f"the topic {name} was {'deleted' if now is None else 'made anew'}")
        for partition, why in not_there(self._cluster, self._proofs).items():
            raise TopicChanged(f"{partition}: {why}")

    def _look(self) -> None:
        """Now and then: whether a txlog was rejected, what is committed, and how far behind it is."""
        now = self._clock()
        if timedelta(0) <= now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        try:
            if not self._settled or self._ages.waiting:
                self._writer.look()
                self._settled = self._writer.all_committed
                self._tell_kafka()
        except StorageUnavailable as exc:
            log.warning("not looked", extra={"action": "look", "writer": self._writer.name, "cause": str(exc)})
        lag = offset_lags(
            {partition: cursor.place.next for partition, cursor in self.cursors.items()}, self._consumer.end
        )
        self._writer.figures.lag = {(item.topic, str(item.number)): count for item, count in lag.items()}
        self._writer.figures.behind = {
            (item.topic, str(item.number)): self._ages.seconds(item, lag.get(item), now) for item in self.cursors
        }
        self._writer.figures.looked = now

    def _tell_kafka(self) -> None:
        """Only what the marks say: a txlog that is published may still be rejected."""
        committed = self._writer.committed_offsets()
        channels = {cursor.channel: cursor.partition for cursor in self.cursors.values()}
        told = {channels[channel]: next_of(text) for channel, text in committed.items() if channel in channels}
        self._ages.committed(told)
        if told:
            self._consumer.tell(told)
