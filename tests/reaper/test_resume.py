"""
A journal that a crash left, found by a later run.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.store import Store
from tests.reaper.test_races import journal, made, run
from tests.support.reaper_faults import Crash, Faults
from tests.support.reaper_lake import ReaperLake
from tests.support.wrapped import WrappedStore


@pytest.fixture
def old(tmp_path: Path) -> ReaperLake:
    """Five snapshots to expire, on a catalog that commits on whatever it finds then."""
    return made(ReaperLake(tmp_path, stock=True))


def test_gc_disabled_after_the_commit_deletes_nothing(old: ReaperLake) -> None:
    with pytest.raises(Crash):
        run(old, Faults().crash_after("commit_table"))
    old.properties(gc__enabled="false")
    before = old.disk().keys()
    assert not old.reap()
    assert old.disk().keys() == before
    assert journal(old) is None


def test_a_journal_is_finished_after_hours_of_other_commits(old: ReaperLake) -> None:
    old.properties(write__metadata__previous_versions_max="4")
    with pytest.raises(Crash):
        run(old, Faults().crash_after("commit_table"))
    for _ in range(14):
        old.append()
    assert old.reap().data_files == 1
    assert old.reachable() <= old.disk().keys()


def test_a_tag_lost_hours_ago_is_restored(old: ReaperLake) -> None:
    old.properties(write__metadata__previous_versions_max="4")
    target = old.history()[0]
    faults = Faults().crash_after("commit_table").before("commit_table", lambda: old.ref("late", target))
    with pytest.raises(Crash):
        run(old, faults)
    for _ in range(14):
        old.append()
    old.reap()
    assert old.rows(target) == [0]


def test_nothing_is_deleted_when_it_is_unknown_what_the_commit_replaced(
    old: ReaperLake, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Crash):
        run(old, Faults().crash_after("commit_table"))
    planned = [path for sizes in journal(old)["files"].values() for path in sizes]
    for entry in old.table().metadata.metadata_log:
        (old.folder_path.parent / "metadata" / entry.metadata_file.rpartition("/")[2]).unlink()
    with caplog.at_level(logging.WARNING, "reaper"):
        old.reap(now=old.now + timedelta(minutes=1))
    assert set(planned) <= old.disk().keys()
    assert [record.cause for record in caplog.records] == ["the metadata that the expiry replaced cannot be found"]


def test_a_file_that_does_not_go_stops_neither_expiry_nor_other_files(
    old: ReaperLake, caplog: pytest.LogCaptureFixture
) -> None:
    """It is locked, as by a legal hold: the orphan sweep tries again."""
    locked = old.live(old.table(), old.history()[1])[0].rpartition("/")[2]
    is_locked = [True]

    def opened(now: datetime) -> Callable[[str], Store]:
        def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
            if name == "delete_many" and is_locked and any(key.endswith(locked) for key in given[0]):
                raise StorageUnavailable("it is held")
            return act(*given, **named)

        return lambda url: WrappedStore(old.stores(now)(url), around)  # type: ignore[return-value]

    def run_at(now: datetime) -> Any:
        return old.reap(now=now, open_store=opened(now))

    with caplog.at_level(logging.WARNING, "reaper"):
        assert run_at(old.now + timedelta(hours=1)).snapshots == 5
    assert [(record.files, record.first.rpartition("/")[2]) for record in caplog.records] == [(1, locked)]
    assert journal(old) is None
    left = f"file://{old.location}/data/{locked}"
    assert left in old.disk().keys() - old.reachable()
    old.now += timedelta(days=9)
    old.append()
    for hours in (1, 3, 5):
        run_at(old.now + timedelta(hours=hours))
    assert left in old.disk()
    is_locked.clear()
    run_at(old.now + timedelta(hours=7))
    assert left not in old.disk()
