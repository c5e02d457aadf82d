"""
Topics of Kafka into a table: `writer kafka` with `bookkeeper run`, beside Kafka Connect with Iceberg's sink.

    python -m benchmarks.kafka_connect [--big]

One broker and one SQLite catalog for both; a standalone worker has two tasks. First each side copies messages that are
there, from its start until the last one is visible: messages a second, CPU time and memory are those of all its
processes, starts among them. Then messages come at a steady rate: files, snapshots and the time until a row is visible.
In the end every row of the table is counted. The second table is of copies whose process is killed (SIGKILL) and
started again.
"""

import itertools
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_slots import PARTS, TABLE, Topics, entries, in_seconds, rows, seen_at, writing
from benchmarks.support import connect
from benchmarks.support.connect import Sink, connecting
from benchmarks.support.daemon import cpu_seconds, memory_mb, running
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Lake, Watch
from bookkeeper.stores.locations import local_path
from tests.servers.kafka import kafka
from tests.servers.process import Unavailable

SINK, COPY = "Iceberg's sink", "writer kafka"
COLUMNS = (
    "side, a commit or a file every",
    "messages/s",
    "CPU s per million",
    "most memory, MB",
    "files/min",
    "snapshots/min",
    "visible p50, s",
    "visible p99, s",
    "missing",
    "double",
)
KILLED = ("side, a commit or a file every", "messages", "kills", "seconds", "missing", "double")
_SHORT = {SINK: "sink", COPY: "copy"}
_SLOTS = 16
#: a table whose rows are still fewer than the messages has to stay as it is for so long to be done
_STILL_SECONDS = 180
Start = Callable[[], AbstractContextManager[list["subprocess.Popen[bytes]"]]]


@dataclass(frozen=True, slots=True)
class Size:
    """
    Partitions, and messages that are there; those that come each second, and for how many seconds; seconds between two
    commits; kills.
    """

    partitions: int
    messages: int
    rate: int
    seconds: float
    every: tuple[int, ...]
    kills: int


SIZES = {
    "toy": Size(3, 300, 100, 3, (1,), 1),
    "short": Size(12, 1_000_000, 1000, 60, (10, 1), 5),
    "big": Size(12, 5_000_000, 1000, 300, (10, 1), 20),
}


@dataclass(frozen=True, slots=True)
class Side:
    """
    A topic, its table, and what copies it; `beside` runs for as long as it is measured.
    """

    lake: Lake
    topics: Topics
    start: Start
    beside: list["subprocess.Popen[bytes]"]

    def used(self, processes: list["subprocess.Popen[bytes]"]) -> tuple[float, float]:
        """CPU seconds so far, and the most memory in MB."""
        pids = [process.pid for process in (*processes, *self.beside)]
        return sum(map(cpu_seconds, pids)), sum(memory_mb(pid)[1] for pid in pids)


@contextmanager
def prepared(root: Path, brokers: str, kind: str, every: int, size: Size, name: str) -> Iterator[Side]:
    """
    A table without rows beside a topic with `size.messages`.
    """
    lake = Lake.at(root, schema=TABLE, partition_by=[], roll_after=f"{every}s")
    topics = Topics(brokers, name, size.partitions)
    _fill(topics, size.messages)
    with ExitStack() as stack:
        if kind == COPY:
            beside = [stack.enter_context(running(lake.path))]
            yield Side(lake, topics, lambda: writing(lake, topics, _SLOTS), beside)
        else:
            control = f"{name}-control"
            admin = AdminClient({"bootstrap.servers": brokers})
            admin.create_topics([NewTopic(control, 1, 1)])[control].result()
            sink = Sink(root, brokers, topics.names[0], control, every * 1000, PARTS)
            yield Side(lake, topics, lambda: connecting(sink), [])


def _fill(topics: Topics, messages: int) -> None:
    while topics.count < messages:
        topics.send(min(1000, messages - topics.count))
    topics.flush()


