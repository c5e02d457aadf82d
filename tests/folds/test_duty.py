"""The daemon's duty: when it folds, beside the ticks, and what it does with a plan that the table has outrun."""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Catalog, Fold, Retention
from bookkeeper.errors import StorageUnavailable
from bookkeeper.folds import duty
from bookkeeper.folds.duty import FoldThreads
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from bookkeeper.tick.duties import Duties
from bookkeeper.tick.tick import Bookkeeper
from tests.support.folds import live, state
from tests.support.keyed import Step, Steps, keyed_lake, replayed
from tests.support.lake import Lake

FOLD_FILES = Fold().files


def at_once(act: Callable[[], None], name: str) -> bool:
    act()
    return True


def book_of(lake: Lake, spawn: Any = at_once, **settings: Any) -> Bookkeeper:
    book = lake.book(**settings)
    book.duties = Duties(book.settings, book.folder, book.ledger, book.open_store, spawn)
    return book


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path, check_files=False)


def upserted(lake: Lake, book: Bookkeeper, writer: Steps, count: int) -> list[Step]:
    """So many commits, each with one equality delete file."""
    steps = []
    for number in range(count):
        step = Step(upserts={number % 3: f"{writer.order}", 100 + number: "once"}, deletes=[50 + number])
        writer.publish_steps(step)
        lake.tick(book)
        steps.append(step)
    return steps


def wait_for_the_plan(book: Bookkeeper) -> None:
    ended = book.duties.folds._ended
    ended.put(ended.get(timeout=60))


def shown(lake: Lake) -> dict[Any, Any]:
    return {row[0]: row[1] for row in state(lake)}


def test_it_folds_at_eight_files_and_not_before(lake: Lake) -> None:
    book, writer = book_of(lake), Steps(lake)
    steps = upserted(lake, book, writer, FOLD_FILES - 1)
    lake.tick(book, seconds=3)
    assert len(live(lake, EQUALITY_DELETES)) == FOLD_FILES - 1 and not live(lake, POSITION_DELETES)
    steps += upserted(lake, book, writer, 1)
    for _ in range(3):
        lake.tick(book, seconds=2)
    assert live(lake, EQUALITY_DELETES) == [] and live(lake, POSITION_DELETES)
    assert shown(lake) == replayed(*steps) and len(state(lake)) == len(shown(lake))


def test_it_folds_one_file_after_a_minute(lake: Lake) -> None:
    book, writer = book_of(lake), Steps(lake)
    upserted(lake, book, writer, 2)
    lake.tick(book, seconds=30)
    lake.tick(book, seconds=3)
    assert len(live(lake, EQUALITY_DELETES)) == 2
    lake.tick(book, seconds=30)
    lake.tick(book, seconds=3)
    assert live(lake, EQUALITY_DELETES) == []


def test_the_policy_is_the_tables(lake: Lake) -> None:
    book, writer = book_of(lake, fold=Fold(files=3, after=timedelta(seconds=20))), Steps(lake)
    upserted(lake, book, writer, 3)
    for _ in range(3):
        lake.tick(book, seconds=2)
    assert live(lake, EQUALITY_DELETES) == []
    upserted(lake, book, writer, 1)
    lake.tick(book, seconds=15)
    lake.tick(book, seconds=1)
    assert len(live(lake, EQUALITY_DELETES)) == 1
    for _ in range(3):
        lake.tick(book, seconds=3)
    assert live(lake, EQUALITY_DELETES) == []


def test_a_table_that_is_not_to_be_folded_is_left_alone(lake: Lake) -> None:
    book, writer = book_of(lake, fold=Fold(enabled=False)), Steps(lake)
    upserted(lake, book, writer, FOLD_FILES)
    for _ in range(3):
        lake.tick(book, seconds=100)
    assert len(live(lake, EQUALITY_DELETES)) == FOLD_FILES


def test_after_a_fold_marks_json_says_what_the_table_says(lake: Lake) -> None:
    book, writer = book_of(lake), Steps(lake)
    upserted(lake, book, writer, FOLD_FILES)
    for _ in range(3):
        lake.tick(book, seconds=2)
    copy = lake.folder.marks()
    assert live(lake, EQUALITY_DELETES) == [] and copy is not None
    assert copy.marks.snapshot == lake.table().metadata.current_snapshot_id


