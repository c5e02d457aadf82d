"""`bookkeeper run` that is ended while its process plans a fold: it waits for none, leaves none, and the next folds."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from tests.serve.daemons import Daemon, Said
from tests.support.folds import live, state
from tests.support.keyed import Step, Steps, keyed_lake, replayed
from tests.support.lake import Lake

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the daemon's processes in /proc")
STEPS = [Step(upserts={1: "a", 2: "b"}), Step(upserts={2: "c", 3: "d"})]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = keyed_lake(tmp_path, check_files=False)
    lake.clock.now = datetime.now(UTC)
    for number, step in enumerate(STEPS):
        Steps(lake, f"k{number}").publish_steps(step)
    return lake


@pytest.fixture
def config(lake: Lake) -> Path:
    path = Path(lake.root) / "bookkeeper.toml"
    properties = "".join(f'{key} = "{value}"\n' for key, value in lake.catalog_settings.properties.items())
    path.write_text(
        f'[catalog]\nname = "lake"\n{properties}[bookkeeper]\nevery = "20ms"\nstop-patience = "20s"\nlisten = ""\n'
        f'[tables.events]\nidentifier = "{lake.settings.identifier}"\n[tables.events.fold]\nfiles = 1\n'
    )
    return path


@pytest.fixture
def stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, each process that plans folds stops itself as it begins."""
    path = tmp_path / "first" / "sitecustomize.py"
    path.parent.mkdir()
    path.write_text(
        "import os, signal, sys\nif 'bookkeeper.folds' in sys.orig_argv:\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(path.parent), os.pathsep)
    return path


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def stopped_planner(daemon: Daemon) -> int:
    """Its process that plans folds, once it has stopped."""
    while True:
        assert daemon.process.poll() is None
        for child in children(daemon.process.pid):
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return child


@pytest.mark.parametrize(("ended_by", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_it_ends_while_a_fold_is_planned(
    lake: Lake, config: Path, stops: Path, ended_by: signal.Signals, code: int
) -> None:
    daemon = Daemon(config, Said())
    planner = stopped_planner(daemon)
    end = os.pidfd_open(planner)
    daemon.signal(ended_by)
    assert daemon.process.wait(60) == code
    assert not live(lake, POSITION_DELETES)
    signal.pidfd_send_signal(end, signal.SIGCONT)
    assert select.select([end], [], [], 120)[0], "the process goes on"
    os.close(end)
    daemon.end()

    stops.unlink()
    said = Said()
    daemon = Daemon(config, said)
    said.until(message="deletes folded")
    daemon.end()
    assert not live(lake, EQUALITY_DELETES)
    assert {row[0]: row[1] for row in state(lake)} == replayed(*STEPS)


def test_rows_come_in_while_the_process_stands_still_and_its_end_is_said(lake: Lake, config: Path, stops: Path) -> None:
    said = Said()
    daemon = Daemon(config, said)
    planner = stopped_planner(daemon)
    more = Step(upserts={4: "e"})
    lake.clock.now = datetime.now(UTC)
    Steps(lake, "more").publish_steps(more)
    while len(state(lake)) < 4:
        assert daemon.process.poll() is None
    os.kill(planner, signal.SIGKILL)
    assert "exit code -9" in said.until(message="fold postponed")["cause"]
    daemon.end()
    assert {row[0]: row[1] for row in state(lake)} == replayed(*STEPS, more)
