"""Two bookkeepers on one table with no lease: each loses races, no row is lost or doubled."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from bookkeeper.core.errors import Retry
from tests.catalogs.lake import CatalogLake, Chain, Place

COMMITS = 50


def test_two_bookkeepers_race_for_fifty_commits_and_no_row_is_lost_or_doubled(where: Place) -> None:
    lake = where.lake(max_txlogs=1)
    chains = [Chain(lake, "w1"), Chain(lake, "w2", positions=True)]
    for number in range(COMMITS):
        chains[number % 2].publish()
    start = Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        counts = [running.result() for running in [pool.submit(_race, lake, start) for _ in range(2)]]
    total = sum(counts, Counter())
    assert (lake.missing(), lake.double(), lake.pending(), lake.wrong()) == ([], [], [], [])
    assert lake.operations().count("append") == COMMITS
    assert total["commits"] <= COMMITS  # one whose answer was lost is found in the table, not reported
    assert total["ticks"] > COMMITS, "the two never met"


def _race(lake: CatalogLake, start: Barrier) -> Counter[str]:
    book, counts = lake.book(catalog=lake.where.open()), Counter[str]()
    start.wait()
    while lake.pending() and counts["ticks"] < 40 * COMMITS:
        counts["ticks"] += 1
        try:
            counts["commits"] += book.tick(lake.clock.now).commit is not None
        except Retry:
            counts["retries"] += 1
    return counts