def test_rows_do_not_wait_for_a_fold_that_is_planned(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    go, waiting, plan = threading.Event(), threading.Event(), duty.plan_fold

    def slow(*given: Any) -> Any:
        waiting.set()
        assert go.wait(60)
        return plan(*given)

    monkeypatch.setattr(duty, "plan_fold", slow)
    book, writer = book_of(lake, FoldThreads().of(Catalog())), Steps(lake)
    steps = upserted(lake, book, writer, FOLD_FILES)
    for _ in range(60):  # a look that began with fewer files may still be under way
        lake.tick(book, seconds=2)
        if waiting.wait(1):
            break
    assert waiting.is_set()
    steps += upserted(lake, book, writer, 3)
    assert shown(lake) == replayed(*steps) and not live(lake, POSITION_DELETES)
    go.set()
    wait_for_the_plan(book)
    lake.tick(book, seconds=1)
    assert shown(lake) == replayed(*steps)
    assert len(live(lake, EQUALITY_DELETES)) == 3 and live(lake, POSITION_DELETES)


def test_a_table_without_keys_is_left_alone(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path, check_files=False)
    book, writer = book_of(lake), Steps(lake)
    upserted(lake, book, writer, 2)
    with lake.table().transaction() as change:
        change.remove_properties("bookkeeper.upserts")
    for _ in range(3):
        lake.tick(book, seconds=100)
    assert len(live(lake, EQUALITY_DELETES)) == 2


def test_what_cannot_be_folded_is_said_once_and_tried_again_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planned = list[int]()
    plan = duty.plan_fold

    def counted(*given: Any) -> Any:
        planned.append(1)
        return plan(*given)

    monkeypatch.setattr(duty, "plan_fold", counted)
    book, writer = book_of(lake, fold=Fold(max_files=1)), Steps(lake)
    upserted(lake, book, writer, FOLD_FILES)
    for _ in range(100):
        lake.tick(book, seconds=3)
    assert len(planned) == 1
    said = [record for record in caplog.records if record.getMessage() == "deletes not folded"]
    assert len(said) == 1 and said[0].levelname == "WARNING" and said[0].files == FOLD_FILES
    lake.tick(book, seconds=400)
    lake.tick(book, seconds=3)
    assert len(planned) == 2


@pytest.mark.parametrize("error", [StorageUnavailable("no answer"), ZeroDivisionError("ours")])
def test_a_fold_that_fails_is_tried_again_after_a_minute_and_costs_no_row(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    tried = list[int]()

    def fails(*given: Any) -> Any:
        tried.append(1)
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(duty, "plan_fold", fails)
        book, writer = book_of(lake), Steps(lake)
        steps = upserted(lake, book, writer, FOLD_FILES)
        for _ in range(10):
            lake.tick(book, seconds=3)
        assert len(tried) == 1 and shown(lake) == replayed(*steps)
        lake.tick(book, seconds=60)
        assert len(tried) == 2
    assert {record.levelname for record in caplog.records if record.action == "fold"} <= {"WARNING", "ERROR"}
    for _ in range(3):
        lake.tick(book, seconds=61)
    assert live(lake, EQUALITY_DELETES) == [] and shown(lake) == replayed(*steps)


def test_so_many_folds_at_once_and_no_more() -> None:
    go, plans, ended = threading.Event(), list[Any](), threading.Semaphore(0)
    seats = [partial(str, "one"), partial(str, "two")]
    spawn = FoldThreads(seats).of(Catalog())

    def work(plan: Any = None) -> None:
        plans.append(plan)
        assert go.wait(60)
        ended.release()

    assert [spawn(work, "x") for _ in range(3)] == [True, True, False]
    go.set()
    for _ in seats:
        assert ended.acquire(timeout=60)
    # No seat is two threads' at once.
    assert sorted(plan.args[0] for plan in plans) == ["one", "two"]


def test_what_a_thread_found_is_the_ticks_once_it_is_taken_over(lake: Lake) -> None:
    given = list[Any]()

    def later(work: Any, name: str) -> bool:
        given.append(work)
        return True

    book, writer = book_of(lake, later), Steps(lake)
    upserted(lake, book, writer, 2)
    (work,), before = given, vars(book.duties.folds).copy()
    work()
    assert vars(book.duties.folds) == before and book.duties.folds.look is None
    lake.tick(book, seconds=3)
    assert book.duties.folds.look is not None and len(given) == 2


def test_a_thread_that_cannot_be_started_now_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = FoldThreads([None])
    book, writer = book_of(lake, threads.of(Catalog())), Steps(lake)
    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", fails)
        steps = upserted(lake, book, writer, FOLD_FILES)
    assert shown(lake) == replayed(*steps)
    lake.tick(book, seconds=3)
    wait_for_the_plan(book)
    lake.tick(book, seconds=3)
    assert live(lake, EQUALITY_DELETES) == [] and shown(lake) == replayed(*steps)


def test_a_defect_in_the_commit_of_a_fold_drops_the_plan_and_costs_no_tick(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[int]()

    def fails(*given: Any) -> Any:
        tried.append(1)
        raise ZeroDivisionError("ours")

    with monkeypatch.context() as broken:
        broken.setattr(duty, "commit_fold", fails)
        book, writer = book_of(lake), Steps(lake)
        steps = upserted(lake, book, writer, FOLD_FILES)
        for _ in range(10):
            lake.tick(book, seconds=3)
        assert len(tried) == 1 and shown(lake) == replayed(*steps)
    for _ in range(3):
        lake.tick(book, seconds=61)
    assert live(lake, EQUALITY_DELETES) == [] and shown(lake) == replayed(*steps)


def test_a_fold_that_the_storage_keeps_from_being_committed_keeps_no_other_duty_from_its_turn(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[int]()

    def refused(*given: Any) -> Any:
        tried.append(1)
        raise StorageUnavailable("no answer")

    book, writer = book_of(lake, retention=Retention(max_age=timedelta(minutes=5), brake=1.0)), Steps(lake)
    steps = upserted(lake, book, writer, FOLD_FILES)
    with monkeypatch.context() as broken:
        broken.setattr(duty, "commit_fold", refused)
        lake.tick(book, seconds=2)
        for _ in range(6):
            lake.tick(book, minutes=2)
        assert len(tried) > 1 and shown(lake) == {} != replayed(*steps)
