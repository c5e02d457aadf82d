"""
The image, built and run: `make image`. It takes minutes and needs root, buildah, podman and mmdebstrap.

`make image SPARK=1` builds the one with Spark too, and reads a table with it: some more minutes.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.engine import CONFINED, JRE, PYTHON, TMPFS, Engine
from tests.deploy.test_compose import SERVICES
from tests.servers.process import Unavailable

TAG = "localhost/iceberg-bookkeeper:test"
SPARK = bool(os.environ.get("SPARK"))
CONFIG = """\
[catalog]
name = "lake"
type = "sql"
uri = "sqlite:////lake/catalog.db"
warehouse = "file:///lake"

[tables.events]
identifier = "demo.events"
"""

pytestmark = pytest.mark.skipif("IMAGE_TEST" not in os.environ, reason="builds an image, minutes: make image")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    try:
        with Engine.here(os.environ) as made:
            made.have(PYTHON, *([JRE] if SPARK else []))
            made.build("bookkeeper", TAG)
            yield made
    except Unavailable as exc:
        pytest.skip(str(exc))


@pytest.fixture
def volumes(tmp_path: Path) -> tuple[str, ...]:
    """
    A lake that belongs to the image's user, and the configuration where the image looks for it.
    """
    lake, etc = tmp_path / "lake", tmp_path / "etc"
    for folder in (lake, etc):
        folder.mkdir()
    os.chown(lake, 10001, 10001)
    (etc / "bookkeeper.toml").write_text(CONFIG)
    return ("--volume", f"{lake}:/lake", "--volume", f"{etc}:/etc/bookkeeper:ro")


@pytest.fixture
def daemon(engine: Engine, volumes: tuple[str, ...]) -> Iterator[str]:
    """
    The bookkeeper, started as the image starts it; its container's id.
    """
    engine.run(TAG, "bookkeeper", "init", options=volumes)
    name = engine.podman("run", "--detach", *CONFINED, "--tmpfs", TMPFS, *volumes, TAG).strip()
    yield name
    engine.podman("rm", "--force", "--time", "0", name)


def status(engine: Engine, daemon: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(engine.podman("exec", daemon, "bookkeeper", "status", "--json"))
    return found


def test_it_runs_as_an_unprivileged_user_and_brings_no_build_tools(engine: Engine) -> None:
    found = engine.run(TAG, "sh", "-c", "id -u; ls /opt/venv/bin; command -v gcc make git curl || true")

    assert found.split()[0] == "10001"
    assert not re.search(r"\bpip|gcc|make|git|curl", found)


@pytest.mark.parametrize("command", ["writer", "bookkeeper", "reaper"])
def test_every_command_is_there(engine: Engine, command: str) -> None:
    assert "Usage" in engine.run(TAG, command, "--help")


@pytest.mark.parametrize("guest, name", [("kafka", "run_kafka"), ("http", "run_serve"), ("watch", "run_watch")])
def test_guests_of_writers_are_there_with_what_they_import(engine: Engine, guest: str, name: str) -> None:
    said = engine.run(TAG, "python", "-c", f"import writers.{guest}.command as it; print(it.{name}.__name__)")

    assert said.strip() == name


def test_a_writer_and_a_bookkeeper_from_the_image_on_a_read_only_disk(
    engine: Engine, daemon: str, volumes: tuple[str, ...]
) -> None:
    folder = "/lake/demo/events/_bookkeeper"
    load = ("--files", "3", "--records", "100", "--value-bytes", "100", "--quiet")
    engine.run(TAG, "writer", "generate", "--folder", folder, *load, options=volumes)

    deadline = time.monotonic() + 30
    while (seen := status(engine, daemon))["rows"] != 300 and time.monotonic() < deadline:
        time.sleep(0.5)

    assert (seen["rows"], seen["pending"], seen["rejected"]) == (300, 0, 0)
    health = json.loads(engine.podman("image", "inspect", TAG))[0]["Healthcheck"]["Test"]
    assert health[0] == "CMD" and engine.podman("exec", daemon, *health[1:]) == ""
    with pytest.raises(AssertionError, match="refused"):
        engine.run(TAG, *(word.replace("9464", "9") for word in health[1:]))
    assert json.loads(engine.run(TAG, "reaper", "plan", "--json", options=volumes))[0]["table"] == "events"


def test_sigterm_reaches_the_daemon_which_ends_by_itself(engine: Engine, daemon: str) -> None:
    began = time.monotonic()
    while '"start"' not in engine.logs(daemon) and time.monotonic() < began + 30:
        time.sleep(0.2)

    engine.podman("stop", "--time", "20", daemon)

    assert time.monotonic() - began < 50
    assert engine.podman("inspect", "--format", "{{.State.ExitCode}}", daemon).strip() == "0"
    assert '"stop"' in engine.logs(daemon)


@pytest.mark.skipif(not SPARK, reason="another image, with Java and Spark: make image SPARK=1")
def test_a_stream_from_the_image_reads_every_row_on_a_read_only_disk(
    engine: Engine, volumes: tuple[str, ...], tmp_path: Path
) -> None:
    tag = TAG.replace(":", "-spark:")
    engine.build("spark", tag)
    engine.run(TAG, "bookkeeper", "init", options=volumes)
    load = ("--files", "2", "--records", "100", "--value-bytes", "100", "--quiet")
    engine.run(TAG, "writer", "generate", "--folder", "/lake/demo/events/_bookkeeper", *load, options=volumes)
    engine.run(TAG, "bookkeeper", "once", options=volumes)

    job = ("python", "-m", "spark_jobs.read_stream", "--checkpoint", "file:///lake/checkpoint", "--sink", "noop")
    more = ("--trigger", "available-now", "--progress", "/lake/progress.jsonl")
    (tmpfs,) = SERVICES["consumer"]["tmpfs"]
    engine.run(tag, *job, *more, options=volumes, tmpfs=tmpfs, minutes=5)

    lines = (tmp_path / "lake" / "progress.jsonl").read_text("utf-8").splitlines()
    assert sum(json.loads(line)["rows"] for line in lines) == 200
