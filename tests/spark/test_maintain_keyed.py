"""Deletes that a fold leaves, applied on Spark beside a table that is upserted all the time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.config.settings import Fold
from bookkeeper.contract import fold_pause
from bookkeeper.errors import Retry
from bookkeeper.folds import duty
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from bookkeeper.tick import take_rewrites
from bookkeeper.tick.duties import Duties
from bookkeeper.tick.tick import Bookkeeper
from spark_jobs import compact, maintain
from spark_jobs.maintain import Work
from spark_jobs.rewrite_groups import Source
from tests.folds.test_duty import at_once
from tests.support.folds import live, state
from tests.support.keyed import Step, Steps, replayed
from tests.support.lake import Lake as Queue

KEYS = range(20)
NOTHING_FITS = Fold(files=3, after=timedelta(hours=9), max_files=1, max_rows=1)


class Upserted:
    """A keyed table with a bookkeeper, whose next tick upserts one row and does whatever is due."""

    def __init__(self, keyed: Queue) -> None:
        self.keyed, self.writer, self.steps = keyed, Steps(keyed), list[Step]()
        self.book = self.bookkeeper(Fold(enabled=False))

    def bookkeeper(self, fold: Fold) -> Bookkeeper:
        book = self.keyed.book(fold=fold)
        book.duties = Duties(book.settings, book.folder, book.ledger, book.open_store, at_once)
        return book

    def upsert(self, *keys: int) -> None:
        """One commit, a tick that takes rewrites, and one that commits a fold that is ready."""
        step = Step(upserts={key: f"{len(self.steps)}" for key in keys})
        self.writer.publish_steps(step)
        self.steps.append(step)
        for _ in range(3):
            # Java commits by the clock of this machine, which the ticks must not be behind or ahead of.
            self.keyed.clock.now = max(self.keyed.clock.now, datetime.now(UTC))
            self.keyed.tick(self.book, milliseconds=1)

    @property
    def wanted(self) -> dict[Any, Any]:
        return dict(replayed(*self.steps))

    def shown(self) -> dict[Any, Any]:
        rows = state(self.keyed)
        found = {row[0]: row[1] for row in rows}
        assert len(found) == len(rows)
        return found


@pytest.fixture
def table(keyed: Queue, monkeypatch: pytest.MonkeyPatch) -> Upserted:
    """Twenty keys in one file, and four upserts."""
    none = timedelta(0)
    for module, name in (
        (take_rewrites, "LIST_EVERY"),
        (take_rewrites, "LIST_SELDOM"),
        (duty, "LOOK_EVERY"),
        (duty, "PAUSED_LOOK"),
    ):
        monkeypatch.setattr(module, name, none)
    table = Upserted(keyed)
    table.upsert(*KEYS)
    for key in range(4):
        table.upsert(key)
    return table


@pytest.fixture
def work(spark: Any, table: Upserted) -> Work:
    keyed = table.keyed
    name = f"{keyed.catalog_settings.name}.{keyed.settings.identifier}"
    return Work(spark, name, keyed.settings, datetime.now(UTC))


def by_spark(work: Work) -> dict[Any, Any]:
    work.spark.sql(f"REFRESH TABLE {work.name}")
    return {row.id: row.value for row in work.spark.table(work.name).where("op <> 'D' OR op IS NULL").collect()}


def while_rewriting(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Does it once, when the new files of the first group are written and nothing is published."""
    write, left = Source.write, [act]

    def written(source: Source, group: Any, *, sort: bool) -> list[Any]:
        found = write(source, group, sort=sort)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(Source, "write", written)


def while_waiting(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    monkeypatch.setattr(compact, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: act()))


def pauses(table: Upserted) -> list[str]:
    return [item.key for item in table.keyed.folder.store.list(fold_pause.PAUSES)]


def test_deletes_beyond_the_budget_are_applied_and_folds_wait_for_it(
    table: Upserted, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.book = table.bookkeeper(Fold(files=3))
    held = list[int]()

    def beside() -> None:
        table.upsert(5)
        held.append(len(pauses(table)))

    while_rewriting(monkeypatch, beside)
    while_waiting(monkeypatch, lambda: table.upsert(6))
    maintain.fold(work, delete_files=3)
    assert held == [2] and pauses(table) == []  # its own and the compaction's
    assert table.shown() == table.wanted == by_spark(work)
    table.upsert(7)
    assert live(table.keyed, EQUALITY_DELETES) == [] and table.shown() == table.wanted


def test_without_a_pause_a_fold_between_costs_the_job_its_work_and_no_row(
    table: Upserted, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.book = table.bookkeeper(Fold(files=3))
    monkeypatch.setattr(duty.fold_pause, "paused", lambda store, now: False)
    while_rewriting(monkeypatch, lambda: table.upsert(5))
    while_waiting(monkeypatch, lambda: table.upsert(6))
    with pytest.raises(Retry, match="rejected"):
        maintain.fold(work, delete_files=3)
    assert table.shown() == table.wanted == by_spark(work)


def test_position_deletes_of_folds_are_merged_and_later_folds_go_on(
    table: Upserted, work: Work, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(9):
        table.upsert(key, key + 10)
    table.book = table.bookkeeper(Fold(files=3))
    for key in range(9):
        table.upsert(key)
    before = len(live(table.keyed, POSITION_DELETES))
    assert before > 5
    while_waiting(monkeypatch, lambda: table.upsert(19))
    maintain.fold(work)  # Iceberg's planner also takes files of which three in ten rows are deleted
    assert len(live(table.keyed, POSITION_DELETES)) < before, capsys.readouterr().out
    assert table.shown() == table.wanted == by_spark(work)
    for key in range(6):
        table.upsert(key + 10)
    assert table.shown() == table.wanted == by_spark(work) and len(live(table.keyed, EQUALITY_DELETES)) < 3


def test_folds_pause_while_iceberg_itself_rewrites(
    table: Upserted, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.book = table.bookkeeper(Fold(files=3))
    held, call = list[int](), Work.call

    def beside(job: Work, sql: str, **more: Any) -> Any:
        held.append(len(pauses(table)))
        return call(job, sql, **more)

    monkeypatch.setattr(Work, "call", beside)
    maintain.rewrite_data_files(work, call=True)
    assert held == [1] and pauses(table) == []
    assert table.shown() == table.wanted == by_spark(work)


@pytest.mark.parametrize("killed", ["written", "published", "committed"])
def test_a_job_that_ends_anywhere_changes_no_row_and_its_next_run_goes_on(
    table: Upserted, work: Work, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    def ends(*given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    table.book = table.bookkeeper(NOTHING_FITS)
    with monkeypatch.context() as broken:
        while_waiting(broken, lambda: table.upsert(6))
        if killed == "written":
            while_rewriting(broken, ends)
        elif killed == "published":
            broken.setattr(compact.Compaction, "_watch", ends)
        else:
            broken.setattr(Work, "call", ends)
        with pytest.raises(KeyboardInterrupt):
            maintain.fold(work, delete_files=3)
    table.upsert(7)
    assert table.shown() == table.wanted == by_spark(work)
    while_waiting(monkeypatch, lambda: table.upsert(8))
    maintain.fold(work, delete_files=1)
    assert table.shown() == table.wanted == by_spark(work)


def test_a_dry_run_changes_nothing_and_pauses_nothing(table: Upserted, work: Work) -> None:
    head = table.keyed.table().metadata.current_snapshot_id
    maintain.fold(Work(work.spark, work.name, work.table, work.now, dry_run=True))
    assert table.keyed.table().metadata.current_snapshot_id == head and pauses(table) == []
