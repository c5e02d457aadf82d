"""
Topics into one table: slots in threads, each run by the instance that holds its lease.

Leases save work; two instances that run one slot are told apart by the position of its txlogs, and one is fenced.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from threading import Lock, Thread

from bookkeeper.contract.offsets import Offsets, is_slot, slot_name
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import NotPossible, SourceUnavailable
from bookkeeper.leases.lease import Lease
from bookkeeper.threads import start as start_thread
from writers.kafka.assignment import lease_of, slots_of
from writers.kafka.client import Cluster
from writers.kafka.dead_letters import Letters, check_same, check_without, opened
from writers.kafka.messages import PARTS, Form, MessageReader
from writers.kafka.partitions import Partition, Topic
from writers.kafka.start_option import GoOn, Start
from writers.metrics import WriterMetrics
from writers.opener import Opener
from writers.publish.publisher import resume
from writers.timing import Clock, Wait
from writers.writer import Writer

log = logging.getLogger(__name__)

TOPICS_EVERY = timedelta(seconds=30)
#: so long after the last answer of Kafka, or look of a slot, its metrics go on by themselves
_SILENT = timedelta(minutes=2)


@dataclass(frozen=True)
class Wanted:
    """
    What is copied and how. `share` is this instance's number and how many instances there are; `most_bad` how many bad
    messages are passed over before their partitions stop (None: none of them, or all where they become dead letters).
    """

    name: str
    topics: Sequence[str]
    start: Start
    form: Form | None
    filled: Mapping[str, str]
    slots: int = 16
    share: tuple[int, int] = (1, 1)
    go_on: Sequence[GoOn] = ()
    most_bad: int | None = None
    until_end: bool = False


@dataclass
class Memory:
    """
    Bytes of messages and rows that the slots of a process may have, of all tables; each dictionary is written by
    assignment of one key, by one thread a key.
    """

    limit: int = 48 * 2**20
    #: by folder and slot: bytes of rows that wait to be published
    waiting: dict[tuple[str, str], int] = field(default_factory=dict)
    #: by folder: slots that have partitions
    slots: dict[str, int] = field(default_factory=dict)

    def full(self, folder: str, slot: str, size: int) -> bool:
        """Whether the rows of all slots, of this one `size` bytes, are too much; first of the largest."""
        self.waiting[folder, slot] = size
        every = [*self.waiting.values()]
        most = self.limit // (2 if size == max(every) else 1)
        return size > 0 and sum(every) > most

    def ahead(self) -> int:
        """Bytes that one slot may have of messages: as many again are read ahead."""
        return self.limit // (4 * max(1, sum([*self.slots.values()])))


@dataclass
class Shared:
    """
    What the slots of an instance share; each dictionary is written by assignment of one key, by one thread a key.
    """

    wanted: Wanted
    cluster: Cluster
    opener: Opener
    clock: Clock
    wait: Wait
    stopping: Callable[[], bool]
    #: of the table of dead letters
    letters_opener: Opener | None = None
    #: partitions that go on no further, with their slot and the reason
    stopped: dict[Partition, tuple[str, str]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    figures: dict[str, WriterMetrics] = field(default_factory=dict)
    #: by id of a topic that was begun by this process: how many partitions it had then
    begun: dict[str, int] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    _topics: Mapping[str, Topic] = field(default_factory=dict)
    _asked_at: datetime | None = None
    _answered_at: datetime | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def folder(self) -> str:
        """The URL of the table's txlog folder."""
        return self.opener.url

    def topics(self, fresh: bool = False) -> Mapping[str, Topic]:
        """The topics as they were lately, or, `fresh`, as they are; only then SourceUnavailable is raised."""
        with self._lock:
            now = self.clock()
            if fresh or self._asked_at is None or not timedelta(0) <= now - self._asked_at < TOPICS_EVERY:
                self._asked_at = now
                try:
                    self._topics = self.cluster.topics(self.wanted.topics)
                    self._answered_at = self.clock()
                    for name in self.wanted.topics:
                        if name not in self._topics:
                            log.error("topic is not there", extra={"action": "look", "topic": name})
                except SourceUnavailable as exc:
                    if fresh:
                        raise
                    log.warning("topics not read", extra={"action": "look", "cause": str(exc)})
            return self._topics

    def partitions(self, slot: int, topics: Mapping[str, Topic]) -> set[Partition]:
        """The partitions of a slot that have not stopped."""
        name = slot_name(self.wanted.name, slot)
        return {item for item, own in self._slots(topics) if own == name and item not in self.stopped}

    def _slots(self, topics: Mapping[str, Topic]) -> Iterator[tuple[Partition, str]]:
        return slots_of(self.wanted.name, self.wanted.slots, topics)

    def stop(self, slot: str, partition: Partition, reason: str, hint: str) -> None:
        """A partition goes on no further until this process is started again."""
        facts = {"action": "stop", "writer": slot, "folder": self.folder, "partition": str(partition)}
        log.error("partition stopped", extra={**facts, "cause": reason, "hint": hint})
        self.stopped[partition] = slot, f"{reason}. {hint}"
        self.show(slot)

    def show(self, slot: str) -> None:
        """The stopped partitions of a slot, in its metrics."""
        if (figures := self.figures.get(slot)) is not None:
            own = [item for item, (of, _) in [*self.stopped.items()] if of == slot]
            figures.stopped = {(item.topic, str(item.number)): 1 for item in own}

    def measured(self) -> list[WriterMetrics]:
        """The figures of its slots; what was not measured for long has waited since then."""
        return [self._aged(figures) for figures in [*self.figures.values()]]

    def _aged(self, figures: WriterMetrics) -> WriterMetrics:
        times = [at for at in (figures.looked, self._answered_at) if at is not None]
        silent = self.clock() - min(times) if times else timedelta(0)
        if silent < _SILENT:
            return figures
        behind = {key: max(age or 0.0, silent.total_seconds()) for key, age in figures.behind.items()}
        return replace(figures, behind=behind)

    def begins(self, slot: str) -> None:
        """A slot is about to begin: what it has not read waits from now on, also where it never can."""
        figures = self.figures.setdefault(slot, WriterMetrics(slot, self.folder, kafka=True))
        if not figures.behind:
            own = [item for item, of in self._own().items() if of == slot]
            figures.behind = {(item.topic, str(item.number)): None for item in own}
            figures.looked = self.clock()

    def begin_all(self) -> None:
        """As `begins` for each slot, where `run` has ended because Kafka is away."""
        for slot in {*self._own().values()}:
            self.begins(slot)

    def _own(self) -> dict[Partition, str]:
        """The partitions with their slots; where Kafka has not said them each topic counts as its first."""
        first = {Partition(name, 0): slot_name(self.wanted.name, 0) for name in self.wanted.topics}
        return dict(self._slots(self._topics)) if self._topics else first

    def away(self, slot: str) -> None:
        """Another instance reads the slot: only its gauges count."""
        if (figures := self.figures.get(slot)) is not None:
            figures.lag, figures.behind, figures.stopped = {}, {}, {}
            figures.goes_on()

    def stop_all(self, reason: str) -> None:
        """After `run` has ended by an error: no partition goes on."""
        for partition, slot in self._own().items():
            self.stopped.setdefault(partition, (slot, reason))
            self.figures.setdefault(slot, WriterMetrics(slot, self.folder, kafka=True))
        for slot in self.figures:
            self.show(slot)

    def begin_again(self) -> None:
        """After `run` has ended: what had stopped is tried again."""
        self.stopped.clear()
        self.failures.clear()
        self._asked_at = None
        for slot in self.figures:
            self.show(slot)

    def skips(self) -> int:
        """How many bad messages may still be passed over."""
        most = self.wanted.most_bad
        if most is None:
            most = 0 if self.letters_opener is None else sys.maxsize
        return max(0, most - sum([*self.skipped.values()]))

    def letters(self, folder: Folder, slot: str) -> Letters | None:
        """The dead letters of a new run of a slot; to be opened before its writer."""
        if self.letters_opener is None:
            check_without(folder, self.wanted.name)
            return None
        check_same(self.letters_opener.folder(), folder, self.wanted.name)
        writer = self.letters_opener.writer(slot)
        try:
            return opened(self.wanted.name, slot, writer, folder, self.clock, self.wait)
        except BaseException:
            writer.close()
            raise

    def ahead(self) -> int:
        """Bytes that one slot may have of messages: as many again are read ahead."""
        self.memory.slots[self.folder] = len({slot for _, slot in self._slots(self.topics())})
        return self.memory.ahead()

    def reader(self, writer: Writer) -> MessageReader:
        """A reader of messages for the columns of the writer's table; raises ConfigInvalid, NotPossible."""
        return reader_of(writer, self.wanted.form, self.wanted.filled)

    def chains(self, folder: Folder) -> dict[str, Offsets]:
        """What each slot of this source has reached, published or committed."""
        card, copy = folder.card(), folder.marks()
        names = {item.name.writer for item in folder.pending()} | (set() if copy is None else copy.marks.writers.keys())
        own = {name for name in names if is_slot(self.wanted.name, name)}
        return {name: found for name in own if (found := resume(folder, card, name, 0).offsets)}

    def lease(self, folder: Folder, slot: int) -> Lease:
        """The lease of a slot: this instance's own, or borrowed while another one is away."""
        return lease_of(folder.store, self.wanted.name, slot, self.wanted.share)


