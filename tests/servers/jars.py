"""
The jars of Iceberg's own REST catalog server, of Hadoop's S3, of Kafka and of Kafka Connect, pinned by SHA-256.
`make prepare` fetches them.

Spark's package resolution cannot be asked for them: two are named by a classifier.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers.installed import cache, missing

CENTRAL = "https://repo1.maven.org/maven2"
LIST = Path(__file__).with_name("rest_catalog.jars")
S3A = Path(__file__).with_name("s3a.jars")
KAFKA = Path(__file__).with_name("kafka.jars")
CONNECT = Path(__file__).with_name("connect.jars")
_STEPS = {KAFKA: "kafka", CONNECT: "connect"}


@dataclass(frozen=True, slots=True)
class Jar:
    """
    Where a jar comes from, what it has to be, and where it is kept.
    """

    url: str
    sha256: str
    path: Path


def wanted(environ: Mapping[str, str], listed: Path = LIST) -> list[Jar]:
    """
    Every jar of a list.
    """
    folder = cache(environ) / listed.stem.replace("_", "-")
    lines = [line.split() for line in listed.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [Jar(f"{CENTRAL}/{path}", sha256, folder / path.rpartition("/")[2]) for sha256, path in lines]


def found(environ: Mapping[str, str], listed: Path = LIST) -> list[Path]:
    """
    Every jar of a list, where it is kept; raises Unavailable.
    """
    paths = [jar.path for jar in wanted(environ, listed)]
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        more = f" and {len(absent) - 1} more" if absent[1:] else ""
        raise missing(f"{absent[0]}{more}", paths[0].parent, _STEPS.get(listed, "jars"))
    return paths
