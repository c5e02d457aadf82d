"""Postgres through its driver: the connection breaks at COMMIT, before it arrives or before its reply does."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.core.catalog import open_catalog
from bookkeeper.core.errors import CommitUnknown
from bookkeeper.ledger.ledger import Ledger
from tests.catalogs.chaos import Trial
from tests.catalogs.lake import CatalogLake, Place
from tests.servers.line import Fault, Line
from tests.servers.tcp import Wire, wire

BROKEN = (Fault.REQUEST_LOST, Fault.REPLY_LOST)


@pytest.fixture
def between(postgres: Place) -> Iterator[Wire]:
    """A proxy before Postgres."""
    assert postgres.server is not None
    with wire(postgres.server.port) as made:
        yield made


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name.lower())
def test_a_connection_that_breaks_at_commit_leaves_an_unknown_outcome(
    postgres: Place, between: Wire, fault: Fault
) -> None:
    lake = postgres.lake()
    ledger = Ledger(_through(postgres, between), lake.settings.identifier, lake.clock)
    seen = ledger.load(lake.folder.card().folder)
    between.line = Line(fault, most=1)
    with pytest.raises(CommitUnknown):
        ledger.record(seen, seen.marks, "broken")
    assert lake.operations() == (["replace"] if fault is Fault.REPLY_LOST else [])
    again = ledger.load(lake.folder.card().folder)
    assert ledger.record(again, again.marks, "mended").marks.snapshot is not None


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name.lower())
def test_no_row_is_lost_or_doubled_when_connections_break_at_commit(
    postgres: Place, between: Wire, fault: Fault
) -> None:
    trial = Trial(postgres.lake(), random.Random(1))
    catalog = _through(postgres, between)
    trial.open_book = lambda lake, **ways: CatalogLake.book(lake, **{**ways, "catalog": catalog})
    for every in (1, 2):
        between.line = Line(fault, every, most=6)
        trial.commits(Fault.NONE, 1)
        assert between.line.injected > 0
    assert (trial.lake.missing(), trial.lake.double(), trial.lake.wrong()) == ([], [], [])


def test_many_tables_of_a_daemon_share_a_few_connections(postgres: Place) -> None:
    uri = f"{postgres.settings.properties['uri']}?application_name=daemon"
    settings = replace(postgres.settings, properties={**postgres.settings.properties, "uri": uri})
    opened = [open_catalog(settings, shared=True) for _ in range(20)]
    postgres.opened += opened
    for catalog in opened:
        catalog.list_namespaces()
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'daemon'"
    with opened[0].engine.connect() as connection:  # type: ignore[attr-defined]
        assert connection.exec_driver_sql(count).scalar() == 1


def _through(postgres: Place, between: Wire) -> Any:
    assert postgres.server is not None
    uri = postgres.settings.properties["uri"].replace(f":{postgres.server.port}/", f":{between.port}/")
    settings = replace(postgres.settings, properties={**postgres.settings.properties, "uri": uri})
    postgres.opened.append(open_catalog(settings))
    return postgres.opened[-1]
