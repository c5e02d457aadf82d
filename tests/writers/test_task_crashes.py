"""A crash at each step from task() to publish: what it leaves, and that the sweep or the next run cleans it up."""

import os
import pickle
import signal
import sys
import uuid
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.errors import BookkeeperError, StorageUnavailable, UnknownOutcome
from bookkeeper.stores.open import open_store
from reaper import orphans
from reaper.context import ReaperContext
from tests.packaging.project import ROOT
from tests.support import forked
from tests.support.desk import Desk, Ledger, rows
from tests.support.enumerated import Point, crash_points, crashed, error_points, late_points, recorded
from tests.support.faults import Faults, FaultyStore
from tests.support.lake import Clock as LakeClock
from tests.support.lake import Lake
from writers import Task, Writer

FOUR_DAYS, HOUR = timedelta(days=4), timedelta(hours=1)
#: of two batches: two files of tasks that are taken and one that is discarded
UPLOADS, DELETES, CREATES = 6, 2, 2
KEYS = ["0a", "0b", "1a", "1b"]


class Batches:
    """A source of two positions; each is written by three attempts at tasks, of which two are taken."""

    def __init__(self) -> None:
        self.desk = Desk(f"memory://{uuid.uuid4()}")
        self.desk.set_card()
        self.ledger = Ledger(self.desk)

    def copy(self, faults: Faults) -> None:
        """One run, from where the positions end; the tasks' storage fails as the driver's does."""
        desk, label = self.desk, {f"{self.desk.root}/data": "data"}
        desk.stores = lambda url: FaultyStore(open_store(url), faults, label.get(url, "folder"))  # type: ignore[return-value]
        desk.clock.move(minutes=1)
        with desk.writer(at_once=lambda acts: [act() for act in acts], wait=lambda seconds: True) as writer:
            for at in range(int(writer.position or b"0"), 2):
                task = pickle.loads(pickle.dumps(writer.task()))
                first, second, lost = (self.attempt(task, f"{at}{part}") for part in "aba")
                assert writer.take([first, second], position=b"%d" % (at + 1)) == 2
                writer.discard([lost])
                writer.publish()
                self.ledger.tick()
                desk.clock.move(seconds=2)

    def attempt(self, task: Task, key: str) -> bytes:
        with task.open(stores=self.desk.stores, clock=self.desk.clock, wait=lambda seconds: True) as files:
            files.write(rows(key))
        return files.result

    def finish(self) -> None:
        """Runs until the source is read and all of it is committed."""
        self.ledger.finish(lambda: self.copy(Faults()))

    def check(self, point: Point) -> None:
        """All rows once; files that no txlog names are all that is left."""
        assert self.ledger.keys() == KEYS, point
        assert self.desk.left() == {"card.json", "marks.json"}, point


def test_a_crash_at_each_operation_of_a_driver_and_its_tasks_loses_and_doubles_nothing() -> None:
    tried = Counter[str]()
    for point in [Point(0, "", "none"), *crash_points(recorded(Batches().copy))]:
        source = Batches()
        if point.when != "none":
            assert crashed(source.copy, point), point
            tried[point.operation.split(" ")[0]] += 1
        source.finish()
        source.check(point)
    assert tried == {"upload": 3 * UPLOADS, "delete": 3 * DELETES, "create": 3 * CREATES}


@pytest.mark.parametrize("points", [error_points, late_points])
def test_an_error_or_a_late_put_at_each_operation_loses_and_doubles_nothing(points: Any) -> None:
    for point in points(recorded(Batches().copy)):
        source = Batches()
        with suppress(BookkeeperError):
            source.copy(Faults().at(point.number, point.when, StorageUnavailable, point.delay))
        source.finish()
        source.check(point)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, file_names="strict")


def writer_of(lake: Lake) -> Writer:
    return Writer.open(lake.folder, "driver", clock=lake.clock, wait=lambda seconds: True, stores=lake.store)


def written(lake: Lake, task: Task, *keys: str) -> bytes:
    with task.open(stores=lake.store, clock=lake.clock) as files:
        for key in keys:
            files.write(rows(key, at=lake.clock.now))
    return files.result


def data_files(lake: Lake) -> set[str]:
    folder = Path(lake.table().location().removeprefix("file://"), "data")
    return {path.name for path in folder.rglob("*") if path.is_file()}


def sweep(lake: Lake, age: timedelta) -> int:
    """How many files the reaper's sweeps delete this long after now, two of them an hour apart."""
    count = 0
    for later in (age, age + HOUR):
        now = lake.clock.now + later
        settings = replace(lake.settings)
        count += len(
            orphans.sweep(ReaperContext.of(settings, open_catalog(lake.catalog_settings), lake.store, now), now)
        )
    return count


