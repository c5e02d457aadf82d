"""
What tests need is brought before them, by one step that says what it does; a test only looks.
"""

import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.packaging.project import ROOT
from tests.prepare.__main__ import chosen
from tests.prepare.fetch import once
from tests.prepare.steps import ASKED, STEPS, Step, prepare
from tests.servers import spark
from tests.servers.objects import s3
from tests.servers.process import Unavailable

#: those that need no more than an empty HOME and an empty PATH to be missing; Postgres is a wheel
FETCHED = [step for step in (*STEPS, *ASKED) if step.name != "postgres"]


def step(name: str, find=lambda environ: None, bring=lambda environ, say: None) -> Step:
    return Step(name, f"fetching {name}", f"those of {name}", find, bring)


def absent(environ: object) -> None:
    raise Unavailable("it is not here")


class Shelf:
    """Something that is not there until it was brought."""

    def __init__(self) -> None:
        self.brought = 0

    def find(self, environ: object) -> None:
        if not self.brought:
            raise Unavailable("not yet")

    def bring(self, environ: object, say: object) -> None:
        self.brought += 1


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """
    The environment of a fresh machine; starting a program fails the test.
    """

    def started(*command: object, **options: object) -> None:
        raise AssertionError(f"{command} was started")

    for name in ("run", "Popen"):
        monkeypatch.setattr(subprocess, name, started)
    return {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}


@pytest.mark.parametrize("wanted", FETCHED, ids=lambda step: step.name)
def test_a_test_whose_server_is_not_prepared_fetches_nothing_and_names_the_step(
    wanted: Step, empty: dict[str, str]
) -> None:
    with pytest.raises(Unavailable, match=rf"run `make prepare` \(or only this: `make prepare ARGS={wanted.name}`\)"):
        wanted.find(empty)


def test_no_package_of_spark_is_resolved_inside_a_test(empty: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="make prepare ARGS=spark"):
        spark.ready(empty)


def test_an_s3_server_that_go_could_build_is_not_replaced_by_moto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    with pytest.raises(Unavailable, match="make prepare ARGS=versitygw"), s3():
        pass


def test_no_test_imports_what_fetches() -> None:
    importing = [path for path in (ROOT / "tests").rglob("*.py") if "tests.prepare.fetch" in path.read_text("utf-8")]

    assert {path.parent.name for path in importing if path != Path(__file__)} <= {"prepare"}


def test_with_everything_there_one_line_says_so_and_nothing_is_brought() -> None:
    said: list[str] = []

    def bring(environ: object, say: object) -> None:
        raise AssertionError("brought")

    assert prepare([step("a", bring=bring), step("b", bring=bring)], {}, said.append)

    assert said == ["prepare: all is there (a, b)"]


def test_only_what_is_missing_is_brought_and_it_says_what_and_how_long() -> None:
    shelf, said = Shelf(), list[str]()

    assert prepare([step("there"), step("go-server", shelf.find, shelf.bring)], {}, said.append, lambda: 7.0)

    assert shelf.brought == 1
    assert said == ["prepare: go-server: fetching go-server", "prepare: go-server: ready after 0 s"]


@pytest.mark.parametrize("error", [Unavailable("no Go on the PATH"), OSError(28, "No space left on device")])
def test_one_thing_that_cannot_be_had_names_its_tests_and_does_not_stop_the_others(error: Exception) -> None:
    shelf, said = Shelf(), list[str]()

    def bring(environ: object, say: object) -> None:
        raise error

    good = prepare([step("bad", absent, bring), step("good", shelf.find, shelf.bring)], {}, said.append)

    assert (good, shelf.brought) == (False, 1)
    (failed,) = (text for text in said if "FAILED" in text)
    assert str(error) in failed
    assert "without it these tests cannot run: those of bad." in failed and "`make prepare ARGS=bad`" in failed


def test_a_step_that_brings_the_wrong_thing_has_failed() -> None:
    said: list[str] = []

    assert not prepare([step("odd", absent)], {}, said.append)

    assert "odd: FAILED" in said[-1] and "it is not here" in said[-1]


def test_steps_can_be_chosen_and_a_wrong_name_lists_them() -> None:
    assert [one.name for one in chosen(["azurite", "versitygw"], {})] == ["azurite", "versitygw"]
    assert not {*ASKED} & {*chosen([], {})}
    assert [one.name for one in chosen([], {"GCS_TEST": "1"}) if one in ASKED] == ["fake-gcs-server"]
    with pytest.raises(ValueError, match="no step azure: there is versitygw, spark, model, azurite"):
        chosen(["azure"], {})


def test_of_two_that_want_the_same_thing_one_brings_it_and_the_other_waits(tmp_path: Path) -> None:
    """Two clones share the cache; each opens the lock for itself, as threads do here."""
    began, go_on, fetched = Event(), Event(), list[Path]()

    def fetch(folder: Path) -> None:
        began.set()
        assert go_on.wait(60)
        (folder / "program").touch()
        fetched.append(folder)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once, tmp_path / "server", "program", fetch)
        assert began.wait(60)
        second = pool.submit(once, tmp_path / "server", "program", fetch)
        assert not (tmp_path / "server").exists()
        go_on.set()
        first.result(60), second.result(60)

    assert len(fetched) == 1 and (tmp_path / "server" / "program").exists()


def test_what_a_crash_left_half_done_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "server.unfinished").mkdir()
    (tmp_path / "server.unfinished" / "half").touch()
    (tmp_path / "server").mkdir()

    once(tmp_path / "server", "program", lambda folder: (folder / "program").touch())

    assert [path.name for path in (tmp_path / "server").iterdir()] == ["program"]
    assert not (tmp_path / "server.unfinished").exists()


def test_a_lock_that_a_killed_process_held_stops_nothing(tmp_path: Path) -> None:
    code = "import fcntl, os, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX); os.kill(os.getpid(), 9)"
    lock = tmp_path / "server.lock"
    assert subprocess.run([sys.executable, "-c", code, str(lock)]).returncode == -9

    once(tmp_path / "server", "program", lambda folder: (folder / "program").touch())

    with lock.open("w") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
