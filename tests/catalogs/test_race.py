"""Two bookkeepers on one table with no lease: each loses races, no row is lost or doubled."""

from tests.support.catalog_chaos import race
from tests.support.catalog_lake import Place

COMMITS = 50


def test_two_bookkeepers_race_for_fifty_commits_and_no_row_is_lost_or_doubled(where: Place) -> None:
    lake = where.lake(max_txlogs=1)
    refused = race(lake, COMMITS)
    assert (lake.missing(), lake.double(), lake.pending(), lake.wrong()) == ([], [], [], [])
    assert lake.operations().count("append") == COMMITS
    assert refused > 0, "the two never met"
