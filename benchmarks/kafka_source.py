"""
Topics of Kafka into a table: `writer kafka` on one core, beside the client alone, which reads and forgets.

    python -m benchmarks.kafka_source [--big]

The broker is Apache's, on the other core. A copy is a process from its start to its end (--until-end), which is in the
CPU time too: about a second. Messages have some 200 bytes and six columns, partition and offset among them.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from benchmarks.support.harness import Chosen, alone, number
from benchmarks.support.lake import configured
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise
from bookkeeper.config import load as config
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.servers.kafka import kafka

COLUMNS = ("side", "partitions", "messages", "messages/s", "CPU s per million", "most memory, MB", "txlogs")
_PARTS: dict[str, PrimitiveType] = {"partition": IntegerType(), "offset": LongType()}
_BODY: dict[str, PrimitiveType] = {
    "id": LongType(),
    "name": StringType(),
    "at": TimestamptzType(),
    "price": DoubleType(),
    "note": StringType(),
    "flag": BooleanType(),
}
_RAW: dict[str, PrimitiveType] = {"value": BinaryType()}
_AVRO = {
    "type": "record",
    "name": "Body",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "at", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": "string"},
        {"name": "flag", "type": "boolean"},
    ],
}


@dataclass(frozen=True, slots=True)
class Size:
    """Messages of each topic, those that are read one by one, and partitions of the wide topic."""

    messages: int
    few: int
    wide: int


SIZES = {"toy": Size(200, 100, 20), "short": Size(1_000_000, 100_000, 200), "big": Size(5_000_000, 500_000, 200)}


@dataclass(frozen=True, slots=True)
class Side:
    """A topic and how it is copied; `bad`: one message in the middle is none."""

    name: str
    partitions: int
    messages: int
    columns: dict[str, PrimitiveType]
    words: Sequence[str]
    bad: bool = False
    keyed: bool = False
    avro: bool = False


def sides(size: Size) -> list[Side]:
    """What is compared."""
    parts = ("--column", "partition=partition", "--column", "offset=offset")
    flat = {**_BODY, **_PARTS}
    return [
        Side("JSON", 12, size.messages, flat, parts),
        Side("JSON, one bad message", 12, size.messages, flat, (*parts, "--max-bad", "1"), bad=True),
        Side("JSON, many partitions", size.wide, size.messages, flat, parts),
        Side("Avro", 12, size.messages, flat, (*parts, "--format", "avro"), avro=True),
        Side("raw", 12, size.messages, {**_RAW, **_PARTS}, ("--format", "raw")),
        Side("Debezium", 12, size.few, _BODY, ("--format", "debezium"), keyed=True),
    ]


def message(number: int, side: Side) -> bytes:
    """The value of a message: some 200 bytes in JSON, or that in an envelope, or as Avro."""
    at = f"2026-01-31T12:{number // 60 % 60:02}:{number % 60:02}Z"
    row = {"id": number, "name": f"user-{number % 5000}", "at": at, "price": number % 1000 / 8, "flag": number % 2 == 0}
    row["note"] = "lorem ipsum dolor sit amet " + "x" * (60 + number % 9)
    if side.avro:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, _AVRO, row)
        return file.getvalue()
    return json.dumps({"op": "u", "before": None, "after": row} if side.keyed else row).encode()


def fill(brokers: str, topic: str, side: Side) -> None:
    """Makes the topic with its messages."""
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, side.partitions, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    values = [message(each, side) for each in range(min(side.messages, 10_000))]
    for each in range(side.messages):
        value = b"{" if side.bad and each == side.messages // 2 else values[each % len(values)]
        # Runs of 20, as a producer that batches makes them.
        producer.produce(topic, value, partition=each // 20 % side.partitions)
        if each % 50_000 == 0:
            producer.flush()
    producer.flush()


def table(root: Path, side: Side) -> str:
    """Makes a table; its txlog folder."""
    settings = config.load(str(configured(root, {}, {"key": ["id"]} if side.keyed else {})), {})
    fields = [
        NestedField(at, name, kind, required=side.keyed and name == "id")
        for at, (name, kind) in enumerate(side.columns.items(), 1)
    ]
    catalog = open_catalog(settings.catalog, create=True)
    return initialise(catalog, settings.tables["events"], Schema(*fields), partition=[]).folder


def measured(act: Callable[[], None]) -> tuple[float, float, float]:
    """Wall and CPU seconds, and the most memory in MB, of `act` in a process of its own on one core."""
    began = time.perf_counter()
    process = os.fork()
    if process == 0:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        act()
        os._exit(1)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"a side ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def copy(folder: str, brokers: str, topic: str, words: Sequence[str]) -> None:
    """Becomes `writer kafka`."""
    given = ["--folder", folder, "--name", "copy", "--brokers", brokers, "--topic", topic, "--until-end", "--quiet"]
    given += ["--log-level", "error"]
    os.execv(sys.executable, [sys.executable, "-m", "writers", "kafka", *given, *words])


def forget(brokers: str, topic: str, partitions: int) -> None:
    """Reads the topic to its end with the client, and does nothing with it."""
    settings = {"bootstrap.servers": brokers, "group.id": "floor", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    ended = 0
    while ended < partitions:
        ended += sum(found.error() is not None for found in consumer.consume(10_000, 0.5))
    os._exit(0)


def measure(chosen: Chosen) -> None:
    """
    One row per side.
    """
    report = chosen.report
    report.table("kafka-source", "Topics of Kafka copied into a table, on one core", COLUMNS)
    with kafka() as server:
        brokers = server.properties["bootstrap.servers"]
        for at, side in enumerate(sides(SIZES[chosen.size])):
            topic = f"side-{at}"
            fill(brokers, topic, side)

            def row(name: str, took: tuple[float, float, float], txlogs: int | None, side: Side = side) -> None:
                wall, cpu, memory = took
                speed = [number(side.messages / wall), number(cpu / side.messages * 1e6), number(memory)]
                report.row(
                    name, str(side.partitions), f"{side.messages:,}", *speed, "-" if txlogs is None else str(txlogs)
                )

            with chosen.folder() as root:
                folder = table(root, side)
                schema = root / "body.avsc"
                schema.write_text(json.dumps(_AVRO), "utf-8")
                words = [*side.words, *(["--schema", str(schema)] if side.avro else [])]
                took = measured(lambda: copy(folder, brokers, topic, words))  # noqa: B023 - called now
                row(side.name, took, len(Folder(open_store(folder)).pending()))
            if at == 0:
                row("the client alone", measured(lambda: forget(brokers, topic, side.partitions)), None)  # noqa: B023


if __name__ == "__main__":
    alone(measure, __doc__)
