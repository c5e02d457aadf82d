"""Real processes, shortly; `make chaos` goes on for hundreds of rounds."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.processes.in_fork import in_fork
from tests.support.crew import Crew


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["reaper (sqlite)", "lease's holder", "a bookkeeper (sqlite)", "woken: writers", "slots"]
)
def test_killed_and_stopped_processes_lose_and_double_nothing(name: str) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seed", "1", "--minutes", "0.01", "--cores", "1", "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exactly once" in done.stdout


def test_a_killed_process_is_gone_and_a_stopped_one_goes_on(tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"

    def ticking() -> None:
        while True:
            with ticks.open("ab") as file:
                file.write(b".")
            time.sleep(0.001)

    with Crew({"clock": ticking}, tmp_path) as crew:
        pid = crew.start("clock").pid
        _until_it_grows(ticks)
        crew.signal("clock", signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        crew.signal("clock", signal.SIGCONT)
        _until_it_grows(ticks)
        crew.kill("clock")
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        crew.start("clock")
    assert not crew.log("clock").exists()
    assert crew.running == {}


def _until_it_grows(path: Path) -> None:
    before, deadline = path.stat().st_size if path.exists() else 0, time.monotonic() + 30
    while not (path.exists() and path.stat().st_size > before):
        assert time.monotonic() < deadline
        os.sched_yield()


def test_what_a_process_dies_of_by_itself_is_kept(tmp_path: Path) -> None:
    def broken() -> None:
        raise KeyError("mine")

    with Crew({"broken": broken}, tmp_path) as crew:
        os.waitid(os.P_PID, crew.start("broken").pid, os.WEXITED | os.WNOWAIT)
    assert "KeyError: 'mine'" in crew.log("broken").read_text()


def test_a_fork_gives_its_answer_or_its_error() -> None:
    assert in_fork(os.getppid) == os.getpid()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_fork(lambda: 1 / 0)
