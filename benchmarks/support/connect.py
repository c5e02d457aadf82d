"""
Kafka Connect with Iceberg's sink, as a process: one standalone worker, its catalog the SQLite file of a Lake.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.daemon import ended
from benchmarks.support.lake import IDENTIFIER
from spark_jobs.versions import SQLITE
from tests.servers import jars, spark
from tests.servers.process import LOOPBACK, free_port
from tests.servers.rest import hadoop

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
#: the heap that Kafka's own script `connect-standalone` gives it
_JAVA = ("-Xms256m", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
#: as many as cores: the tasks of a sink are threads
TASKS = 2
_WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "plugin.discovery": "service_load",
    # Of each poll; by default 500.
    "consumer.max.poll.records": "10000",
    # With the default, a minute, the first commit came after one to two minutes where few messages came.
    "offset.flush.interval.ms": "500",
    # How long the group waits for a worker that was killed; with Kafka's 45 s the next one idles longer.
    "consumer.session.timeout.ms": "10000",
}
_SINK = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": str(TASKS),
    "iceberg.tables": IDENTIFIER,
    "iceberg.catalog": "lake",
    "iceberg.catalog.type": "jdbc",
    "iceberg.catalog.jdbc.schema-version": "V1",
    "transforms": "parts",
    "transforms.parts.type": "org.apache.kafka.connect.transforms.InsertField$Value",
}


@dataclass(frozen=True, slots=True)
class Sink:
    """
    What one connector copies, and where to; `columns` are those that InsertField makes of a message's place.
    """

    root: Path
    brokers: str
    topic: str
    control_topic: str
    commit_ms: int
    columns: Mapping[str, str]


@contextmanager
def connecting(sink: Sink) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """
    A worker until the block ends; one that is started again goes on where the last one was. Raises Unavailable without
    jars or a Java.
    """
    command = [*_java(), _MAIN, str(_worker(sink)), str(_connector(sink))]
    with open(sink.root / "connect.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=sink.root)
    try:
        yield [process]
    finally:
        process.terminate()
        ended(process)


def _worker(sink: Sink) -> Path:
    own = {
        "bootstrap.servers": sink.brokers,
        "listeners": f"http://{LOOPBACK}:{free_port()}",
        "offset.storage.file.filename": str(sink.root / "connect.offsets"),
    }
    return _properties(sink.root / "worker.properties", _WORKER | own)


def _connector(sink: Sink) -> Path:
    own = {
        # The name of the connector is in that of its group of consumers.
        "name": sink.control_topic,
        "topics": sink.topic,
        "iceberg.control.topic": sink.control_topic,
        "iceberg.control.commit.interval-ms": str(sink.commit_ms),
        "iceberg.catalog.uri": f"jdbc:sqlite:{sink.root}/cat.db?busy_timeout=20000",
        "iceberg.catalog.warehouse": f"file://{sink.root}/wh",
        **{f"transforms.parts.{part}.field": column for part, column in sink.columns.items()},
    }
    return _properties(sink.root / "sink.properties", _SINK | own)


def ready() -> None:
    """
    Raises Unavailable where a jar or a Java is missing.
    """
    _java()


def _java() -> list[str]:
    found = spark.ready(dict(os.environ), (SQLITE,))
    classes = [*jars.found(os.environ, jars.CONNECT), *found.jars, *hadoop()]
    return [f"{found.java_home}/bin/java", *_JAVA, "-cp", ":".join(map(str, classes))]


def _properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    return path
