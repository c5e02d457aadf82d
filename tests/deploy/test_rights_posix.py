"""The users and modes of docs/stores.md#least-privilege, in force on a local disk: enough for each, and no more."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.support.lake import written
from bookkeeper.cli import main as bookkeeper
from tests.deploy.rights import modes
from tests.packaging.project import ROOT

GROUP = 61_000
USERS = {"bookkeeper": 61_001, "writer": 61_002, "other-writer": 61_003, "stranger": 61_004}
UMASKS = {"bookkeeper": 0o027, "writer": 0o007, "other-writer": 0o007, "stranger": 0o022}
#: The virtualenv may lie where other users cannot go: whatever is imported late is imported by a rehearsal in a lake
#: that no user needs; then the process becomes another user. Lines of stdin are commands.
AS = """
import importlib, os, shlex, sys, tempfile

def run(line):
    program, *words = shlex.split(line)
    importlib.import_module(f"{program.replace('writer', 'writers')}.cli").main(words, standalone_mode=False)

rehearsed, lines = sys.stdin.read().split("----")
for line in rehearsed.split("\\n"):
    if line:
        run(line)
uid, gid, umask = map(int, sys.argv[1:])
os.setgroups([]); os.setgid(gid); os.setuid(uid); os.umask(umask); os.chdir("/")
sys.stdout.flush(); print("----")
for line in lines.split("\\n"):
    if line:
        run(line)
"""


def configured(place: Path) -> None:
    """The configuration file of a lake in `place`."""
    root = place / "lake"
    catalog = {"type": "sql", "uri": f"sqlite:///{root}/catalog/catalog.db", "warehouse": f"file://{root}"}
    sections: dict[str, dict[str, object]] = {
        "catalog": {"name": "lake", **catalog},
        "bookkeeper": {"listen": ""},
        "reaper": {"older-than": "1s", "retain-last": 1},
        "tables.events": {"identifier": "demo.events"},
    }
    written(place / "bookkeeper.toml", sections)


@dataclass
class Machine:
    """A lake on a local disk, and the users of the page."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "demo" / "events" / "_bookkeeper"

    def run(self, user: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command as this user, with the umask that the page says."""
        return subprocess.run(
            command, user=USERS[user], group=GROUP if user != "stranger" else USERS[user], extra_groups=[],
            umask=UMASKS[user], cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def ours(self, user: str, *lines: str) -> str:
        """What commands of ours printed, run by this user one after the other; they must succeed."""
        with tempfile.TemporaryDirectory(prefix="bookkeeper-rehearsal-") as place:
            configured(Path(place))
            made = f"bookkeeper init --config {place}/bookkeeper.toml"
            rehearsal = "\n".join([made, *lines]).replace(str(self.root.parent), place)
            identity = map(str, (USERS[user], GROUP, UMASKS[user]))
            done = subprocess.run(
                [sys.executable, "-c", AS, *identity], input=f"{rehearsal}\n----\n" + "\n".join(lines),
                capture_output=True, text=True, timeout=120, cwd=ROOT,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split("----")[1]

    def refused(self, user: str, *command: str) -> bool:
        """Whether the machine says that this is not permitted."""
        said = self.run(user, *command)
        return said.returncode != 0 and bool(re.search("Permission denied|not permitted", said.stderr))


@pytest.fixture
def machine() -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip("other users are needed, and only root may be them")
    # Not pytest's tmp_path: only its owner may enter that.
    with tempfile.TemporaryDirectory(prefix="bookkeeper-rights-") as place:
        os.chmod(place, 0o755)
        root = Path(place) / "lake"
        root.mkdir()
        os.chown(root, USERS["bookkeeper"], GROUP)
        made = Machine(root)
        configured(Path(place))
        yield made


def set_up(machine: Machine) -> None:
    """
    The commands of the page, but for those that make users.
    """
    text = "\n".join(line for line in modes().splitlines() if not re.match("groupadd|useradd", line))
    text = text.replace("/srv/lake", str(machine.root)).replace("bookkeeper:lake", f"{USERS['bookkeeper']}:{GROUP}")
    done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_user_does_its_work_and_nothing_else(machine: Machine) -> None:
    config = f"--config {machine.root.parent}/bookkeeper.toml"
    load = f"--folder {machine.folder} --records 10 --value-bytes 10 --files 2 --quiet"
    assert CliRunner().invoke(bookkeeper, f"init {config}").exit_code == 0
    set_up(machine)
    machine.ours("writer", f"writer generate {load} --name w1", f"writer generate {load} --name w2")

    card, table = machine.folder / "card.json", machine.root / "demo" / "events"
    txlog, data = (sorted(folder.rglob("*.*"))[0] for folder in (machine.folder / "pending", table / "data"))
    assert machine.refused("other-writer", "rm", "-f", str(txlog))
    assert machine.refused("other-writer", "mv", "-f", str(txlog), f"{txlog}.gone")
    assert machine.refused("writer", "sh", "-c", f"echo > {card}")
    assert machine.refused("writer", "rm", "-f", str(card))
    assert machine.refused("writer", "ls", str(machine.root / "catalog"))
    assert machine.refused("writer", "ls", str(table / "metadata"))
    rewrites = machine.folder / "rewrites"
    assert machine.refused("writer", "mkdir", str(rewrites))
    machine.run("bookkeeper", "mkdir", str(rewrites)).check_returncode()  # as its compactor, or the reaper's, does
    machine.run("bookkeeper", "sh", "-c", f"echo > {rewrites}/of-a-compactor").check_returncode()
    for wrong in (f"echo > {rewrites}/of-a-writer", f"echo >> {rewrites}/of-a-compactor", f"rm {rewrites}/*"):
        assert machine.refused("writer", "sh", "-c", wrong), wrong
    machine.run("bookkeeper", "rm", f"{rewrites}/of-a-compactor").check_returncode()
    assert machine.refused("stranger", "cat", str(card))
    assert machine.refused("stranger", "cat", str(data))

    reaping = f"reaper once --release-brake {config}"
    said = machine.ours("bookkeeper", f"bookkeeper once {config}", reaping, f"bookkeeper status --json {config}")
    assert '"rows": 40' in said
    machine.run("bookkeeper", "rm", str(data)).check_returncode()