def test_the_sweep_deletes_what_lost_results_and_discarded_runs_left_and_nothing_that_was_taken(lake: Lake) -> None:
    driver = writer_of(lake)
    task = driver.task()
    taken, *_ = (written(lake, task, key) for key in ("a", "lost", "zombie"))
    driver.take([taken])
    assert sweep(lake, timedelta(hours=1)) == 0, "young: any of them may still be taken"
    driver.publish()
    assert len(data_files(lake)) == 3
    assert sweep(lake, FOUR_DAYS) == 2, "the pending txlog keeps the file that it names"
    lake.tick()
    assert sweep(lake, FOUR_DAYS) == 0
    assert (lake.keys(), len(data_files(lake))) == (["a"], 1)


@pytest.mark.parametrize("when", ["before task", "after task", "after take", "after publish"])
def test_a_driver_that_is_killed_leaves_its_txlog_or_files_for_the_sweep(lake: Lake, when: str) -> None:
    driver = writer_of(lake)
    if when != "before task":
        task = driver.task()
        result = written(lake, task, "a")
        if when != "after task":
            driver.take([result])
        if when == "after publish":
            driver.publish()
    driver._left.detach()  # killed: nothing of it runs any more
    lake.tick()
    kept = when == "after publish"
    assert sweep(lake, FOUR_DAYS) == (0 if kept or when == "before task" else 1)
    assert lake.keys() == (["a"] if kept else [])
    assert len(data_files(lake)) == kept


KILLED = """
import os, pickle, signal, sys
from bookkeeper.stores import disk
from tests.support.desk import noisy_rows

whole = disk.write_durably
def torn(folder, name, path, data):
    whole(folder, name, path, memoryview(data)[:50_000])
    os.kill(os.getpid(), signal.SIGKILL)

task = pickle.loads(sys.stdin.buffer.read())
if sys.argv[1] == "in the file":
    disk.write_durably = torn
with task.open() as files:
    files.write(noisy_rows(["x", "y"], 50_000))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("where", ["in the file", "behind the file"])
def test_a_task_that_is_killed_leaves_a_torn_or_a_whole_file_that_only_the_sweep_touches(
    lake: Lake, where: str
) -> None:
    with writer_of(lake) as driver:
        task = driver.task()
        killed = forked.run(
            [sys.executable, "-c", KILLED, where], input=pickle.dumps(task), cwd=ROOT, capture_output=True
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        (left,) = data_files(lake)
        folder = Path(lake.table().location().removeprefix("file://"), "data")
        (path,) = folder.rglob(left)
        assert (path.stat().st_size < 100_000) == (where == "in the file")
        driver.take([written(lake, task, "x", "y")])  # the framework gives the task again
    # The killed process had the time of this machine, not the test's.
    os.utime(path, (lake.clock.now.timestamp(),) * 2)
    lake.tick()
    assert lake.keys() == ["x", "y"]
    assert sweep(lake, FOUR_DAYS) == 1
    assert left not in data_files(lake)
    assert lake.keys() == ["x", "y"]


def test_files_that_were_swept_before_the_txlog_came_in_make_it_rejected_and_no_row_is_lost_in_silence(
    tmp_path: Path,
) -> None:
    """The driver stands still between its last look at the age and the put of the txlog."""
    lake = Lake(tmp_path, clock := LakeClock(), file_names="strict")
    driver = writer_of(lake)
    result = written(lake, driver.task(), "a")
    driver.take([result], position=b"1")
    put = driver._publisher.publish

    def late(*given: Any) -> Any:
        clock.move(days=5)
        assert sweep(lake, timedelta(0)) == 1
        return put(*given)

    driver._publisher.publish = late  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome, match="orphan-age"):
        driver.publish()
    lake.tick()
    assert list(lake.rejected().values()) == ["FileMissing"]
    assert lake.keys() == []
    with writer_of(lake) as again:
        assert again.position is None, "so the source gives the rows again"
        again.take([written(lake, again.task(), "a")], position=b"1")
    lake.tick()
    assert lake.keys() == ["a"]


def _part(task: Task, part: int) -> bytes:
    with task.open() as files:
        files.write(rows(*(f"{part}-{row}" for row in range(100))))
    return files.result


def test_a_pool_of_processes_writes_one_txlog(lake: Lake) -> None:
    with writer_of(lake) as driver, ProcessPoolExecutor(2, get_context("spawn")) as pool:
        task = driver.task()
        driver.take(pool.map(_part, [task] * 6, range(6)))
        driver.publish()
    lake.tick()
    assert len(lake.table().metadata.snapshots) == 1
    assert lake.keys() == sorted(f"{part}-{row}" for part in range(6) for row in range(100))
