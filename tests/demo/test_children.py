"""
Processes are ended, with all that they started, however the demo ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.children import ChildFailed, Children
from demo.process_guard import running_groups

WAITS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
# Starts a process of its own, tells its number, and waits.
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True)\n"
    "time.sleep(60)",
]
DEMO = """
import sys, time
from pathlib import Path
from demo.children import Children
with Children(Path(sys.argv[1])) as children:
    print(children.add("a", lambda: ["sleep", "60"]).process.pid, flush=True)
    time.sleep(60)
"""


def is_gone(number: int) -> bool:
    """Whether the process has ended; a zombie that is not waited for has."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, 0)
            return False
        return True


def first_line(log: Path) -> str:
    """What a process says first; waits for it."""
    with subprocess.Popen(["tail", "-n", "+1", "-F", str(log)], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        line = tail.stdout.readline()
        tail.terminate()
    return line.strip()


def until_gone(number: int) -> bool:
    """Whether it ends within seconds."""
    with subprocess.Popen(["sleep", "10"]) as patience:
        while patience.poll() is None and not is_gone(number):
            with contextlib.suppress(subprocess.TimeoutExpired):
                patience.wait(0.05)
        patience.kill()
    return is_gone(number)


def test_leaving_the_block_ends_every_process(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        numbers = [children.add(name, lambda: WAITS).process.pid for name in ("a", "b")]  # type: ignore[union-attr]
        assert not any(map(is_gone, numbers))
    assert all(map(is_gone, numbers))


def test_an_error_in_the_block_ends_every_process(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Children(tmp_path) as children:
        number = children.add("a", lambda: WAITS).process.pid  # type: ignore[union-attr]
        raise KeyError
    assert is_gone(number)


def test_a_kill_ends_what_the_process_started_too(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.add("a", lambda: PARENT)
        grandchild = int(first_line(child.log))
        assert children.kill("a")
        assert until_gone(grandchild) and not child.running and child.kills == 1
        assert not children.kill("a") and child.kills == 1


def test_a_killed_process_can_be_started_again(tmp_path: Path) -> None:
    starts: list[str] = []
    with Children(tmp_path) as children:
        children.add("a", lambda: starts.append("start") or WAITS)  # type: ignore[func-returns-value]
        children.kill("a")
        assert children.start("a").running
    assert len(starts) == 2


def test_when_the_demo_itself_is_killed_its_processes_end(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", DEMO, str(tmp_path)], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        number = int(demo.stdout.readline())
        demo.send_signal(signal.SIGKILL)
    assert until_gone(number)


def test_a_command_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit('no disk')"]
    with Children(tmp_path) as children, pytest.raises(ChildFailed, match=r"(?s)init ended with exit code 1.*no disk"):
        children.run("init", words, 30)


def test_the_warden_ends_only_what_was_not_ended() -> None:
    assert running_groups(["+10\n", "+11\n", "-10\n", "+12\n", "-11\n", "+10\n"]) == {10, 12}