def compared(chosen: Chosen, brokers: str, kind: str, every: int, size: Size) -> None:
    """
    One row of the first table.
    """
    name = f"compared-{every}-{_SHORT[kind]}"
    with chosen.folder() as root, prepared(root, brokers, kind, every, size, name) as side:
        lake, topics = side.lake, side.topics
        with Watch(root) as watch:
            began = time.monotonic()
            with side.start() as processes:
                _settle(lake, size.messages)
                wall, cpu = time.monotonic() - began, side.used(processes)[0]
                since = time.time()
                topics.pace(size.rate, size.seconds)
                until = time.time()
                topics.flush()
                _settle(lake, topics.count)
                memory = side.used(processes)[1]
        speed = [number(size.messages / wall), number(cpu / size.messages * 1e6), number(memory)]
        chosen.report.row(f"{kind}, {every} s", *speed, *_steady(lake, watch, since, until), *_counted(lake, topics))


def killed(chosen: Chosen, brokers: str, kind: str, every: int, size: Size) -> None:
    """
    One row of the second table. The kills are spread over the messages, each at a chance moment between two commits.
    """
    chance = random.Random(7)
    name = f"killed-{every}-{_SHORT[kind]}"
    with chosen.folder() as root, prepared(root, brokers, kind, every, size, name) as side:
        lake, topics, kills = side.lake, side.topics, 0
        began = time.monotonic()
        while kills < size.kills:
            with side.start() as processes:
                _settle(lake, size.messages * kills // size.kills + 1)
                topics.pace(size.rate, every * (1 + chance.random()))
                for process in processes:
                    process.kill()
                    process.wait()
                kills += 1
        with side.start():
            topics.flush()
            _settle(lake, topics.count)
            seconds = time.monotonic() - began
            # What is double may come late.
            time.sleep(3 * every)
        counts = [f"{topics.count:,}", str(kills), number(seconds)]
        chosen.report.row(f"{kind}, {every} s", *counts, *_counted(lake, topics))


def _settle(lake: Lake, wanted: int) -> None:
    """Until there are so many rows, or for long no new ones."""
    last, since = -1, time.monotonic()
    while (found := rows(lake)) < wanted and time.monotonic() - since < _STILL_SECONDS:
        if found != last:
            last, since = found, time.monotonic()
        time.sleep(0.2)


def _steady(lake: Lake, watch: Watch, since: float, until: float) -> list[str]:
    table = lake.table()
    seen = seen_at(table, watch)
    files, late = 0, list[float]()
    for entry in entries(table):
        at = seen[entry.snapshot_id]
        files += since <= at < until
        times = pq.read_table(local_path(entry.data_file.file_path), columns=["at"])["at"]
        late += [at - item for item in in_seconds(times) if since <= item < until]
    commits = sum(since <= at < until for at in seen.values())
    visible = [number(percentile(late, share)) if late else "-" for share in (0.5, 0.99)]
    return [number(files * 60 / (until - since)), number(commits * 60 / (until - since)), *visible]


def _counted(lake: Lake, topics: Topics) -> list[str]:
    """Messages without a row, and rows too many."""
    place = ["kafka_partition", "kafka_offset"]
    parts = [
        pq.ParquetFile(local_path(entry.data_file.file_path)).read(columns=place) for entry in entries(lake.table())
    ]
    found = pa.concat_tables(parts)
    distinct = found.group_by(place).aggregate([]).num_rows
    return [f"{topics.count - distinct:,}", f"{found.num_rows - distinct:,}"]


def measure(chosen: Chosen) -> None:
    """
    A row for each side and each time between two commits, then one for each side that is killed; the sink's are 'not
    run' without its jars.
    """
    size, report, why = SIZES[chosen.size], chosen.report, _why_not()
    title = f"{size.messages:,} messages from Kafka, then {size.rate:,} a second, beside Kafka Connect"
    with kafka() as server:
        brokers = server.properties["bootstrap.servers"]

        def side(act: Callable[..., None], kind: str, every: int) -> None:
            if kind == SINK and why:
                report.row(f"{kind}, {every} s", *[None] * (len(report.columns) - 1))
            else:
                act(chosen, brokers, kind, every, size)

        report.table("kafka-connect", title, COLUMNS)
        for every, kind in itertools.product(size.every, (SINK, COPY)):
            side(compared, kind, every)
        if why:
            report.note(f"{SINK}: {why}")
        report.table("kafka-connect-kills", "The same copies, killed and started again", KILLED)
        for kind in (SINK, COPY):
            side(killed, kind, size.every[-1])


def _why_not() -> str:
    """Why the sink cannot be run, if so."""
    try:
        connect.ready()
    except Unavailable as exc:
        return str(exc)
    return ""


if __name__ == "__main__":
    alone(measure, __doc__)
