"""
The scenario goes on where another program is in its way, and ends where a process fails.
"""

import io
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from demo import commands
from demo.children import ChildFailed, Children
from demo.folder import DemoPaths, fresh
from demo.options import DemoOptions
from demo.scenario import Scenario
from demo.view import View

WAITS = ["sleep", "60"]


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoPaths]:
    monkeypatch.setattr(commands, "consumer", lambda paths: WAITS)
    monkeypatch.setattr(commands, "reaper", lambda paths: WAITS)
    with fresh(tmp_path / "demo") as paths:
        yield paths


def begun(paths: DemoPaths, said: io.StringIO) -> list[str]:
    """Addresses of the page, each where the scenario had the bookkeeper listen, until that runs."""
    found = list[str]()
    with Children(paths.logs) as children, View(said, time.monotonic) as view:

        def turn(seconds: float) -> None:
            Event().wait(seconds)
            found.extend([scenario.address] if scenario.address not in found else [])
            if len(found) > 1:
                commands.ready(paths).touch()

        scenario = Scenario(DemoOptions(), paths, children, view, time.monotonic, turn)
        scenario.begin()
        scenario.await_consumer()
    return found


def test_a_port_that_another_program_took_after_the_look_is_changed(
    paths: DemoPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        look, looks = commands.free_address, list[str]()

        def late(wanted: str) -> str:
            looks.append(wanted)
            return taken if len(looks) == 1 else look(wanted)

        monkeypatch.setattr(commands, "free_address", late)
        first, second = begun(paths, said := io.StringIO())
    assert (first, looks) == (taken, [commands.LISTEN, taken]) and second != taken
    assert said.getvalue().count("in a browser") == 2 and second in said.getvalue()


def test_another_failure_of_the_bookkeeper_ends_the_demo(paths: DemoPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "bookkeeper", lambda *_: ["sh", "-c", "echo cannot listen on 1.2.3.4:5:; exit 1"])
    with pytest.raises(ChildFailed, match="exit code 1"):
        begun(paths, io.StringIO())