def reader_of(writer: Writer, form: Form | None, filled: Mapping[str, str]) -> MessageReader:
    """
    A reader of messages for the columns of the writer's table; raises ConfigInvalid, NotPossible.
    """
    schema = writer.row_schema
    if form is not None and form.changes and not writer.keys:
        hint = "`bookkeeper init --key` makes it keyed; with --format json or avro each message is a new row."
        raise NotPossible(f"{writer.card.table} is append-only: it takes no upserts and deletes", hint=hint)
    if form is None and not filled:
        filled = {part: part for part in PARTS if any(item.name == part for item in schema.fields)}
    return MessageReader(schema, writer.keys, writer.former_names, form, filled)


def run(shared: Shared, act: Callable[[Shared, int], None]) -> None:
    """
    Starts `act` for each slot that has partitions, also later ones, and waits for all of them.

    Raises what the first of them raised, and NotPossible where partitions have stopped and nothing else is left.
    """
    topics = shared.topics(fresh=True)
    if missing := [name for name in shared.wanted.topics if name not in topics]:
        raise NotPossible(f"there is no topic {', '.join(missing)}", hint="Give names of topics, not patterns.")
    threads = dict[int, Thread]()
    while not (shared.stopping() or shared.failures):
        for slot in range(shared.wanted.slots):
            idle = slot not in threads or not (threads[slot].is_alive() or shared.wanted.until_end)
            if idle and shared.partitions(slot, topics):
                threads[slot] = start_thread(partial(_guarded, shared, act, slot), slot_name(shared.wanted.name, slot))
        alive = next((thread for thread in threads.values() if thread.is_alive()), None)
        if alive is None:
            break
        alive.join(0.2)
        topics = shared.topics()
    for thread in threads.values():
        thread.join()
    if shared.failures:
        raise shared.failures[0]
    if shared.stopped and not shared.stopping():
        first, (_, why) = next(iter(shared.stopped.items()))
        raise NotPossible(f"{len(shared.stopped)} partitions have stopped; {first}: {why}")


def _guarded(shared: Shared, act: Callable[[Shared, int], None], slot: int) -> None:
    try:
        act(shared, slot)
    except BaseException as exc:  # noqa: BLE001  (raised by `run`)
        shared.failures.append(exc)
