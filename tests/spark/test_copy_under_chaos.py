"""
A copy that follows a keyed table while its writers, bookkeepers and folds crash and restart equals it in the end.

The stream has the options that `read_stream` sets. The job `spark_jobs.apply_changes` keeps the copy, and crashes, too.
"""

import os
from typing import Any

import pytest

from bookkeeper.ledger import merge
from spark_jobs import apply_changes
from tests.histories.keyed_world import KeyedWorld, keyed_table
from tests.spark.conftest import new_catalog, registered
from tests.spark.test_apply_changes import Copy

#: how often the job runs, and what programs that crash do before each
RUNS, ACTIONS = 3, 20


def test_a_copy_that_follows_programs_that_crash_equals_the_table_deletes_included(
    spark: Any, lake: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FAN", 4)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    queue = registered(keyed_table(tmp_path / "lake", "by key", catalog=new_catalog()), spark, lake)
    world, copy = KeyedWorld(queue, "by key", 1, alone=True), Copy(spark, queue, tmp_path, monkeypatch)
    copy.run()  # makes the copy
    crashes = [1]
    monkeypatch.setattr(apply_changes, "apply", crashing_after(apply_changes.apply, crashes))
    for turn in range(RUNS):
        for _ in range(ACTIONS):
            world.act()
        if turn == RUNS - 1:
            world.finish()
        if crashes:
            copy.run(exit_code=1)
        copy.run()
        assert copy.values() == {key: row[0] for key, row in world.expected().items()}
    copy.check(copy.values())
    assert not crashes and world.crashes.total() >= 3
    kinds = [op.kind for source in world.sources for op in source.ops[: max(source.done, source.read)]]
    assert kinds.count("delete") > 10 and {"delete", "append", "replace"} <= {*queue.operations()}


def crashing_after(apply: Any, crashes: list[int]) -> Any:
    """The merge of a micro-batch, after which the process ends as often as `crashes` has items."""

    def applied(*given: Any) -> None:
        apply(*given)
        if crashes:
            crashes.pop()
            raise RuntimeError("crashed after the merge")

    return applied
