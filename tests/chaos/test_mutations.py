"""Tests of the tests: each rule of the protocol, broken on purpose, makes the table red."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import broken, kills
from tests.chaos.crashes import crash_at, on_stage
from tests.chaos.pool import run_all
from tests.chaos.scenes.folding import FoldingAmongOthers
from tests.chaos.scenes.reaping import Reaping
from tests.chaos.scenes.rewriting import AcceptingRollbackOfRewrites, RewritingAmongOthers
from tests.chaos.scenes.scene import Scene
from tests.chaos.scenes.ticking import Ticking
from tests.chaos.scenes.writing import Writing
from tests.chaos.storage import disturb_at
from tests.chaos.tally import Budget, Tally
from tests.support.enumerated import Point, crash_points, error_points, recorded
from tests.support.faults import AFTER, BEFORE


def crash(made: type[Scene], when: str, part: str) -> Tally:
    """Crashes of a scene at operations with `part` in their names."""
    return _tried(made, crash_at, crash_points, when, part)


def disturb(made: type[Scene], when: str, part: str) -> Tally:
    """Errors of a scene at operations with `part` in their names."""
    return _tried(made, disturb_at, error_points, when, part)


def _tried(made: type[Scene], trial: Callable[[Scene, Point], Tally], points: Any, when: str, part: str) -> Tally:
    done = Tally()
    try:
        with on_stage(made) as scene:
            found = points(recorded(scene.act))
            for point in [item for item in found if item.when == when and part in item.operation]:
                done += trial(scene, point)
    except Exception as error:  # noqa: BLE001 - what is broken may also break off
        done += Tally(1, wrong=[repr(error)])
    return done


#: what is put where, and the few points at which that must be seen; the last is what must be seen
BROKEN = {
    "marks in a commit after that of the files": (
        "tests.support.lake.Ledger", broken.MarksApart, crash, Ticking, AFTER, "commit_table", "double",
    ),
    "marks in a commit before that of the files": (
        "tests.support.lake.Ledger", broken.MarksFirst, crash, Ticking, AFTER, "commit_table", "missing",
    ),
    "no second look after an unknown outcome": (
        "tests.support.lake.Ledger", broken.DeafLedger, disturb, Ticking, AFTER, "commit_table", "double",
    ),
    "an unknown outcome taken for success": (
        "tests.support.lake.Ledger", broken.TrustingLedger, disturb, Ticking, BEFORE, "commit_table", "missing",
    ),
    "delete before the commit": (
        "tests.support.lake.Bookkeeper", broken.HastyBookkeeper, crash, Ticking, BEFORE, "commit_table", "missing",
    ),
    "the compare-and-swap before its files are durable": (
        "tests.support.lake.Ledger", broken.SwapFirst, crash, Ticking, AFTER, "commit_table", "wrong",
    ),
    "holes are not recorded": (
        "bookkeeper.core.marks.Mark.advanced", broken.holes_forgotten, crash, Ticking, AFTER, "commit_table", "wrong",
    ),
    "positions are not compared": (
        "bookkeeper.tick.plan._Planner._check_position", broken.any_position, crash, Ticking, AFTER, "commit_table",
        "double",
    ),
    "out of pending/ before it is in rejected/": (
        "tests.support.lake.Folder", broken.CarelessFolder, crash, Ticking, AFTER, "delete folder/pending/bad.",
        "wrong",
    ),
    "a txlog before its data files are durable": (
        "writers.files.unpublished.UnpublishedFiles._upload", broken.uploaded_late, crash, Writing, AFTER,
        "create folder/pending/source.", "wrong",
    ),
    "new files of a rejected rewrite are deleted": (
        "bookkeeper.core.pending_rewrites.reject", broken.new_files_deleted, crash, RewritingAmongOthers, AFTER,
        "commit_table", "wrong",
    ),
    "pending rewrites outlive accept-rollback": (
        "bookkeeper.core.pending_rewrites.withdraw", broken.nothing_withdrawn, crash, AcceptingRollbackOfRewrites,
        AFTER, "commit_table", "wrong",
    ),
    "a fold is committed over a rewrite": (
        "bookkeeper.ledger.fold_commit._planned", broken.nothing_examined, disturb, FoldingAmongOthers, AFTER,
        "commit_table", "double",
    ),
    "the reaper deletes without a second look": (
        "reaper.run.verify_journal", broken.no_second_look, crash, Reaping, BEFORE, "commit_table", "wrong",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_makes_the_table_red(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    where, what, tried, made, when, part, seen = BROKEN[rule]
    whole = tried(made, when, part)
    assert whole.points > 0 and not whole.red, whole.wrong
    monkeypatch.setattr(where, what)
    done = tried(made, when, part)
    assert done.red
    assert getattr(done, seen), done


def test_deleting_before_the_commit_is_seen_when_processes_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken.HastyBookkeeper, "pause_seconds", 0.1)
    monkeypatch.setattr("bookkeeper.serve.open.Bookkeeper", broken.HastyBookkeeper)
    (result,) = run_all(kills.CLASSES[:1], 1, Budget(seconds=2), cores=1, limit_seconds=120)
    assert result.tally.missing > 0
