"""
Programs from Debian's packages: used where they are installed, else fetched into the user's cache or installed as root.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.installed import cache, once
from tests.servers.process import Unavailable

_PATIENCE_SECONDS = 300


def promtool(environ: Mapping[str, str]) -> str:
    """
    Prometheus' tool that checks and tests rules; raises Unavailable.
    """
    found = shutil.which("promtool", path=environ.get("PATH"))

    def fetch(folder: Path) -> None:
        # It is one program without dependencies: no need to install a server with its service for it.
        _apt(["apt-get", "download", "prometheus"], folder)
        _run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(folder)], folder)

    return found or str(once(cache(environ) / "prometheus", "usr/bin/promtool", fetch))


def chromium(environ: Mapping[str, str]) -> str:
    """
    A Chromium to be run headless; raises Unavailable where there is none and nobody may install one.
    """
    found = shutil.which("chromium", path=environ.get("PATH"))
    if found is None:
        if os.getuid() != 0:
            raise Unavailable("no chromium on the PATH, and only root may install it: apt-get install chromium")
        _apt(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], Path("/"))
        found = shutil.which("chromium", path=environ.get("PATH"))
    if found is None:
        raise Unavailable("chromium was installed and is not on the PATH")
    return found


def _apt(command: Sequence[str], folder: Path) -> None:
    """With the lists of packages fetched anew when the first try finds nothing by the old ones."""
    if shutil.which("apt-get") is None:
        raise Unavailable(f"no apt-get on this system for {command[-1]}")
    with _alone():
        try:
            _run(command, folder)
        except Unavailable:
            _run(["apt-get", "update", "-qq"], folder)
            _run(command, folder)


@contextmanager
def _alone() -> Iterator[None]:
    """An apt-get that meets another one does not wait, it fails: two processes may test at once."""
    lock = cache(os.environ) / "apt.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], folder: Path) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"{command[0]}: {exc}") from exc
    if done.returncode:
        raise Unavailable(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
