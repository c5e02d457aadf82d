"""
The demo itself, short: real processes, a real Spark stream, and every row accounted for.
"""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from demo import closing
from demo.evidence import consumed_folder

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "demo"]
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def environ(folder: Path, **options: str) -> dict[str, str]:
    """The environment of a demo with these options and no others."""
    ours = ("DEMO_SECONDS", "WRITERS", "CHAOS", "SEED")
    return {
        **{key: value for key, value in os.environ.items() if key not in ours},
        "DEMO_FOLDER": str(folder),
        **options,
    }


def demo(folder: Path, **options: str) -> subprocess.CompletedProcess[str]:
    """A demo in `folder`, from begin to end."""
    return subprocess.run(DEMO, cwd=ROOT, env=environ(folder, **options), capture_output=True, text=True, timeout=420)


def left_over(folder: Path) -> list[str]:
    """Processes that still work for the demo in `folder`."""
    listed = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


def test_a_short_demo_accounts_for_every_row_and_goes_red_when_one_is_taken_away(tmp_path: Path) -> None:
    done = demo(tmp_path / "demo", DEMO_SECONDS="8", WRITERS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "published rows arrived exactly once" in done.stdout
    assert left_over(tmp_path) == []
    batch = max(consumed_folder(tmp_path / "demo" / "evidence").iterdir(), key=lambda path: path.stat().st_size)
    seen = json.loads(batch.read_text())
    batch.write_text(json.dumps({**seen, "keys": seen["keys"][1:]}))
    assert closing.main(str(tmp_path / "demo")) == closing.MISSED


def test_a_demo_in_which_processes_are_killed_accounts_for_every_row(tmp_path: Path) -> None:
    done = demo(tmp_path / "demo", DEMO_SECONDS="8", WRITERS="2", CHAOS="1", SEED="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "published rows arrived exactly once" in done.stdout
    assert "kill -9 " in done.stdout
    assert left_over(tmp_path) == []


def test_ctrl_c_ends_the_demo_and_every_process_of_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=environ(tmp_path / "demo"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - a shell's background job ignores it
    ) as running:
        assert running.stdout is not None
        while "Spark is starting" not in running.stdout.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 130
    assert left_over(tmp_path) == []
