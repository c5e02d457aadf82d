"""
Three bookkeepers without a lease, writers, an eager reaper, Spark's maintenance, schema changes and stream at once.
"""

import os
from pathlib import Path

import pytest

from tests.races.crowd import Crowd, bookkeeper, statements, stream, writer
from tests.races.kit import SparkLake
from tests.races.test_spark_between import SCHEMA, SPEC, WORK

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

BOOKS = ("bookkeeper 1", "bookkeeper 2", "bookkeeper 3")
#: longer by hand: RACE_SECONDS=600 pytest tests/races/test_spark_at_once.py
SECONDS = float(os.environ.get("RACE_SECONDS", "10"))


def test_everybody_at_once_loses_and_doubles_nothing(queue: SparkLake, tmp_path: Path) -> None:
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
    queue.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('commit.retry.num-retries'='100', 'commit.retry.max-wait-ms'='500')"
    )
    started = stream(queue, tmp_path / "checkpoint", rows_per_second=20)
    with crowd.at_work():
        crowd.until(
            {"spark": len(WORK), "spark changes": len(changes), "reaper": 3, **dict.fromkeys(BOOKS, 5)}, SECONDS
        )
    survived = started.isActive
    started.stop()
    queue.settle(30)
    queue.reap()

    assert crowd.broken == []
    assert survived, started.exception()
    assert (queue.pending(), queue.rejected()) == ([], {})
    seen = queue.seen()
    ours = [key for key in seen if not key.startswith("spark-")]
    theirs = sorted(int(key.removeprefix("spark-")) for key in seen if key.startswith("spark-"))
    assert ours == sorted(published)
    assert theirs == list(range(len(theirs)))
    assert queue.wrong() == []
    assert theirs, "the stream never got a commit through"
