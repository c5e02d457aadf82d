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
from bookkeeper.fold import process as processes
from bookkeeper.fold.budget import Budget
from bookkeeper.fold.fold import plan_fold
from bookkeeper.fold.process import FoldDefect, PlanProcesses
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.ledger.fold_commit import commit_fold
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
def planning() -> Iterator[PlanProcesses]:
    made = PlanProcesses()
    yield made
    made.close()


def planned(planning: PlanProcesses, lake: Lake, catalog: Catalog | None = None, budget: Budget | None = None) -> Any:
    view, ledger = lake.view(), lake.book().ledger
    now, given = lake.clock.now, budget or Budget()
    return planning.plan(catalog or lake.catalog_settings, ledger, view, now, bytes(range(10)), given)


def test_it_plans_what_the_thread_would_and_the_plan_can_be_committed(lake: Lake, planning: PlanProcesses) -> None:
    before, found = state(lake), planned(planning, lake)
    assert found == plan_fold(lake.book().ledger, lake.view(), lake.clock.now, bytes(range(10)), Budget())
    commit_fold(lake.book().ledger, lake.view(), found.plan)
    assert state(lake) == before and live(lake, EQUALITY_DELETES) == []


def test_one_process_serves_fold_after_fold(lake: Lake, planning: PlanProcesses) -> None:
    planned(planning, lake)
    (first,) = planning._idle
    assert planned(planning, lake, budget=Budget(files=0)).left
    assert [one.pid for one in planning._idle] == [first.pid]


def test_one_that_was_killed_costs_one_fold(lake: Lake, planning: PlanProcesses) -> None:
    planned(planning, lake)
    (idle,) = planning._idle
    idle.send_signal(signal.SIGSTOP)  # it cannot answer, and is killed meanwhile
    real = processes.pickle.dump

    def killed(*given: Any) -> None:
        real(*given)
        idle.kill()

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(processes.pickle, "dump", killed)
        with pytest.raises(Retry, match="exit code -9") as refused:
            planned(planning, lake)
    assert "[tables.NAME.fold]" in refused.value.hint and planning._idle == []
    assert planned(planning, lake).plan is not None


def test_one_that_ended_idle_costs_no_fold(lake: Lake, planning: PlanProcesses) -> None:
    planned(planning, lake)
    (idle,) = planning._idle
    assert idle.stdin is not None
    idle.stdin.close()  # as it would end by itself: with exit code 0
    idle.wait()
    idle.poll = lambda: None  # type: ignore[method-assign]
    idle.stdin = open(os.devnull, "wb")  # noqa: SIM115 - a pipe that takes the job
    assert planned(planning, lake).plan is not None


def test_what_takes_too_long_is_ended(lake: Lake) -> None:
    short = PlanProcesses(timedelta(seconds=0.01))
    with pytest.raises(Retry, match="exit code -9"):
        planned(short, lake)
    assert short._idle == []


def test_trouble_there_is_trouble_here(lake: Lake, planning: PlanProcesses, tmp_path: Path) -> None:
    gone = Catalog("lake", {**lake.catalog_settings.properties, "uri": f"sqlite:///{tmp_path}/gone.db"})
    with pytest.raises(Retry, match=r"gone\.db"):
        planned(planning, lake, gone)
    with pytest.raises(FoldDefect, match="Traceback"):
        planned(planning, lake, budget="a defect")  # type: ignore[arg-type]
    assert planned(planning, lake).plan is not None


def test_a_process_that_cannot_be_started_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **more: Any) -> None:
        raise OSError("out of processes")

    monkeypatch.setattr(subprocess, "Popen", fails)
    with pytest.raises(Retry, match="out of processes"):
        planned(PlanProcesses(), lake)


def test_it_ends_with_the_process_that_started_it() -> None:
    code = (
        "import os\nfrom bookkeeper.fold.process import PlanProcesses\n"
        "process = PlanProcesses()._take()\nprint(process.pid, flush=True)\nos.kill(os.getpid(), 9)"
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
    ballast, planning = b"x" * (600 * 2**20), PlanProcesses()
    try:
        planned(planning, lake)
        (first,) = planning._idle
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.5)
    finally:
        planning.close()
    assert ballast
