"""`bookkeeper run` that is ended while its process plans a fold: it waits for none, leaves none, and the next folds."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from tests.support.configured import configured, program
from tests.support.crew import Crew, Said
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
    daemon = {"every": "20ms", "stop-patience": "20s"}
    return configured(lake, bookkeeper=daemon, tables__events__fold={"files": 1})


@pytest.fixture
def crew(config: Path, tmp_path: Path) -> Iterator[Crew]:
    with Crew({"daemon": program("bookkeeper", config)}, tmp_path) as made:
        yield made


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


def stopped_planner(daemon: Any) -> int:
    """Its process that plans folds, once it has stopped."""
    while True:
        assert daemon.poll() is None
        for child in children(daemon.pid):
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return child


@pytest.mark.parametrize(("ended_by", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_it_ends_while_a_fold_is_planned(
    lake: Lake, crew: Crew, stops: Path, ended_by: signal.Signals, code: int
) -> None:
    daemon = crew.start("daemon", said=Said())
    planner = stopped_planner(daemon)
    end = os.pidfd_open(planner)
    daemon.send_signal(ended_by)
    assert daemon.wait(60) == code
    assert not live(lake, POSITION_DELETES)
    signal.pidfd_send_signal(end, signal.SIGCONT)
    assert select.select([end], [], [], 120)[0], "the process goes on"
    os.close(end)
    crew.wait("daemon")

    stops.unlink()
    said = Said()
    crew.start("daemon", said=said)
    said.until(message="deletes folded")
    crew.kill("daemon", family=True)
    assert not live(lake, EQUALITY_DELETES)
    assert {row[0]: row[1] for row in state(lake)} == replayed(*STEPS)


def test_rows_come_in_while_the_process_stands_still_and_its_end_is_said(lake: Lake, crew: Crew, stops: Path) -> None:
    said = Said()
    daemon = crew.start("daemon", said=said)
    planner = stopped_planner(daemon)
    more = Step(upserts={4: "e"})
    lake.clock.now = datetime.now(UTC)
    Steps(lake, "more").publish_steps(more)
    while len(state(lake)) < 4:
        assert daemon.poll() is None
    os.kill(planner, signal.SIGKILL)
    assert "exit code -9" in said.until(message="fold postponed")["cause"]
    crew.kill("daemon", family=True)
    assert {row[0]: row[1] for row in state(lake)} == replayed(*STEPS, more)
