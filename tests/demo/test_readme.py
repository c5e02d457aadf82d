"""
What the README tells a user to do works as it stands, from top to bottom.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
# What a user does in the end: look once more, stop what was started.
_END = "sleep 2\nbookkeeper status --json > status.json\nkill %1 %2\nwait\n"


def commands() -> str:
    """The commands from the configuration on, as one script."""
    blocks = re.findall(r"```(sh|python)\n(.*?)```", README[README.index("### Configure") :], re.DOTALL)
    texts = [body if kind == "sh" else f"python - <<'PYTHON'\n{body}PYTHON\n" for kind, body in blocks]
    return "\n".join(["set -eu", *texts, _END])


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_of_the_readme_work_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "config").symlink_to(ROOT / "config")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environ.pop("BOOKKEEPER_CONFIG", None)
    environ["BOOKKEEPER_LISTEN"] = "127.0.0.1:0"  # another one may run on this machine
    with (tmp_path / "said").open("w") as said:
        script = subprocess.Popen(
            ["bash", "-c", commands()], cwd=tmp_path, env=environ, stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = script.wait(300)
        finally:
            # What the script started in the background, if it went wrong.
            kill_group(script.pid)
            script.wait()
    text = (tmp_path / "said").read_text()
    assert code == 0, text
    assert '"rows": 100003' in (tmp_path / "status.json").read_text(), text
    assert "-- first a batch: 100,003 rows" in text, text


def kill_group(number: int) -> None:
    """End every process of the group, if there is one left."""
    try:
        os.killpg(number, signal.SIGKILL)
    except ProcessLookupError:
        return
