"""A run of the reaper, whatever happens to any of its requests to the catalog: each k-th of them."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from bookkeeper.config.settings import Reaper
from bookkeeper.errors import Retry
from bookkeeper.stores.store import Store
from reaper.expiry import journal
from reaper.result import Reaped
from reaper.run import reap
from tests.servers.line import Fault, Line
from tests.support.catalog_chaos import COMMIT, FAULTS, REQUEST
from tests.support.catalog_lake import CatalogLake, Chain, Place
from tests.support.compactor import live, published
from tests.support.lake import Lake

#: a server of Iceberg takes no snapshot that is a minute ahead of its own clock: the test's moves by seconds
EAGER = Reaper(older_than=timedelta(milliseconds=1), retain_last=1)


@pytest.mark.parametrize("where", ["sqlite", "rest", "storage"], indirect=True)
@pytest.mark.parametrize(
    "what, fault",
    [(what, fault) for what in (REQUEST, COMMIT) for fault in FAULTS[what]],
    ids=lambda item: item if isinstance(item, str) else item.name.lower(),
)
def test_whatever_happens_to_a_request_no_row_is_lost_and_the_next_run_ends_it(
    where: Place, what: str, fault: Fault
) -> None:
    lake = where.lake(reaper=EAGER)
    store = partial(Lake.store, lake)  # whose clock is the test's
    book, chain, rival = Lake.book(lake, store=store), Chain(lake, "w"), Chain(lake, "rival")
    number = deleted = 0

    def overtake() -> None:
        rival.publish()
        lake.attempt(Lake.book(lake, store=store))

    while True:
        number += 1
        for _ in range(2):
            chain.publish()
            lake.settle(book)
        published(lake, live(lake)[-2:])
        lake.attempt(book := Lake.book(lake, store=store))
        lake.clock.move(milliseconds=100)
        line = Line(fault, every=number, most=1, meanwhile=overtake)
        catalog = where.over(line, all_requests=what == REQUEST)
        with suppress(Retry):
            deleted += _reaped(lake, catalog, store).data_files
        where.over(Line())
        _read_every_snapshot(lake)
        lake.clock.move(milliseconds=100)
        deleted += _reaped(lake, where.near, store).data_files
        line.flush()
        _read_every_snapshot(lake)
        assert lake.wrong() == [] and (lake.missing(), lake.double()) == ([], []), number
        assert journal.read(lake.folder.store) is None, number
        assert len(lake.table().metadata.snapshots) <= 2, number
        if not line.injected:
            break
    assert number > (3 if what == REQUEST else 1) and deleted >= number


def _read_every_snapshot(lake: CatalogLake) -> None:
    table = lake.table()
    for snapshot in table.metadata.snapshots:
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def _reaped(lake: CatalogLake, catalog: Any, store: Callable[[str], Store]) -> Reaped:
    return reap(catalog, lake.settings, lake.clock.now, open_store=store, release_brake=True)
