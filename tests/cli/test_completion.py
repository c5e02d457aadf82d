"""A real bash completes commands, options and names, at once and without a catalog."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bookkeeper.cli import main
from tests.cli.terminal import terminal
from tests.support.lake import Lake, Writes

ROOT = Path(__file__).parents[2]
MODULES = {"bookkeeper": "bookkeeper", "writer": "writers", "reaper": "reaper"}


@pytest.fixture
def programs(tmp_path: Path, run: object) -> Path:
    """A folder with the programs, for $PATH, and the completion for bash."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in MODULES.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n')
        script.chmod(0o755)
    (folder / "complete.bash").write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    return folder


def completed(programs: Path, line: str) -> list[str]:
    """What bash would offer at the end of the line, as its own completion asks for it."""
    words = line.split(" ")
    script = f"""
        . {programs}/complete.bash
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
        _{words[0]}_completion {words[0]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(programs)}
    environ["BOOKKEEPER_CONFIG"] = str(programs.parent / "bookkeeper.toml")
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True, env=environ, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_names(programs: Path, lake: Lake, writer: Writes) -> None:
    lake.tick()
    pending = str(writer.publish("a"))
    lake.put(f"rejected/{writer.name.at(9)}", b"")
    lake.put("consumers/nightly.json", b"{}")
    assert completed(programs, "bookkeeper sta") == ["status"]
    assert completed(programs, "bookkeeper status --ta") == ["--table"]
    assert completed(programs, "bookkeeper status --table ev") == ["events"]
    assert completed(programs, "bookkeeper tail ") == ["events"]
    assert completed(programs, "bookkeeper show w1") == [pending, str(writer.name.at(9))]
    assert completed(programs, "bookkeeper replay --table events w") == [str(writer.name.at(9))]
    assert completed(programs, "bookkeeper discard w1") == [f"w1.{writer.name.incarnation}"]
    assert completed(programs, "bookkeeper consumers remove ") == ["nightly"]
    assert completed(programs, "bookkeeper completion z") == ["zsh"]
    assert completed(programs, "writer gen") == ["generate"]
    assert completed(programs, "reaper plan --table ") == ["events"]


def test_a_writer_is_completed_from_the_marks(programs: Path, lake: Lake, writer: Writes) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    assert completed(programs, "bookkeeper forget ") == ["w1"]


@pytest.mark.parametrize("text", ["", "[tables", '[tables.far]\nfolder = "s3://no/where"\n', "[nonsense]\n"])
def test_what_cannot_be_told_quickly_is_nothing_to_complete(programs: Path, text: str) -> None:
    (programs.parent / "bookkeeper.toml").write_text(text)
    assert completed(programs, "bookkeeper show ") == []


def test_the_tab_key_completes_in_an_interactive_bash(programs: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    path = f"{programs}:{os.environ['PATH']}"
    config = str(programs.parent / "bookkeeper.toml")
    environ = {"PATH": path, "PS1": "> ", "HOME": str(programs), "BOOKKEEPER_CONFIG": config}
    with terminal(bash, "--norc", "--noprofile", "-i", **environ) as shell:
        shell.press(f". {programs}/complete.bash; clear\n")
        shell.press("bookkeeper ver\t")
        shell.wait_for(r"bookkeeper verify ")
        shell.press("--table e\t")
        shell.wait_for(r"--table events ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_every_program(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).stdout
    assert all(re.search(rf"_{name.upper()}_COMPLETE={shell}_complete", script) for name in MODULES)
