"""
Several committers on one table: bookkeepers that interrupt each other, and a crowd with Spark in it.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from bookkeeper.config.settings import Settings
from tests.chaos.account import account
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.races.test_spark_at_once import all_programs
from tests.servers import Unavailable, scratch, spark
from tests.support.races import SparkLake
from tests.tick.test_leases import Workload

ROUNDS = 20


def interrupted(lease: bool, root: Path, seed: int) -> Tally:
    """
    Three bookkeepers and three sources; one acts in the middle of another's tick, each round.
    """
    work = Workload(root, seed, lease)
    work.run(ROUNDS)
    done = account(work.expected, work.lake.keys(), points=ROUNDS, where=f"seed {seed}")
    left = [*work.lake.pending(), *work.lake.rejected()]
    return done + Tally(wrong=[f"seed {seed}: left behind {left[:3]}"] if left else [])


def _rounds(act: Callable[[Path, int], Tally], seed: int, budget: Budget) -> Tally:
    until, done, number = monotonic() + budget.seconds, Tally(), 0
    while not number or monotonic() < until:
        with TemporaryDirectory(prefix="bookkeeper-chaos-", dir=scratch()) as root:
            done += act(Path(root) / "lake", seed + number)
        number += 1
    return done


def crowded(seed: int, budget: Budget) -> Tally:
    """
    Bookkeepers, writers, an eager reaper, Spark's maintenance and a Spark stream, all at once, for as long as there is.
    """
    from spark_jobs import session

    try:
        spark.ready(os.environ)
    except Unavailable as exc:
        return Tally(skipped=str(exc))
    with TemporaryDirectory(prefix="bookkeeper-chaos-", dir=scratch()) as root:
        queue = SparkLake(Path(root), "crowd")
        queue.spark = session.build(Settings(catalog=queue.catalog_settings), app="chaos")
        try:
            crowd, published = all_programs(queue, Path(root) / "checkpoint", budget.seconds)
            keys = [key for key in queue.seen() if not key.startswith("spark-")]
            done = account(published, keys, points=sum(crowd.turns.values()), where="crowd")
            return done + Tally(wrong=[*crowd.broken, *queue.pending(), *queue.rejected(), *queue.wrong()][:20])
        finally:
            queue.spark.stop()


CLASSES = (
    FaultClass(
        "race: three bookkeepers in each other's ticks, no lease", partial(_rounds, partial(interrupted, False))
    ),
    FaultClass("race: three bookkeepers in each other's ticks, lease", partial(_rounds, partial(interrupted, True))),
    FaultClass("race: bookkeepers, reaper and Spark at once", crowded, weight=2),
)
