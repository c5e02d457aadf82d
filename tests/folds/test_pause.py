"""Pauses of folds: a job that rewrites for long is waited for, within bounds, and a job that was killed is not."""

import os
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Fold
from bookkeeper.contract.fold_pause import LASTS, PAUSES, paused, pausing
from bookkeeper.errors import StorageUnavailable
from bookkeeper.folds import duty
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.stores.local import LocalStore
from bookkeeper.tick.tick import Bookkeeper
from tests.folds.test_duty import book_of, upserted
from tests.support.folds import live
from tests.support.keyed import Steps, keyed_lake
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path, check_files=False)


def pause(lake: Lake, at: datetime | None = None) -> None:
    """As a job does it, at this time of the storage's clock."""
    key, time = f"{PAUSES}job", (at or lake.clock.now).timestamp()
    lake.folder.store.replace(key, b"")
    os.utime(Path(lake.folder.store.url.removeprefix("file://")) / key, (time, time))


def due(lake: Lake, **fold: Any) -> Bookkeeper:
    """A bookkeeper with a fold that is due at its next tick."""
    book = book_of(lake, fold=Fold(files=2, **fold))
    upserted(lake, book, Steps(lake), 2)
    return book


def ticks(lake: Lake, book: Bookkeeper, seconds: Iterable[float], paused: bool) -> int:
    """Ticks after so many seconds each, of a job that goes on if `paused`; the files that are not folded then."""
    for step in seconds:
        if paused:
            pause(lake, lake.clock.now + timedelta(seconds=step))
        lake.tick(book, seconds=step)
    return len(live(lake, EQUALITY_DELETES))


def test_folds_wait_for_a_job_and_go_on_after_it(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bookkeeper")
    pause(lake)
    book = due(lake)
    assert ticks(lake, book, [60] * 5, paused=True) == 2
    assert [record.getMessage() for record in caplog.records if record.action == "fold"] == ["folds paused"]
    lake.folder.store.delete_many([f"{PAUSES}job"])
    assert ticks(lake, book, [11, 1], paused=False) == 0


def test_a_job_that_was_killed_is_not_waited_for(lake: Lake) -> None:
    pause(lake)
    book = due(lake)
    assert ticks(lake, book, [60], paused=False) == 2
    assert ticks(lake, book, [LASTS.total_seconds(), 3], paused=False) == 0


def test_no_job_is_waited_for_longer_than_the_table_allows(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    pause(lake)
    book = due(lake, pause_most=timedelta(minutes=10))
    assert ticks(lake, book, [60] * 9, paused=True) == 2
    assert ticks(lake, book, [60] * 3, paused=True) == 0
    assert [record.levelname for record in caplog.records if record.getMessage() == "folds go on"] == ["WARNING"]


def test_no_job_is_waited_for_while_too_many_deletes_are_live(lake: Lake) -> None:
    pause(lake)
    book = due(lake, pause_files=4)
    assert ticks(lake, book, [60] * 2, paused=True) == 2
    upserted(lake, book, Steps(lake, "k2"), 2)
    assert ticks(lake, book, [11, 3], paused=True) == 0


def test_a_fold_that_was_planned_when_a_job_began_is_dropped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = duty.plan_fold

    def begun_meanwhile(*given: Any) -> Any:
        computed = plan(*given)
        pause(lake)
        return computed

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(duty, "plan_fold", begun_meanwhile)
        book = due(lake)
        assert ticks(lake, book, [3, 3], paused=False) == 2 and book.duties.folds.plan is None
    assert ticks(lake, book, [LASTS.total_seconds(), 3], paused=False) == 0


def test_rows_come_in_and_folds_wait_a_minute_when_pauses_cannot_be_listed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(store: Any, now: datetime) -> bool:
        raise StorageUnavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(duty.fold_pause, "paused", fails)
        book = due(lake)
        upserted(lake, book, Steps(lake, "k2"), 1)
        assert len(live(lake, EQUALITY_DELETES)) == 3
    assert ticks(lake, book, [61, 1], paused=False) == 0


START = datetime.fromisoformat("2026-01-01T00:00:00Z")


class Ticking(LocalStore):
    """A store that counts how often a pause was written; `waited` is set after three times."""

    written = 0
    refuses = False

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.waited = threading.Event()

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        if self.refuses:
            raise StorageUnavailable("access denied")
        self.written += 1
        if self.written >= 3:
            self.waited.set()
        return super().replace(key, data, if_match)


def keys(store: LocalStore) -> list[str]:
    return [item.key for item in store.list(PAUSES)]


def test_a_pause_is_written_again_while_the_job_runs_and_goes_with_it(tmp_path: Path) -> None:
    store = Ticking(tmp_path)
    with pausing(store, "job-1", START, lasts=timedelta(milliseconds=60)) as allowed:
        assert allowed and keys(store) == [f"{PAUSES}job-1"]
        assert store.waited.wait(60)
    assert keys(store) == []
    with pytest.raises(ZeroDivisionError), pausing(store, "job-2", START):
        raise ZeroDivisionError
    assert keys(store) == []


def test_what_killed_jobs_left_is_deleted_by_a_later_one_but_not_what_may_go_on(tmp_path: Path) -> None:
    store = Ticking(tmp_path)
    store.replace(f"{PAUSES}left", b"")
    (left,) = store.list(PAUSES)
    with pausing(store, "job-1", left.modified + timedelta(minutes=59)):
        assert f"{PAUSES}left" in keys(store)
    with pausing(store, "job-2", left.modified + timedelta(minutes=61)):
        assert f"{PAUSES}left" not in keys(store)


def test_a_job_goes_on_where_it_may_not_pause_folds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Ticking(tmp_path)
    store.refuses = True
    with pausing(store, "job-1", START) as allowed:
        assert not allowed and not paused(store, START)
    assert [record.getMessage() for record in caplog.records] == ["folds are not paused"]
