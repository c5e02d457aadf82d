"""The configuration of compose.yaml with real servers in place of its containers: what its services do, they can do."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.deploy.test_compose import OURS
from tests.packaging.project import ROOT
from tests.servers import Unavailable, postgres
from tests.servers.objects import KEY, azurite
from tests.support.configured import PROGRAMS, Queue

pytestmark = pytest.mark.skipif("IMAGE_TEST" not in os.environ, reason="starts servers of its own: make image")
FOLDER = ROOT / "config" / "compose"


class Composed(Queue):
    def service(self, name: str) -> str:
        """Does once what the service does: `run` as `once`, without the options that only `run` has."""
        program, command, *words = OURS[name].get("command", ["bookkeeper", "run"])
        if command == "run":
            return self.run(program, "once", *_for_once(program, words))
        return self.run(program, command, *words, "--listen", "127.0.0.1:0", "--files", "2", "--records", "10")


def _for_once(program: str, words: list[str]) -> list[str]:
    group = PROGRAMS[program]
    assert isinstance(group, click.Group)
    run, once = group.commands["run"], group.commands["once"]
    given = run.make_context("run", words[:])
    texts = {option.name: option.opts[0] for option in once.params}
    said = {option.name for option in run.params if set(option.opts) & {*words}}
    return [text for name in said & {*texts} for text in (texts[name], str(given.params[name]))]


def test_its_services_do_what_they_are_there_for(tmp_path: Path) -> None:
    try:
        with azurite() as storage, postgres() as catalog:
            addresses = {
                "lake:${POSTGRES_PASSWORD}@catalog:5432/lake": f"postgres@127.0.0.1:{catalog.port}/postgres",
                "storage:10000": f"127.0.0.1:{storage.port}",
                "${AZURITE_KEY}": KEY,
            }
            for name in ("bookkeeper.toml", "container.py"):
                text = (FOLDER / name).read_text("utf-8")
                for before, after in addresses.items():
                    text = text.replace(before, after)
                (tmp_path / name).write_text(text)
            environ = {**os.environ, "AZURITE_KEY": KEY}
            for _ in range(2):  # a compose that is started again finds the container
                subprocess.run([sys.executable, str(tmp_path / "container.py")], env=environ, check=True)
            queue = Composed(tmp_path / "bookkeeper.toml", "")
            queue.run("bookkeeper", "init")
            for number in (1, 2):
                queue.service(f"writer-{number}")
            queue.service("bookkeeper")
            queue.service("reaper")

            assert queue.asked("status")["rows"] == 40
            assert len(queue.keys()) == 40
    except Unavailable as exc:
        pytest.skip(str(exc))
