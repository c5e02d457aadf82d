"""
Many partitions, few files: topics at a steady rate into a table by `writer kafka`, with 16 slots and with a slot for
each partition, and what each costs the table.

    python -m benchmarks.kafka_slots [--big]

Real processes: a broker, `bookkeeper run`, and the writer; a process has at most 100 slots, so more partitions take
more of them. A row is visible when the catalog showed its commit to a reader that looks every 5 ms; its time is that of
its message.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.support.daemon import cpu_seconds, ended, memory_mb, running
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Lake, Watch
from bookkeeper.stores.locations import local_path
from tests.servers.kafka import kafka

COLUMNS = (
    "partitions, slots",
    "messages/s",
    "files/min",
    "txlogs/min",
    "snapshots/min",
    "visible p50, s",
    "visible p99, s",
    "writer, CPU s/min",
    "writer, MB",
    "bookkeeper, CPU s/min",
)
_MOST_SLOTS = 100
TABLE = [
    {"name": "n", "type": "long"},
    {"name": "at", "type": "timestamptz"},
    {"name": "note", "type": "string"},
    {"name": "kafka_partition", "type": "int"},
    {"name": "kafka_offset", "type": "long"},
]
PARTS = {"timestamp": "at", "partition": "kafka_partition", "offset": "kafka_offset"}


@dataclass(frozen=True, slots=True)
class Size:
    """
    Partitions, messages a second, for how long, and after how many seconds it is measured; how long the first rows, and
    the last ones, are waited for.
    """

    partitions: Sequence[int]
    rate: int
    seconds: float
    lead: float
    begin_seconds: float
    end_seconds: float


SIZES = {
    "toy": Size((3,), 100, 3, 0, 120, 60),
    "short": Size((12, 500), 1000, 75, 15, 180, 60),
    "big": Size((12, 100, 500), 1000, 315, 15, 300, 120),
}


class Topics:
    """Topics of so many partitions in all, at most 100 each, and messages to them."""

    def __init__(self, brokers: str, name: str, partitions: int) -> None:
        self.brokers, self.partitions = brokers, partitions
        counts = [min(_MOST_SLOTS, partitions - first) for first in range(0, partitions, _MOST_SLOTS)]
        self.names = [f"{name}-{index}" for index in range(len(counts))]
        self.places = [(topic, each) for topic, size in zip(self.names, counts, strict=True) for each in range(size)]
        self._producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 5000})
        made = [NewTopic(topic, size, 1) for topic, size in zip(self.names, counts, strict=True)]
        admin = AdminClient({"bootstrap.servers": brokers})
        for future in admin.create_topics(made).values():
            future.result()
        #: messages so far
        self.count = 0

    def send(self, messages: int) -> int:
        """So many messages of some 200 bytes, to the partitions in turn; how many the client took."""
        for done in range(messages):
            topic, partition = self.places[self.count % len(self.places)]
            value = json.dumps({"n": self.count, "note": "x" * 180}).encode()
            try:
                self._producer.produce(topic, value, partition=partition)
            except BufferError:  # the broker takes no more
                self._producer.poll(0.1)
                return done
            self.count += 1
        self._producer.poll(0)
        return messages

    def flush(self) -> None:
        """Until the broker has them all."""
        self._producer.flush()

    def pace(self, rate: int, seconds: float) -> int:
        """So many messages a second for so long, or as many as the broker takes; how many there were."""
        began, sent = time.monotonic(), 0
        while (late := time.monotonic() - began) < seconds:
            if sent / rate > late:
                time.sleep(sent / rate - late)
            else:
                sent += self.send(rate // 10)
        return sent


@contextmanager
def writing(lake: Lake, topics: Topics, slots: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """
    `writer kafka`: one process, or one for each topic where that is the way to so many slots.
    """
    shares = [topics.names] if slots <= _MOST_SLOTS else [[name] for name in topics.names]
    columns = [word for part, column in PARTS.items() for word in ("--column", f"{part}={column}")]
    common = ["--folder", lake.folder.store.url, "--brokers", topics.brokers, "--quiet", "--log-level", "error"]
    with ExitStack() as stack:
        processes = list[subprocess.Popen[bytes]]()
        for index, names in enumerate(shares):
            given = ["--name", f"copy{index}", "--slots", str(min(slots, _MOST_SLOTS))]
            words = [word for name in names for word in ("--topic", name)]
            log = stack.enter_context(open(lake.root / f"writer-{index}.log", "wb"))
            command = [sys.executable, "-m", "writers", "kafka", *common, *given, *words, *columns]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        try:
            yield processes
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                ended(process)


@dataclass(frozen=True, slots=True)
class Taken:
    """When it was measured, seconds of the epoch, and what processes used then."""

    since: float
    until: float
    sent: int
    writer: float
    writer_mb: float
    bookkeeper: float


def side(chosen: Chosen, brokers: str, name: str, partitions: int, slots: int, size: Size) -> None:
    """
    One row, and a note where the last messages were not in the table in time.
    """
    with chosen.folder() as root:
        lake, topics = Lake.at(root, schema=TABLE, partition_by=[]), Topics(brokers, name, partitions)
        with running(lake.path) as book, Watch(lake.root) as watch, writing(lake, topics, slots) as writers:
            topics.send(partitions)
            begun = await_rows(lake, partitions, size.begin_seconds)
            topics.pace(size.rate, size.lead)
            taken = _measured(topics, size, book.pid, [process.pid for process in writers])
            whole = await_rows(lake, topics.count, size.end_seconds)
        chosen.report.row(*_cells(lake, watch, taken, partitions, slots))
        if not begun or not whole:
            late = f"{topics.count - rows(lake):,} of {topics.count:,} messages were missing"
            after = (
                f"{partitions} partitions, {slots} slots do not keep up: {size.end_seconds:.0f} s after the last one"
            )
            chosen.report.note(f"{after} {late}")


def _measured(topics: Topics, size: Size, book: int, writers: Sequence[int]) -> Taken:
    since, before = time.time(), (sum(map(cpu_seconds, writers)), cpu_seconds(book))
    sent = topics.pace(size.rate, size.seconds - size.lead)
    until = time.time()
    memory = sum(memory_mb(pid)[1] for pid in writers)
    return Taken(since, until, sent, sum(map(cpu_seconds, writers)) - before[0], memory, cpu_seconds(book) - before[1])


def await_rows(lake: Lake, wanted: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while rows(lake) < wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def rows(lake: Lake) -> int:
    head = lake.table().current_snapshot()
    return int(head.summary["total-records"]) if head is not None else 0


def _cells(lake: Lake, watch: Watch, taken: Taken, partitions: int, slots: int) -> list[str]:
    table, seconds = lake.table(), taken.until - taken.since
    seen = seen_at(table, watch)
    files, late = 0, list[float]()
    for entry in entries(table):
        at = seen[entry.snapshot_id]
        files += taken.since <= at < taken.until
        times = pq.read_table(local_path(entry.data_file.file_path), columns=["at"])["at"]
        late += [at - item for item in in_seconds(times) if taken.since <= item < taken.until]
    txlogs = sum(taken.since <= at / 1000 < taken.until for at in watch.times(table).values())
    commits = sum(taken.since <= at < taken.until for at in seen.values())
    rates = [number(found * 60 / seconds) for found in (files, txlogs, commits)]
    visible = [number(percentile(late, share)) if late else "-" for share in (0.5, 0.99)]
    used = [number(taken.writer * 60 / seconds), number(taken.writer_mb), number(taken.bookkeeper * 60 / seconds)]
    return [f"{partitions}, {slots}", number(taken.sent / seconds), *rates, *visible, *used]


def in_seconds(times: Any) -> list[float]:
    return [item / 1e6 for item in pc.cast(times, "int64").to_pylist()]


def entries(table: Any) -> Iterator[Any]:
    for manifest in table.current_snapshot().manifests(table.io):
        yield from manifest.fetch_manifest_entry(table.io, True)


def seen_at(table: Any, watch: Watch) -> dict[int, float]:
    """When each snapshot could be seen first, seconds of the epoch; one that no look saw: with the next."""
    found, known = dict[int, float](), {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    for at, location in watch.seen["events"]:
        with table.io.new_input(location).open() as file:
            there = {item["snapshot-id"] for item in json.loads(file.read()).get("snapshots", [])}
        for each in there - found.keys():
            found[each] = at
    assert known <= found.keys()
    return found


def measure(chosen: Chosen) -> None:
    """
    A row for each number of partitions with 16 slots, and one with as many slots as partitions.
    """
    size = SIZES[chosen.size]
    title = f"{size.rate:,} messages a second from Kafka, with few slots and with one for each partition"
    chosen.report.table("kafka-slots", title, COLUMNS)
    with kafka() as server:
        brokers = server.properties["bootstrap.servers"]
        for at, partitions in enumerate(size.partitions):
            for slots in (16, partitions):
                side(chosen, brokers, f"slots-{at}-{slots}", partitions, slots, size)


if __name__ == "__main__":
    alone(measure, __doc__)
