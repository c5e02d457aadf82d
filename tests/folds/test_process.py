"""Folds that are planned in a process of their own: the same plan, and an end of it that costs no tick."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Catalog
from bookkeeper.errors import Retry
from bookkeeper.folds import process as processes
from bookkeeper.folds.budget import Budget
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.messages import Job, job_line
from bookkeeper.folds.process import FoldDefect, PlanProcess
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.ledger.fold_commit import commit_fold
from tests.packaging.project import ROOT
from tests.support.crew import Crew
from tests.support.folds import data, keys, lake_of, live, put, state
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


def process_of(planning: PlanProcess) -> "subprocess.Popen[bytes]":
    assert planning._process is not None
    return planning._process


def planned(planning: PlanProcess, lake: Lake, catalog: Catalog | None = None, budget: Budget | None = None) -> Any:
    view, ledger = lake.view(), lake.book().ledger
    now, given = lake.clock.now, budget or Budget()
    return planning.plan(catalog or lake.catalog_settings, ledger, view, now, bytes(range(10)), given)


def test_it_plans_what_the_thread_would_and_the_plan_can_be_committed(lake: Lake, planning: PlanProcess) -> None:
    before, found = state(lake), planned(planning, lake)
    assert found == plan_fold(lake.book().ledger, lake.view(), lake.clock.now, bytes(range(10)), Budget())
    commit_fold(lake.book().ledger, lake.view(), found.plan)
    assert state(lake) == before and live(lake, EQUALITY_DELETES) == []


def test_one_process_serves_fold_after_fold(lake: Lake, planning: PlanProcess) -> None:
    planned(planning, lake)
    first = process_of(planning)
    assert planned(planning, lake, budget=Budget(files=0)).left
    assert process_of(planning) is first


def test_one_that_was_killed_costs_one_fold(lake: Lake, planning: PlanProcess) -> None:
    planned(planning, lake)
    idle = process_of(planning)
    idle.send_signal(signal.SIGSTOP)  # it cannot answer, and is killed meanwhile
    real = processes.os.write

    def killed(*given: Any) -> int:
        count = real(*given)
        idle.kill()
        return count

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(processes.os, "write", killed)
        with pytest.raises(Retry, match="exit code -9") as refused:
            planned(planning, lake)
    assert "[tables.NAME.fold]" in refused.value.hint and planning._process is None
    assert planned(planning, lake).plan is not None


def test_one_that_ended_idle_costs_no_fold(lake: Lake, planning: PlanProcess) -> None:
    planned(planning, lake)
    idle = process_of(planning)
    assert idle.stdin is not None
    idle.stdin.close()  # as it would end by itself: with exit code 0
    idle.wait()
    idle.poll = lambda: None  # type: ignore[method-assign]
    idle.stdin = os.fdopen(os.pipe()[1], "wb", 0)  # it takes the job
    assert planned(planning, lake).plan is not None


def test_what_takes_too_long_is_ended(lake: Lake) -> None:
    short = PlanProcess(timedelta(seconds=0.01))
    with pytest.raises(Retry, match="no answer within"):
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


def test_it_ends_with_the_process_that_started_it() -> None:
    code = (
        "import os\nfrom bookkeeper.folds.process import PlanProcess\n"
        "process = PlanProcess()._started()\nprint(process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=120)
    pid = int(done.stdout)
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
        first = process_of(planning)
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.5)
    finally:
        planning.close()
    assert ballast


def standing_in(code: str, most: timedelta = timedelta(minutes=2), most_bytes: int = 10**6) -> PlanProcess:
    """A process that reads a job and does something else with it; `job` is what the line holds."""
    head = "import json, sys, time; job = json.loads(sys.stdin.readline()); say = sys.stdout.write; "
    return PlanProcess(most, (sys.executable, "-S", "-c", head + code), most_bytes)


def failed(**said: Any) -> str:
    """Code that answers the job with a failure."""
    return f"say(json.dumps(dict(random=job['random'], found={said!r})) + chr(10)); sys.stdout.flush()"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("say('garbage' + chr(10))", "what is no plan"),
        ("say('[' * 100_000 + chr(10))", "what is no plan"),
        ("say('null' + chr(10))", "what is no plan"),
        ("say(json.dumps(job) + chr(10))", "what is no plan"),
        ("say(json.dumps(dict(random='AAAA', found=dict(text='x'))) + chr(10))", "another job"),
        (failed(text=1), "what is no plan"),
        ("[say('x' * 1000) for _ in range(2000)]", "more than 1000000 bytes"),
        ("say('half an answer')", "exit code 0"),
        ("sys.exit(7)", "exit code 7"),
        (failed(text="no answer", hint="Wait."), "no answer"),
    ],
    ids=["garbage", "nested", "null", "the job", "of another job", "types", "too much", "half", "nothing", "a failure"],
)
def test_whatever_it_answers_costs_one_fold(lake: Lake, code: str, why: str) -> None:
    planning = standing_in(code)
    with pytest.raises(Retry, match=why):
        planned(planning, lake)
    process = planning._process
    assert process is None or why == "no answer"
    planning.close()


def test_one_that_never_answers_is_killed(lake: Lake) -> None:
    planning = standing_in("time.sleep(10**6)", timedelta(seconds=0.5))
    process = planning._started()
    with pytest.raises(Retry, match="no answer within"):
        planned(planning, lake)
    assert planning._process is None and process.returncode == -signal.SIGKILL


def test_one_that_reads_no_job_holds_no_thread(lake: Lake) -> None:
    planning = PlanProcess(timedelta(seconds=0.5), (sys.executable, "-S", "-c", "import time; time.sleep(10**6)"))
    properties = {**lake.catalog_settings.properties, "more-than-a-pipe-holds": "x" * 2**20}
    with pytest.raises(Retry, match="no answer within"):
        planned(planning, lake, Catalog("lake", properties))
    assert planning._process is None


def test_a_defect_there_is_told_here(lake: Lake) -> None:
    planning = standing_in(failed(text="Traceback: ours", expected=False))
    with pytest.raises(FoldDefect, match="Traceback: ours"):
        planned(planning, lake)
    planning.close()


def test_a_line_that_is_no_job_ends_it(planning: PlanProcess) -> None:
    process = planning._started()
    with pytest.raises(EOFError):
        processes._exchanged(process, b"no job\n", 120, 100)
    assert process.wait(60) == 2
    planning.close()


#: code that runs in the process before it takes jobs: it is killed at that step
KILLED = "import os; from bookkeeper.folds import worker; from bookkeeper.stores.local import LocalStore; "
KILLED += (
    "upload, answer = LocalStore.upload, worker.answer_line; die = lambda *given, **more: os.kill(os.getpid(), 9); "
)
STEPS = {
    "before it opens the catalog": "worker.open_catalog = die",
    "before it plans": "worker.plan_fold = die",
    "before its file is written": "LocalStore.upload = die",
    "after its file was written": "LocalStore.upload = lambda *given: die(upload(*given))",
    "before it answers": "worker.answer_line = die",
    "in its answer": "worker.answer_line = lambda *given: answer(*given)[:99]; worker._peak_kib = die",
}


def patched(code: str) -> PlanProcess:
    """The process, with this code run first."""
    return PlanProcess(command=(sys.executable, "-P", "-c", f"{KILLED}{code}; worker.main()"))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_it_costs_one_fold_and_no_row(lake: Lake, planning: PlanProcess, step: str) -> None:
    before = state(lake)
    with pytest.raises(Retry, match="exit code -9"):
        planned(patched(STEPS[step]), lake)
    assert state(lake) == before and len(live(lake, EQUALITY_DELETES)) == 1
    commit_fold(lake.book().ledger, lake.view(), planned(planning, lake).plan)
    assert state(lake) == before and live(lake, EQUALITY_DELETES) == []


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_in_the_middle_of_a_fold_with_the_process_that_started_it(lake: Lake, ended_by: signal.Signals) -> None:
    """It says on stderr that it plans, and would plan for ever."""
    code = "worker.plan_fold = lambda *given: (os.write(2, b'%d\\n' % os.getpid()), worker.queue.Queue().get())"
    job = Job(lake.catalog_settings, lake.settings.identifier, lake.view().marks.folder, lake.clock.now, b"x", Budget())
    parent = f"from tests.folds.test_process import *; process = patched({code!r})._started(); "
    parent += f"processes._exchanged(process, {job_line(job)!r}, 600, 100)"
    crew = Crew({"daemon": [sys.executable, "-c", parent]}, lake.root)
    daemon = crew.start("daemon", stderr=subprocess.PIPE, cwd=ROOT, text=True)
    line = daemon.stderr.readline()
    assert line.strip().isdigit(), line + daemon.communicate()[1]
    worker = os.pidfd_open(int(line))
    daemon.send_signal(ended_by)
    assert select.select([worker], [], [], 120)[0], "it goes on"
    os.close(worker)
    assert crew.wait("daemon", 60) == -ended_by
