"""
Apache Kafka: one node that is broker and controller (KRaft), on loopback, its data in a folder of its own.
"""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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
#: of the listener with TLS and SASL
USER, PASSWORD = "copy", "kafka-secret-7"
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
    port, controller, secure = free_port(), free_port(), free_port()
    store, authority = _certificate(place)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    data = place / "data"
    data.mkdir()
    # What `kafka-storage format` writes, which would be a second start of Java.
    facts = f"version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBB\n"
    (data / "meta.properties").write_text(facts, "ascii")
    settings = {
        **given,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller},SECURE://{LOOPBACK}:{secure}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},SECURE://{LOOPBACK}:{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": login,
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(store),
        "log.dirs": str(data),
    }
    properties = place / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "ascii")
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = [f"{home}/bin/java", *_SMALL, log, "-cp", ":".join(map(str, classes)), _MAIN, str(properties)]
    reaching = {
        "bootstrap.servers": f"{LOOPBACK}:{port}",
        "secure.servers": f"{LOOPBACK}:{secure}",
        "ca": str(authority),
    }
    return Server("Kafka", port, command, place / "log", reaching, crash_signal=signal.SIGKILL, options={"cwd": place})


def _certificate(place: Path) -> tuple[Path, Path]:
    """A key store for the loopback address, and the file with its authority, which is itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, LOOPBACK)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))])
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    public = certificate.public_bytes(serialization.Encoding.PEM)
    kind, form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    store, authority = place / "store.pem", place / "ca.pem"
    store.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, form) + public)
    authority.write_bytes(public)
    return store, authority
