"""
The jars of Iceberg's own REST catalog server and of Hadoop's S3, pinned by SHA-256: fetched once, kept elsewhere.

Spark's package resolution cannot be asked for them: two are named by a classifier.
"""

import hashlib
import os
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers.process import Unavailable

CENTRAL = "https://repo1.maven.org/maven2"
LIST = Path(__file__).with_name("rest_catalog.jars")
S3A = Path(__file__).with_name("s3a.jars")


def fetched(environ: Mapping[str, str], wanted: Path = LIST) -> list[Path]:
    """
    Every jar of a list, fetched where it is not there yet; raises Unavailable.
    """
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    folder = cache / "iceberg-bookkeeper" / wanted.stem.replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line.split() for line in wanted.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda line: _fetched(folder, *line), lines))


def _fetched(folder: Path, sha256: str, path: str) -> Path:
    jar = folder / path.rpartition("/")[2]
    if not jar.is_file():
        data = _download(f"{CENTRAL}/{path}")
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Unavailable(f"{CENTRAL}/{path} is not the file that was pinned")
        unfinished = jar.with_name(f"{jar.name}.{os.getpid()}.tmp")
        unfinished.write_bytes(data)
        unfinished.replace(jar)
    return jar


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            data: bytes = reply.read()
    except OSError as exc:
        raise Unavailable(f"{url} cannot be fetched: {exc}") from exc
    return data
