"""
Random histories of keyed tables, with commits by Spark between: each state that there was is the replay, read by Spark.

`UPSERT_CHECKS=300` draws histories until so many states are compared, and prints what was done.
"""

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from bookkeeper.ledger import merge
from tests.histories.keyed_readers import Readers, by_java, table_of
from tests.histories.keyed_world import LAYOUTS, KeyedWorld, history, keyed_table
from tests.support.lake import Clock

#: states to be compared, and actions of each history
CHECKS, ACTIONS = int(os.environ.get("UPSERT_CHECKS", "12")), 30
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "format-version": "2"}


class BehindClock(Clock):
    """A clock that is never ahead of this machine's, by which Spark stamps its commits."""

    def move(self, **span: float) -> datetime:
        self.now = max(self.now, min(self.now + timedelta(**span), datetime.now(UTC)))
        return self.now


def worlds(spark: Any, root: Any, readers: Readers) -> Iterator[KeyedWorld]:
    """Histories without end, each on a table of its own in the session's catalog."""
    seed = 0
    while True:
        for layout in LAYOUTS:
            lake = keyed_table(root, layout, f"queue.u{uuid.uuid4().hex[:8]}", BehindClock())
            with lake.table().transaction() as change:
                change.set_properties(MERGE_ON_READ)
            yield KeyedWorld(lake, layout, seed, read=readers, java=partial(by_java, spark))
        seed += 1


def test_each_state_of_a_keyed_table_is_the_replay_of_its_writers_operations(
    spark: Any, lake: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(merge, "FAN", 4)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    readers, done = Readers(), list[KeyedWorld]()
    for world in worlds(spark, lake.config.parent, readers):
        done.append(history(world, ACTIONS))
        if sum(item.checks for item in done) >= CHECKS:
            break
    readers.by_spark(spark)
    each = {name: readers.read[name] for name in ("Spark", "DuckDB", "iceberg-rust")}
    assert {*each.values()} == {sum(world.checks for world in done)} and min(each.values()) >= CHECKS
    if "UPSERT_CHECKS" in os.environ:
        with capsys.disabled():
            print("", *table_of(done, readers), sep="\n")
