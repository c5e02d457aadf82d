"""
Three bookkeepers without a lease, writers, an eager reaper, Spark's maintenance, schema changes and stream at once.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reaper import reap
from tests.races.all_at_once import Crowd, Streaming, bookkeeper, statements, writer
from tests.races.test_spark_between import SCHEMA, SPEC, WORK
from tests.support.races import SparkLake
from tests.support.wrapped import COMMIT, WrappedCatalog

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

BOOKS = ("bookkeeper 1", "bookkeeper 2", "bookkeeper 3")
#: longer by hand: RACE_SECONDS=600 pytest tests/races/test_spark_at_once.py
SECONDS = float(os.environ.get("RACE_SECONDS", "4"))


def all_programs(queue: SparkLake, checkpoint: Path, seconds: float) -> tuple[Crowd, list[str]]:
    """The crowd after so long, everything settled, and the keys that its writers published."""
    published: list[str] = []
    crowd = Crowd(queue)
    for name in ("w1", "w2", "p1", "p2"):
        crowd.joins(name, writer(queue, name, published, positions=name.startswith("p")), pause=0.1)
    for name in BOOKS:
        crowd.joins(name, bookkeeper(queue, max_txlogs=20), pause=0.2)
    crowd.joins("reaper", queue.reap, pause=0.5)
    crowd.joins("spark", statements(queue, [*WORK.values()]), pause=0.1)
    changes = [*SCHEMA.values(), *SPEC.values()]
    crowd.joins("spark changes", statements(queue, changes, again=False), pause=1.0)
    # Four attempts, Iceberg's default, are few in such a crowd, and Spark ends its stream after them.
    retries = "'commit.retry.num-retries'='100', 'commit.retry.max-wait-ms'='500'"
    queue.sql(f"ALTER TABLE {{table}} SET TBLPROPERTIES ({retries})")
    stream = Streaming(queue, checkpoint, rows_per_second=20)
    crowd.joins("spark stream", stream, pause=0.2)
    enough = {"spark": len(WORK), "spark changes": len(changes), "reaper": 3, **dict.fromkeys(BOOKS, 5)}
    with crowd.at_work():
        crowd.until(enough, seconds, also=stream.committed)
    stream.stop()
    queue.settle(30)
    queue.reap()
    return crowd, published


def test_all_programs_at_once_lose_and_double_nothing(queue: SparkLake, tmp_path: Path) -> None:
    crowd, published = all_programs(queue, tmp_path / "checkpoint", SECONDS)
    assert crowd.broken == []
    assert (queue.pending(), queue.rejected()) == ([], {})
    seen = queue.seen()
    ours = [key for key in seen if not key.startswith("spark-")]
    theirs = sorted(int(key.removeprefix("spark-")) for key in seen if key.startswith("spark-"))
    assert ours == sorted(published)
    assert theirs == list(range(len(theirs)))
    assert queue.wrong() == []
    assert theirs, "the stream never got a commit through"


def test_expiry_gets_through_on_a_table_that_commits_all_the_time(queue: SparkLake) -> None:
    """No livelock: on conflict the reaper guards the new head and tries again, within a bound of attempts."""
    crowd, published = Crowd(queue), list[str]()
    crowd.joins("w1", writer(queue, "w1", published, positions=True))
    crowd.joins("bookkeeper 1", bookkeeper(queue))
    counted = Counted(queue.catalog)
    with crowd.at_work():
        crowd.until({"bookkeeper 1": 10}, 0)
        expired = 0
        for _ in range(5):
            crowd.until({"bookkeeper 1": crowd.turns["bookkeeper 1"] + 3}, 0)
            before, counted.commits = crowd.turns["bookkeeper 1"], 0
            done = reap(counted, queue.settings, queue.clock.now)  # raises Retry when it does not get through
            expired += done.snapshots
            assert counted.commits <= ATTEMPTS, f"{crowd.turns['bookkeeper 1'] - before} ticks meanwhile"
    queue.settle()
    assert crowd.broken == []
    assert expired > 5
    assert queue.seen() == sorted(published)


#: of at most 100: each attempt takes a fraction of what a tick takes
ATTEMPTS = 20


class Counted(WrappedCatalog):
    """A catalog that counts the commits sent to it."""

    def __init__(self, catalog: Any) -> None:
        super().__init__(catalog, self._count)
        self.commits = 0

    def _count(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self.commits += name == COMMIT
        return act(*given, **named)
