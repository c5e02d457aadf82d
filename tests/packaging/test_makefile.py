"""
`make` on a newcomer's machine: what it installs when, what it passes on, what it says when it cannot.

The machine is a folder with a Makefile and Pythons that only note how they were called.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, run

INPUTS = ("setup.cfg", "pyproject.toml", "constraints.txt")
NOTING = """\
#!/bin/sh
echo "$* DEMO_SECONDS=$DEMO_SECONDS WRITERS=$WRITERS CHAOS=$CHAOS" >> {log}
"""
# Answers as a Python does that makes virtualenvs (or not) of Pythons that note their calls.
PYTHON = """\
#!/bin/sh
case "$*" in
  *version_info*) exit {old} ;;
  *ensurepip*) exit {bare} ;;
  "-m venv"*) echo "$0 $*" >> {log}; mkdir -p .venv/bin; cp {noting} .venv/bin/python ;;
esac
"""


@dataclass
class Machine:
    """
    A fresh clone, and the Pythons on PATH.
    """

    root: Path

    @property
    def log(self) -> Path:
        return self.root / "log"

    def has_python(self, name: str, old: int = 0, bare: int = 0) -> None:
        """
        Puts a Python on PATH; `old` and `bare` are the exit codes of its checks.
        """
        noting = self._program("noting", NOTING.format(log=self.log))
        self._program(f"bin/{name}", PYTHON.format(old=old, bare=bare, log=self.log, noting=noting))

    def make(self, *words: str) -> tuple[int, str]:
        """
        The exit code, and what was said on stderr.
        """
        path = f"{self.root / 'bin'}:{self.root / 'tools'}"
        done = run(str(self.root / "tools" / "make"), *words, cwd=self.root, environ={"PATH": path})
        return done.returncode, done.stderr

    def calls(self) -> list[str]:
        """
        What was run since the last look, without the look at whether .venv is usable.
        """
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line for line in lines if "version_info" not in line]

    def _program(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("Makefile", *INPUTS):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "tools").mkdir()
    for tool in ("make", "sh", "mkdir", "cp", "touch", "rm", "find"):
        (tmp_path / "tools" / tool).symlink_to(shutil.which(tool) or tool)
    return Machine(tmp_path)


def test_the_first_make_demo_installs_gets_java_and_jars_and_runs_the_demo(machine: Machine):
    machine.has_python("python3.12")

    assert machine.make("demo")[0] == 0

    venv, install, spark, demo = machine.calls()
    assert "-m venv --clear .venv" in venv
    assert "-m pip install" in install and "--constraint constraints.txt --editable .[" in install
    assert spark.startswith("-m spark_jobs.prepare ")
    assert demo.startswith("-m demo ")


def test_make_test_prepares_what_tests_need_before_them(machine: Machine):
    machine.has_python("python3")

    assert machine.make("test", "ARGS=-k race")[0] == 0

    prepared, tests = (call.split(" DEMO")[0] for call in machine.calls()[2:])
    assert prepared == "-m tests.prepare"
    assert tests == "-m pytest -k race"


def test_make_test_goes_on_without_what_cannot_be_prepared_and_says_so(machine: Machine):
    machine.has_python("python3")
    machine.make("prepare")
    failing = machine.root / ".venv" / "bin" / "python"
    failing.write_text(f'{failing.read_text()}case "$*" in *tests.prepare*) exit 1 ;; esac\n')
    machine.calls()

    code, said = machine.make("test")

    assert code == 0 and said == "Some tests cannot run: they are skipped, or fail with CI=true.\n"
    assert [call.split(" DEMO")[0].split(" -n")[0] for call in machine.calls()] == ["-m tests.prepare", "-m pytest"]
    assert machine.make("prepare")[0] != 0


def test_make_prepare_runs_alone_and_takes_the_names_of_steps(machine: Machine):
    machine.has_python("python3")

    assert machine.make("prepare", "ARGS=versitygw azurite")[0] == 0

    assert [call.split(" DEMO")[0] for call in machine.calls()[2:]] == ["-m tests.prepare versitygw azurite"]


@pytest.mark.parametrize(
    ("arguments", "processes"), [("-m slow", 3), ("-m slow -k race", 3), ("-k race", 1), ("tests/tick --pdb", 1)]
)
def test_make_test_has_three_processes_unless_a_few_tests_are_chosen(machine: Machine, arguments: str, processes: int):
    machine.has_python("python3")

    assert machine.make("test", f"ARGS={arguments}")[0] == 0

    call = machine.calls()[-1].split(" DEMO")[0]
    assert call.startswith("-m pytest ") and call.endswith(f" {arguments}")
    assert ("-n 3" in call) == (processes == 3)


def test_make_test_changed_runs_the_folders_that_it_is_told_and_nothing_where_it_is_told_none(machine: Machine):
    machine.has_python("python3")
    machine.make("prepare")
    telling = machine.root / ".venv" / "bin" / "python"
    noting = telling.read_text()
    telling.write_text(
        f'{noting}case "$*" in *tests.changed*base) echo tests/a tests/b ;; *tests.changed*) exit 1 ;; esac\n'
    )
    machine.calls()

    assert machine.make("test-changed", "BASE=base")[0] == 0
    said = [call.split(" DEMO")[0] for call in machine.calls()]
    assert said[:2] == ["-m tests.prepare", "-m tests.changed base"]
    assert said[2].startswith("-m pytest -n 3 ") and said[2].endswith(" tests/a tests/b")

    assert machine.make("test-changed", "BASE=other")[0] != 0
    assert not any("pytest" in call for call in machine.calls())


def test_make_chaos_prepares_its_servers_and_passes_on_its_arguments(machine: Machine):
    machine.has_python("python3")

    assert machine.make("chaos", "ARGS=--short --seed 7")[0] == 0

    calls = [call.split(" DEMO")[0] for call in machine.calls()[2:]]
    assert calls == ["-m tests.prepare", "-m tests.chaos --short --seed 7"]


def test_make_simulate_takes_a_seed_and_steps(machine: Machine):
    machine.has_python("python3")

    assert machine.make("simulate", "SEED=7", "STEPS=100")[0] == 0

    assert machine.calls()[-1].split(" DEMO")[0].split() == ["-m", "tests.simulation", "--seed", "7", "--steps", "100"]


def test_a_second_make_installs_nothing(machine: Machine):
    machine.has_python("python3")
    machine.make("demo")
    machine.calls()

    machine.make("demo")

    assert [call.split(" DEMO")[0] for call in machine.calls()] == ["-m spark_jobs.prepare", "-m demo"]


@pytest.mark.parametrize("changed", INPUTS)
def test_a_changed_requirement_is_installed_into_the_virtualenv_that_is_there(machine: Machine, changed: str):
    machine.has_python("python3")
    machine.make("spark")
    machine.calls()
    stamp = (machine.root / ".venv" / ".installed").stat().st_mtime
    os.utime(machine.root / changed, (stamp + 1, stamp + 1))

    machine.make("spark")

    assert "-m pip install" in machine.calls()[0]


def test_an_install_that_failed_is_done_again(machine: Machine):
    machine.has_python("python3")
    machine.make("spark")
    failing = machine.root / ".venv" / "bin" / "python"
    noting = failing.read_text()
    failing.write_text(f'{noting}case "$*" in *"pip install"*) exit 1 ;; esac\n')
    (machine.root / ".venv" / ".installed").unlink()

    assert machine.make("spark")[0] != 0
    failing.write_text(noting)
    machine.calls()

    assert machine.make("spark")[0] == 0
    assert "-m pip install" in machine.calls()[0]


def test_variables_of_the_command_line_reach_the_demo(machine: Machine):
    machine.has_python("python3")

    machine.make("demo", "DEMO_SECONDS=7", "WRITERS=2", "CHAOS=1")

    assert machine.calls()[-1] == "-m demo DEMO_SECONDS=7 WRITERS=2 CHAOS=1"


def test_a_python_that_is_too_old_or_does_not_start_is_passed_over(machine: Machine):
    machine.has_python("python3.11", old=1)
    machine.has_python("python3.12", bare=1)
    machine.has_python("python3.13")

    assert machine.make("spark")[0] == 0

    assert "bin/python3.13 -m venv" in machine.calls()[0]


def test_a_python_can_be_named(machine: Machine):
    machine.has_python("python3")
    machine.has_python("mine")

    assert machine.make("spark", "PYTHON=mine")[0] == 0

    assert "bin/mine -m venv" in machine.calls()[0]


def test_without_a_python_one_line_says_so(machine: Machine):
    machine.has_python("python3", old=1)

    code, said = machine.make("demo")

    assert code != 0
    assert said.splitlines()[0].startswith("No Python 3.11 or newer found")
    assert len(said.splitlines()) == 2  # the other one is make's own
    assert machine.calls() == []


def test_without_ensurepip_one_line_says_what_to_install(machine: Machine):
    machine.has_python("python3", bare=1)

    code, said = machine.make("demo")

    assert code != 0
    assert said.splitlines()[0].endswith("apt install python3-venv.")
    assert len(said.splitlines()) == 2
    assert machine.calls() == []


def test_clean_keeps_the_virtualenv_and_takes_what_runs_left(machine: Machine):
    machine.has_python("python3")
    machine.make("spark")
    (machine.root / ".demo").mkdir()
    (machine.root / "bookkeeper" / "__pycache__").mkdir(parents=True)

    assert machine.make("clean")[0] == 0

    assert not (machine.root / ".demo").exists()
    assert not (machine.root / "bookkeeper" / "__pycache__").exists()
    assert (machine.root / ".venv" / ".installed").exists()
