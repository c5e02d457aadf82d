"""
Processes are killed, ended and started by their pids; what a killed one leaves behind is seen.
"""

import subprocess
import sys

import pytest

from tests.support.crew import Crew, descendants, identity

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
STOPS = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print('ready', flush=True)\n"
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {!r}]).wait()"


@pytest.fixture(params=[False, True], ids=["processes", "forks"])
def crew(request, tmp_path):
    sleeper = PARENT.format(SLEEPS[2])
    made = Crew(
        {
            "sleeps": SLEEPS,
            "stops": [sys.executable, "-c", STOPS + "time.sleep(600)"],
            "ends": [sys.executable, "-c", "raise SystemExit(7)"],
            "parent": [sys.executable, "-c", sleeper],
        },
        tmp_path,
        grace=180,
        forked=request.param,
    )
    yield made
    made.close()


def test_a_killed_process_is_gone_and_another_one_starts(crew):
    process = crew.start("sleeps")
    first = process.pid
    crew.kill("sleeps")
    second = crew.start("sleeps").pid

    assert identity(first) is None and identity(second) and crew.ended() == {}
    assert getattr(process, "forked", False) == crew.forked


def test_a_process_that_ended_by_itself_is_told_with_its_exit_code(crew):
    crew.start("ends").wait(60)

    assert crew.ended() == {"ends": 7} and crew.ended() == {}


def test_a_stop_has_the_processs_exit_code_and_none_when_it_had_just_started(crew, tmp_path):
    crew.start("stops")
    crew.until(lambda: b"ready" in (tmp_path / "stops.log").read_bytes())
    crew.start("sleeps")

    assert crew.stop("stops") == 3
    assert crew.stop("sleeps") == 0
    crew.start("sleeps")
    crew.since["sleeps"] -= 1000
    assert crew.stop("sleeps") == -15


def test_a_child_that_outlives_its_killed_parent_is_told_and_ended(crew):
    parent = crew.start("parent").pid
    crew.until(lambda: descendants(parent))
    (child,) = descendants(parent)
    crew.kill("parent")

    assert crew.left_behind(seconds=600) == [] and identity(child[0]) == child
    assert crew.left_behind(seconds=0) == [f"parent left process {child[0]} behind"]
    crew.until(lambda: not crew.left_behind(seconds=600) and not crew.helpers)


def test_a_family_is_killed_as_a_whole(crew):
    parent = crew.start("parent").pid
    crew.until(lambda: descendants(parent))
    (child,) = descendants(parent)
    crew.kill("parent", family=True)

    crew.until(lambda: identity(child[0]) is None)


def test_a_process_of_the_same_pid_that_is_not_the_one_is_left_alone(crew):
    process = subprocess.Popen(SLEEPS)
    crew.helpers[(process.pid, "0")] = ("sleeps", 0.0)

    assert crew.left_behind(seconds=0) == [] and not crew.helpers and process.poll() is None
    process.kill()
    process.wait()


def test_a_block_fails_when_a_child_of_a_killed_process_lives_on_and_ends_it(tmp_path):
    with (
        pytest.raises(AssertionError, match="parent left process"),
        Crew({"parent": [sys.executable, "-c", PARENT.format(SLEEPS[2])]}, tmp_path, patience=0.1) as crew,
    ):
        parent = crew.start("parent").pid
        crew.until(lambda: descendants(parent))
        (child,) = descendants(parent)
        crew.kill("parent")
    crew.until(lambda: identity(child[0]) is None)


def test_waiting_ends_with_a_process_that_ends_early_and_says_why(tmp_path):
    with Crew({}, tmp_path) as crew, pytest.raises(AssertionError, match=r"(?s)exit code 1: .*no disk"):
        crew.start("ends", [sys.executable, "-c", "raise SystemExit('no disk')"])
        crew.until(lambda: False)
