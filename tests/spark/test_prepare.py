"""
Making a machine ready is safe to repeat, quick when nothing is to be done, and clear when it cannot be done.
"""

import fcntl
import os
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper.errors import NotPossible
from spark_jobs import prepare
from spark_jobs.versions import EMBEDDED, Package
from tests.servers import spark as prepared


def ivy_with(folder, *packages):
    """
    A HOME in which Spark has resolved these packages.
    """
    for package in packages:
        jar = package.jar(folder / ".ivy2.5.2")
        jar.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr("META-INF/MANIFEST.MF", "")
    return {**os.environ, "HOME": str(folder)}


def test_a_machine_that_is_ready_is_left_alone_and_no_process_is_started(tmp_path, monkeypatch):
    environ, said = ivy_with(tmp_path, *EMBEDDED), []
    environ["JAVA_HOME"] = prepared.wanted().java_home
    for name in ("Popen", "run", "check_output", "check_call", "call"):
        monkeypatch.delattr(subprocess, name)

    ready = prepare.prepare(environ, say=said.append)

    assert (ready.did, said) == ((), [])
    assert [jar.name for jar in ready.jars] == [package.jar(tmp_path).name for package in EMBEDDED]


def test_java_home_is_set_for_the_next_start_of_spark(tmp_path):
    home = prepared.wanted().java_home
    environ = {**ivy_with(tmp_path, *EMBEDDED), "JAVA_HOME": "/nowhere", "PATH": f"{home}/bin"}

    prepare.prepare(environ)

    assert environ["JAVA_HOME"] == home


def test_a_jar_that_a_crash_cut_off_counts_as_missing(tmp_path):
    ivy_with(tmp_path, *EMBEDDED)
    ivy = tmp_path / ".ivy2.5.2"
    cut = EMBEDDED[0].jar(ivy)
    cut.write_bytes(cut.read_bytes()[:-10])

    assert prepare.missing(EMBEDDED, ivy) == [EMBEDDED[0]]


def test_what_another_one_is_fetching_is_waited_for(tmp_path):
    package, said, ivy = Package("org.example.nowhere", "nothing", "1.0"), [], tmp_path / ".ivy2.5.2"
    ivy.mkdir()
    environ = {**os.environ, "HOME": str(tmp_path)}
    with (ivy / ".lock").open("w") as other, ThreadPoolExecutor(1) as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = pool.submit(prepare.prepare, environ, [package], said.append)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        ivy_with(tmp_path, package)
        fcntl.flock(other, fcntl.LOCK_UN)
        ready = waiting.result(60)

    assert (ready.did, said) == ((), [])


def test_a_home_that_is_not_writable_is_named(tmp_path):
    (tmp_path / "home").write_text("no directory")
    unknown = Package("org.example.nowhere", "nothing", "1.0")

    with pytest.raises(NotPossible, match=f"{tmp_path}/home/.ivy2.5.2: Not a directory") as failed:
        prepare.prepare({**os.environ, "HOME": f"{tmp_path}/home"}, [unknown])

    assert "HOME" in failed.value.hint


@pytest.mark.spark
def test_a_package_that_cannot_be_had_is_named(tmp_path):
    unknown = Package("org.example.nowhere", "nothing", "1.0")

    with pytest.raises(NotPossible, match=unknown.coordinate) as failed:
        prepare.prepare({**os.environ, "HOME": str(tmp_path)}, [unknown], say=lambda line: None)

    assert "spark-submit" in failed.value.hint
