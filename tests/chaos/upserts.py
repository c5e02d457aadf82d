"""
Random histories of keyed tables, in which every program crashes: the rows are the replay of what the writers did.

The rows are those by the spec's rule, DuckDB's, iceberg-rust's and, where it reads the table, pyiceberg's. With Spark:
`tests/spark/test_upsert_histories.py`.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bookkeeper.ledger import merge
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.histories.keyed_readers import Readers
from tests.histories.keyed_world import LAYOUTS, KeyedWorld, history, keyed_table
from tests.servers import scratch


def histories(seed: int, budget: Budget) -> Tally:
    """
    Histories until time is up, one of each layout at least.
    """
    until, done, readers = time.monotonic() + budget.seconds, Tally(), Readers()
    fan, merge.FAN = merge.FAN, 4
    try:
        while done.rounds < len(LAYOUTS) or time.monotonic() < until:
            layout, number = list(LAYOUTS)[done.rounds % len(LAYOUTS)], seed + done.rounds
            with TemporaryDirectory(prefix="bookkeeper-chaos-", dir=scratch()) as root:
                done += one(KeyedWorld(keyed_table(Path(root), layout), layout, number, number % 2 == 1, read=readers))
    finally:
        merge.FAN = fan
    return done + Tally(note=", ".join(f"{reader} {count}" for reader, count in sorted(readers.read.items())))


def one(world: KeyedWorld) -> Tally:
    """
    One history; a row that is not the replay's makes it red.
    """
    wrong = list[str]()
    try:
        history(world)
    except AssertionError as error:
        wrong.append(f"{world.layout}, seed {world.seed}: {str(error)[:300]}")
    published = sum(source.done or len(source.settled) for source in world.sources)
    return Tally(max(1, world.crashes.total()), 1, published, wrong=wrong)


CLASSES = (FaultClass("upserts: histories against a replay", histories),)
