"""
Iceberg's own REST catalog server, on a local warehouse or one on S3, its tables in an SQLite file.

It has no authentication, and it listens on every address of the machine (its main takes a port only): for tests.
"""

import os
import signal
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from spark_jobs.translate import catalog_confs
from spark_jobs.versions import AWS, SQLITE
from tests.servers import jars, spark
from tests.servers.process import LOOPBACK, Server, Unavailable, free_port, scratch

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_HADOOP = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar")
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def rest_catalog(warehouse: Path | str, storage: Mapping[str, str] | None = None) -> Iterator[Server]:
    """
    A running REST catalog without tables; its files go into `warehouse`, which pyiceberg's keys in `storage` reach.
    Raises Unavailable.
    """
    with tempfile.TemporaryDirectory(prefix="bookkeeper-rest-", dir=scratch()) as place:
        server = _prepare(Path(place), warehouse if isinstance(warehouse, str) else warehouse.as_uri(), storage or {})
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _prepare(place: Path, warehouse: str, storage: Mapping[str, str]) -> Server:
    environ = dict(os.environ)
    ready = spark.ready(environ, (SQLITE, AWS) if storage else (SQLITE,))
    classes = [*jars.found(environ), *ready.jars, *hadoop()]
    port = free_port()
    environ |= {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_CATALOG_NAME": "lake",
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_URI": f"jdbc:sqlite:{place}/catalog.db?busy_timeout=20000",
        **_reaching(warehouse, storage),
    }
    command = [f"{ready.java_home}/bin/java", *_SMALL, "-cp", ":".join(map(str, classes)), _MAIN]
    properties = {"type": "rest", "uri": f"http://{LOOPBACK}:{port}"}
    options = {"env": environ, "cwd": place}
    # SIGKILL: it has nothing to save, and ends seconds after SIGTERM as long as a client keeps its connection.
    return Server("REST catalog", port, command, place / "log", properties, _ready, signal.SIGKILL, options=options)


def _reaching(warehouse: str, storage: Mapping[str, str]) -> dict[str, str]:
    """Iceberg Java's keys for the storage, as the server takes them from its environment."""
    said = catalog_confs({"type": "glue", "warehouse": warehouse, **storage}) if storage else {}
    ours = {key: value for key, value in said.items() if key not in ("type", "warehouse", "cache-enabled")}
    return {f"CATALOG_{key.upper().replace('-', '__').replace('.', '_')}": value for key, value in ours.items()}


def hadoop() -> list[Path]:
    """
    The jars of Hadoop, which Spark brings and which would be 50 MB more; raises Unavailable.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("pyspark is not installed: pip install '.[spark]'")
    folder = Path(spec.origin).parent / "jars"
    return [jar for pattern in _HADOOP for jar in sorted(folder.glob(pattern))]


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/v1/config", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
