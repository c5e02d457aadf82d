"""
Apache Kafka: one node that is broker and controller (KRaft), on loopback, its data in a folder of its own.
"""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_jobs import prepare
from tests.servers import jars
from tests.servers.process import LOOPBACK, Server, Unavailable, free_port

_MAIN = "kafka.Kafka"
_SMALL = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
#: one replica of everything, small inner topics, and segments and checks so short that retention passes in a test
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "log.index.size.max.bytes": "262144",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.retention.check.interval.ms": "500",
    "file.delete.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
}
#: names the cluster in channels; a cluster made anew has another
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


@contextmanager
def kafka(cluster: str = CLUSTER, settings: Mapping[str, str] = _SETTINGS) -> Iterator[Server]:
    """
    A running broker without topics; `properties["bootstrap.servers"]` reaches it. Addresses and the folder are its own,
    whatever the settings say. Raises Unavailable.
    """
    with tempfile.TemporaryDirectory(prefix="bookkeeper-kafka-", ignore_cleanup_errors=True) as place:
        server = _prepare(Path(place), cluster, settings)
        server.start()
        try:
            yield server
        finally:
            server.crash()


def ready(environ: Mapping[str, str]) -> list[Path]:
    """
    The jars; raises Unavailable.
    """
    return jars.found(environ, jars.KAFKA)


def _prepare(place: Path, cluster: str, given: Mapping[str, str]) -> Server:
    home = prepare.ready_java(dict(os.environ))
    if home is None:
        raise Unavailable("no Java is installed")
    classes = ready(os.environ)
    port, controller = free_port(), free_port()
    data = place / "data"
    data.mkdir()
    # What `kafka-storage format` writes, which would be a second start of Java.
    facts = f"version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBB\n"
    (data / "meta.properties").write_text(facts, "ascii")
    settings = {
        **given,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log.dirs": str(data),
    }
    properties = place / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "ascii")
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = [f"{home}/bin/java", *_SMALL, log, "-cp", ":".join(map(str, classes)), _MAIN, str(properties)]
    reaching = {"bootstrap.servers": f"{LOOPBACK}:{port}"}
    return Server("Kafka", port, command, place / "log", reaching, crash_signal=signal.SIGKILL, options={"cwd": place})
