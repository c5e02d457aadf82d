"""`bookkeeper fold` as a function: what it reports, and what it does when the table changes meanwhile."""

import os
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands import fold as command
from bookkeeper.commands.fold import ATTEMPTS, Folded
from bookkeeper.config.settings import Fold
from bookkeeper.errors import FoldOutdated
from bookkeeper.folds.budget import Budget
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from bookkeeper.ledger.marks_publisher import MarksPublisher
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


def folded(lake: Lake, dry_run: bool = False, budget: Budget | None = None) -> Folded:
    ledger = lake.book().ledger
    publisher = MarksPublisher(ledger, lake.folder)
    return command.fold(ledger, lake.folder, publisher, lake.clock.now, os.urandom, dry_run, budget)


def test_it_says_what_it_did_and_publishes_the_marks(lake: Lake) -> None:
    before, done = state(lake), folded(lake)
    head = lake.table().metadata.current_snapshot_id
    assert done == Folded("folded", 1, 0, "", 2, 2, 1, head) and state(lake) == before
    copy = lake.folder.marks()
    assert copy is not None and copy.marks.snapshot == head
    assert folded(lake).outcome == "nothing to fold"


def test_a_dry_run_writes_nothing(lake: Lake) -> None:
    files, head = sorted(Path(lake.root).rglob("*")), lake.table().metadata.current_snapshot_id
    done = folded(lake, dry_run=True)
    assert (done.outcome, done.deletes, done.data_files) == ("dry run", 1, 2)
    assert sorted(Path(lake.root).rglob("*")) == files and lake.table().metadata.current_snapshot_id == head


@pytest.mark.parametrize("fold", [Fold(max_keys=1), Fold(max_files=1), Fold(max_bytes=1), Fold(max_rows=3)])
def test_it_takes_no_more_than_the_table_allows(lake: Lake, fold: Fold) -> None:
    done = folded(lake, budget=Budget.of(fold))
    assert (done.outcome, done.left) == ("nothing to fold", 1) and "more than a fold takes" in done.why
    assert len(live(lake, EQUALITY_DELETES)) == 1


def test_the_keys_of_a_fold_take_no_more_memory_than_the_table_allows(lake: Lake) -> None:
    assert Budget.of(Fold(max_key_bytes=2**20)).deleted_bytes == 2**20
    assert Budget.of(Fold()) == Budget()


def between(lake: Lake, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """An older row comes between plan and commit, so many times."""
    plan, left = command.plan_fold, [times]

    def disturbed(*given: Any) -> Any:
        computed = plan(*given)
        if left[0]:
            left[0] -= 1
            put(lake, data(lake, rows(2, 9), number=1))
        return computed

    monkeypatch.setattr(command, "plan_fold", disturbed)


def test_a_plan_that_the_table_has_outrun_is_made_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    between(lake, monkeypatch, 1)
    assert folded(lake).outcome == "folded"
    assert sorted(row[0] for row in state(lake)) == [1, 3, 9]
    assert live(lake, EQUALITY_DELETES) == [] and len(live(lake, POSITION_DELETES)) == 2


def test_it_gives_up_after_some_attempts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    between(lake, monkeypatch, ATTEMPTS)
    with pytest.raises(FoldOutdated):
        folded(lake)
    assert len(live(lake, EQUALITY_DELETES)) == 1
