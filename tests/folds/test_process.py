"""Folds that are planned in a process of their own: the same plan, and an end of it that costs no tick."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Catalog
from bookkeeper.errors import Retry
from bookkeeper.folds import process as processes
from bookkeeper.folds.budget import Budget
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.process import FoldDefect, PlanProcess
from bookkeeper.folds.wire import Job
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.ledger.fold_commit import commit_fold
from tests.support.folds import data, keys, lake_of, live, put, state
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": "x"} for number in ids]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2, 3)), data(lake, rows(4)))
    put(lake, keys(lake, rows(2, 4)))
    return lake


@pytest.fixture(scope="module")
def planning() -> Iterator[PlanProcess]:
    made = PlanProcess()
    yield made
    made.close()


def planned(
    planning: PlanProcess,
    lake: Lake,
    catalog: Catalog | None = None,
    budget: Budget | None = None,
    random: bytes = bytes(range(10)),
) -> Any:
    view, ledger = lake.view(), lake.book().ledger
    now, given = lake.clock.now, budget or Budget()
    return planning.plan(catalog or lake.catalog_settings, ledger, view, now, random, given)


def test_it_plans_what_the_thread_would_and_the_plan_can_be_committed(lake: Lake, planning: PlanProcess) -> None:
    before, found = state(lake), planned(planning, lake)
    assert found == plan_fold(lake.book().ledger, lake.view(), lake.clock.now, bytes(range(10)), Budget())
    commit_fold(lake.book().ledger, lake.view(), found.plan)
    assert state(lake) == before and live(lake, EQUALITY_DELETES) == []


def running(planning: PlanProcess) -> "subprocess.Popen[bytes]":
    """Its process."""
    assert planning._process is not None
    return planning._process


def test_one_process_serves_fold_after_fold(lake: Lake, planning: PlanProcess) -> None:
    planned(planning, lake)
    first = running(planning)
    assert planned(planning, lake, budget=Budget(files=0)).left
    assert running(planning).pid == first.pid


def test_one_that_was_killed_costs_one_fold(lake: Lake, planning: PlanProcess) -> None:
    planned(planning, lake)
    idle = running(planning)
    idle.send_signal(signal.SIGSTOP)  # it cannot answer, and is killed meanwhile
    real = processes._read

    def killed(*given: Any) -> bytes:
        idle.kill()
        return real(*given)

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(processes, "_read", killed)
        with pytest.raises(Retry, match="exit code -9") as refused:
            planned(planning, lake)
    assert "[tables.NAME.fold]" in refused.value.hint and planning._process is None
    assert planned(planning, lake).plan is not None


def test_one_that_ended_idle_costs_no_fold(lake: Lake, planning: PlanProcess) -> None:
    planned(planning, lake)
    idle = running(planning)
    assert idle.stdin is not None
    idle.stdin.close()  # as it would end by itself: with exit code 0
    idle.wait()
    idle.poll = lambda: None  # type: ignore[method-assign]
    idle.stdin = open(os.devnull, "wb")  # noqa: SIM115 - a pipe that takes the job
    assert planned(planning, lake).plan is not None


def test_what_takes_too_long_is_ended(lake: Lake) -> None:
    short = PlanProcess(timedelta(seconds=0.01))
    with pytest.raises(Retry, match="exit code -9"):
        planned(short, lake)
    assert short._process is None


def test_trouble_there_is_trouble_here(lake: Lake, planning: PlanProcess, tmp_path: Path) -> None:
    gone = Catalog("lake", {**lake.catalog_settings.properties, "uri": f"sqlite:///{tmp_path}/gone.db"})
    with pytest.raises(Retry, match=r"gone\.db"):
        planned(planning, lake, gone)
    assert planned(planning, lake).plan is not None


def test_a_process_that_cannot_be_started_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **more: Any) -> None:
        raise OSError("out of processes")

    monkeypatch.setattr(subprocess, "Popen", fails)
    with pytest.raises(Retry, match="out of processes"):
        planned(PlanProcess(), lake)


#: the worker, and before it what breaks in it
BROKEN = "import os, signal, sys, threading\n{}\nfrom bookkeeper.folds import worker\n{}\nworker.main()"
IN_A_FOLD = "def broken(*given):\n    {}\nworker.plan_fold = broken"


def broken(monkeypatch: pytest.MonkeyPatch, first: str = "", then: str = "") -> None:
    """From now on processes run the worker with something broken in it."""
    monkeypatch.setattr(processes, "PROGRAM", f"exec({BROKEN.format(first, then)!r})")


@pytest.fixture
def fresh() -> Iterator[PlanProcess]:
    """No process is there yet."""
    made = PlanProcess()
    yield made
    made.close()


def test_a_defect_there_is_raised_with_its_traceback(
    lake: Lake, fresh: PlanProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, then=IN_A_FOLD.format("1 / 0"))
    with pytest.raises(FoldDefect, match=r"(?s)Traceback.*ZeroDivisionError"):
        planned(fresh, lake)


ANSWERS = {
    "garbage": ("worker.Planner.answer = lambda planner, job: b'\\x80garbage'", "answered no plan"),
    "no answer's form": ("worker.Planner.answer = lambda planner, job: b'[]'", "answered no plan"),
    "more than is read": ("worker.LENGTH_BYTES = 8\nos.write(1, b'\\x7f' * 64)", "at most"),
    "half of one": ("os.write(1, (10**6).to_bytes(8, 'big') + b'{')\nos._exit(3)", "exit code 3"),
    "nothing": ("os._exit(3)", "exit code 3"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_what_is_no_answer_costs_one_fold_and_the_process(
    lake: Lake, fresh: PlanProcess, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    then, why = ANSWERS[kind]
    with monkeypatch.context() as patched:
        broken(patched, then=then)
        with pytest.raises(Retry, match=why) as refused:
            planned(fresh, lake)
        assert refused.value.hint and fresh._process is None
    assert planned(fresh, lake).plan is not None


#: kill the worker at the upload of its first new file
KILLS = {
    "before a new file": "real = LocalStore.upload\ndef upload(*given):\n    os.kill(os.getpid(), 9)",
    "after it": "real = LocalStore.upload\ndef upload(*given):\n    real(*given)\n    os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("when", KILLS)
def test_one_that_is_killed_in_a_fold_leaves_at_most_files_that_nothing_names(
    lake: Lake, fresh: PlanProcess, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    before, there = state(lake), set(new_files(lake))
    with monkeypatch.context() as patched:
        first = f"from bookkeeper.stores.local import LocalStore\n{KILLS[when]}\nLocalStore.upload = upload"
        broken(patched, first)
        with pytest.raises(Retry, match="exit code -9"):
            planned(fresh, lake)
    left = set(new_files(lake)) - there
    assert bool(left) is (when == "after it")
    assert state(lake) == before
    commit_fold(lake.book().ledger, lake.view(), planned(fresh, lake, random=bytes(10)).plan)
    assert state(lake) == before and live(lake, EQUALITY_DELETES) == []
    assert left.isdisjoint(Path(item.file["file_path"]).name for item in live(lake))


def new_files(lake: Lake) -> list[str]:
    """The names of all position delete files of folds."""
    data_path = Path(lake.view().data_path.removeprefix("file://"))
    return [path.name for path in data_path.rglob("*-deletes.parquet")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("in_a_fold", [False, True])
def test_it_ends_with_the_process_that_started_it(tmp_path: Path, number: int, in_a_fold: bool) -> None:
    begun, hang = tmp_path / "begun", "open({!r}, 'w').close()\n    threading.Event().wait()"
    program = BROKEN.format("", IN_A_FOLD.format(hang.format(str(begun))))
    lake = lake_of(tmp_path / "lake")
    put(lake, data(lake, rows(1)))
    job = processes.encode_job(
        Job(lake.catalog_settings, "demo.events", lake.view().marks.folder, lake.clock.now, bytes(10), Budget())
    )
    code = (
        "import os, time\nfrom bookkeeper.folds import process\n"
        f"process.PROGRAM = {f'exec({program!r})'!r}\nchild = process.PlanProcess()._running()\n"
        f"if {in_a_fold}:\n    child.stdin.write({job!r})\n    child.stdin.flush()\n"
        f"    while not os.path.exists({str(begun)!r}) and child.poll() is None:\n        time.sleep(0.01)\n"
        f"print(child.pid, flush=True)\nos.kill(os.getpid(), {int(number)})"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=120)
    pid = int(done.stdout)
    assert begun.exists() is in_a_fold
    try:
        worker = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([worker], [], [], 120)[0], "it goes on"
    os.close(worker)


def test_the_memory_of_the_bookkeeper_does_not_end_it(lake: Lake) -> None:
    ballast, planning = b"x" * (600 * 2**20), PlanProcess()
    try:
        planned(planning, lake)
        first = running(planning)
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.5)
    finally:
        planning.close()
    assert ballast


def test_a_stop_in_the_middle_of_a_fold_ends_the_bookkeeper_and_its_process(tmp_path: Path) -> None:
    lake, begun = keyed_lake(tmp_path / "lake", check_files=False), tmp_path / "begun"
    lake.clock.now = datetime.now(UTC)
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b"}))
    catalog = {"name": "lake", **lake.catalog_settings.properties}
    lines = ["[catalog]", *(f"{key} = {json.dumps(value)}" for key, value in catalog.items())]
    lines += ["[bookkeeper]", 'every = "20ms"', 'listen = ""', "[tables.events]", 'identifier = "demo.events"']
    config = tmp_path / "bookkeeper.toml"
    config.write_text("\n".join([*lines, "check-files = false", "[tables.events.fold]", "files = 1", ""]))
    hang = (
        f"    open({str(begun)!r}, 'w').write(str(os.getpid()))\n    os.rename({str(begun)!r}, {str(begun)!r} + '.pid')"
    )
    program = BROKEN.format("", f"def broken(*given):\n{hang}\n    threading.Event().wait()\nworker.plan_fold = broken")
    code = (
        f"from bookkeeper.folds import process\nprocess.PROGRAM = {f'exec({program!r})'!r}\n"
        f"from bookkeeper.cli.main import main\nmain(['run', '--config', {str(config)!r}])"
    )
    daemon = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        pid_file = begun.with_name("begun.pid")
        while not pid_file.exists():
            assert daemon.poll() is None, "it ended before a fold began"
        worker = os.pidfd_open(int(pid_file.read_text()))
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(120) == 0
        assert select.select([worker], [], [], 120)[0], "its process goes on"
        os.close(worker)
    finally:
        daemon.kill()
        daemon.wait()
    assert lake.folder.pending() == [] and live(lake, EQUALITY_DELETES) and not new_files(lake)
