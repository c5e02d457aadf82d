"""A fold stopped before, in and after each write and its commit: the state stays, and the next fold ends it."""

import os
from pathlib import Path

from bookkeeper.folds.fold import plan_fold
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.ledger.fold_commit import commit_fold
from tests.support.enumerated import crash_points, crashed, error_points, recorded
from tests.support.faults import Faults
from tests.support.folds import data, fold, keys, lake_of, live, positions, put, state
from tests.support.lake import Lake


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": number, "name": "x"} for number in ids]


def table(root: Path) -> Lake:
    """Three files: one that loses a row more, one that goes, and one that stays."""
    lake = lake_of(root)
    first = data(lake, rows(1, 2, 3))
    put(lake, first, data(lake, rows(4, 5)), data(lake, rows(6)))
    put(lake, positions(lake, {first.path: [0]}))
    put(lake, keys(lake, rows(2, 4, 5)))
    return lake


def folded(lake: Lake, faults: Faults) -> None:
    """One fold by a process whose every operation `faults` see."""
    book = lake.book(faults)
    folder = lake.folder.card().folder
    computed = plan_fold(book.ledger, book.ledger.load(folder), lake.clock.now, os.urandom(10))
    assert computed.plan is not None
    commit_fold(book.ledger, book.ledger.load(folder), computed.plan)


def test_a_crash_at_any_operation_costs_no_row_and_the_next_fold_ends_it(tmp_path: Path) -> None:
    lake = table(tmp_path)
    saved, before = lake.saved(), state(lake)
    points = list(crash_points(recorded(lambda faults: folded(lake, faults))))
    assert state(lake) == before and len(points) >= 12
    uploads = [point for point in points if "deletes.parquet" in point.operation]
    commits = [point for point in points if "commit" in point.operation]
    assert uploads and commits
    for point in points:
        saved.restore()
        assert crashed(lambda faults: folded(lake, faults), point), str(point)
        assert state(lake) == before, str(point)
        fold(lake)
        assert state(lake) == before and live(lake, EQUALITY_DELETES) == [], str(point)


def test_an_error_at_any_operation_costs_no_row(tmp_path: Path) -> None:
    lake = table(tmp_path)
    saved, before = lake.saved(), state(lake)
    for point in error_points(recorded(lambda faults: folded(lake, faults))):
        saved.restore()
        try:
            folded(lake, Faults().at(point.number, point.when, OSError))
        except Exception:  # noqa: BLE001 - what it raises is the caller's
            assert state(lake) == before, str(point)
        fold(lake)
        assert state(lake) == before and live(lake, EQUALITY_DELETES) == [], str(point)
