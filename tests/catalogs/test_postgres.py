"""Postgres through its driver: the connection breaks at COMMIT, before it arrives or before its reply does."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg2
import pytest
from sqlalchemy.exc import DBAPIError

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.errors import CommitUnknown, Retry
from bookkeeper.ledger.ledger import Ledger
from tests.servers.line import Fault, Line
from tests.servers.tcp import Wire, wire
from tests.support.catalog_chaos import Trial
from tests.support.catalog_lake import CatalogLake, Chain, Place

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


TOUCH = "UPDATE iceberg_tables SET table_namespace = table_namespace WHERE table_name = "


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_a_client_that_vanishes_between_update_and_commit_holds_up_the_others_for_seconds(
    postgres: Place, shared: bool
) -> None:
    """Frozen, or its network cut: the server hears nothing more, and ends its transaction."""
    lake = postgres.lake()
    Chain(lake, "w1").publish()
    vanished = _opened(postgres, timedelta(seconds=2), "vanished", shared).engine.connect()
    vanished.exec_driver_sql(f"{TOUCH}'{lake.settings.name}'")
    lake.tick(lake.book(catalog=_opened(postgres, timedelta(seconds=20), "others", shared)))
    assert (lake.keys(), lake.pending()) == (lake.published, [])
    with pytest.raises(DBAPIError):
        vanished.commit()
    vanished.invalidate()
    vanished.close()


def test_a_commit_that_gives_up_waiting_for_a_lock_leaves_no_backend_that_waits(postgres: Place) -> None:
    lake = postgres.lake()
    Chain(lake, "w1").publish()
    book = lake.book(catalog=_opened(postgres, timedelta(seconds=2), "gives-up"))
    with _foreign(postgres) as holder, holder.cursor() as cursor:
        cursor.execute(f"{TOUCH}'{lake.settings.name}'")
        with pytest.raises(Retry):
            lake.tick(book)
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gives-up' AND wait_event_type = 'Lock'"
        )
        assert cursor.fetchone() == (0,)
    lake.settle(book)
    assert (lake.missing(), lake.double(), lake.wrong()) == ([], [], [])


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_timeouts_that_the_uri_sets_stay(postgres: Place, shared: bool) -> None:
    catalog = _opened(postgres, timedelta(seconds=60), "own&options=-c%20lock_timeout%3D7s", shared)
    names = ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout")
    with catalog.engine.connect() as connection:
        shown = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]
    assert shown == ["7s", "30s", "1min"]


def _opened(postgres: Place, patience: timedelta, name: str, shared: bool = False) -> Any:
    uri = f"{postgres.settings.properties['uri']}?application_name={name}"
    settings = replace(postgres.settings, properties={**postgres.settings.properties, "uri": uri})
    postgres.opened.append(open_catalog(settings, patience=patience, shared=shared))
    return postgres.opened[-1]


@contextmanager
def _foreign(postgres: Place) -> Iterator[Any]:
    """A session of another program, which bounds nothing."""
    connection = psycopg2.connect(postgres.settings.properties["uri"].replace("+psycopg2", ""))
    try:
        yield connection
    finally:
        connection.close()


def _through(postgres: Place, between: Wire) -> Any:
    assert postgres.server is not None
    uri = postgres.settings.properties["uri"].replace(f":{postgres.server.port}/", f":{between.port}/")
    settings = replace(postgres.settings, properties={**postgres.settings.properties, "uri": uri})
    postgres.opened.append(open_catalog(settings))
    return postgres.opened[-1]
