"""A server that takes a request and never answers, or is gone without a word: given up, then tried again."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.deadline import within
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import CatalogUnavailable, Retry
from tests.servers.line import Fault, Line
from tests.support.catalog_lake import Chain, Place
from tests.support.faults import Faults, FaultyCatalog

SHORT = timedelta(seconds=0.2)
#: of calls that are answered: a machine that is busy takes its time
LONG = timedelta(minutes=2)
#: where one of several calls is not answered, and is waited for
ONCE = timedelta(seconds=5)


def test_a_commit_that_a_rest_catalog_never_answers_is_given_up_and_found_in_the_table(rest: Place) -> None:
    lake = rest.lake()
    Chain(lake, "w1").publish()
    line = Line(Fault.UNANSWERED, most=1)
    rest.over(line)
    turn = lake.tick(lake.book(catalog=open_catalog(_behind_proxy(rest), patience=ONCE)))
    assert line.injected == 1 and turn.waiting == 0
    assert lake.operations() == ["append"] and lake.keys() == lake.published


def test_a_load_that_a_rest_catalog_never_answers_is_given_up(rest: Place) -> None:
    lake, line = rest.lake(), Line(Fault.UNANSWERED, every=2, most=1)
    rest.over(line, all_requests=True)
    catalog = open_catalog(_behind_proxy(rest), patience=ONCE)
    with pytest.raises(CatalogUnavailable, match=r"timed out|no answer within"):
        load_table(catalog, lake.settings.identifier)
    assert load_table(catalog, lake.settings.identifier).current_snapshot() is None


def test_a_postgres_host_that_is_gone_is_noticed_within_a_minute_or_so(postgres: Place) -> None:
    asked = _libpq(postgres.settings)
    assert asked["connect_timeout"] == "60" and asked["tcp_user_timeout"] == "60000"
    assert int(asked["keepalives_idle"]) + 3 * int(asked["keepalives_interval"]) == 60


def test_what_the_uri_says_of_deadlines_stays(postgres: Place) -> None:
    named = {**postgres.settings.properties, "uri": postgres.settings.properties["uri"] + "?connect_timeout=7"}
    assert _libpq(replace(postgres.settings, properties=named))["connect_timeout"] == "7"


def _behind_proxy(rest: Place) -> Catalog:
    assert rest.proxy is not None
    return replace(rest.settings, properties={**rest.settings.properties, "uri": rest.proxy.uri})


def _libpq(settings: Catalog) -> dict[str, str]:
    catalog: Any = open_catalog(settings)
    with catalog.engine.connect() as connection:
        parameters: dict[str, str] = connection.connection.dbapi_connection.get_dsn_parameters()
    catalog.close()
    return parameters


@pytest.fixture(params=["postgres", "rest"])
def served(request: pytest.FixtureRequest) -> Place:
    """Each kind that has a server."""
    made: Place = request.getfixturevalue(request.param)
    return made


@contextmanager
def impatient(catalog: Any) -> Iterator[None]:
    """For calls that are not answered; those before and after may take long on a machine that is busy."""
    before = catalog._bookkeeper_patience
    catalog._bookkeeper_patience = SHORT
    yield
    catalog._bookkeeper_patience = before


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="finds the children of a process in /proc")


@needs_proc
def test_a_frozen_server_does_not_hang_the_tick_and_is_waited_for(served: Place) -> None:
    """Its kernel still acknowledges every packet, so neither TCP nor keepalives notice."""
    lake = served.lake()
    chain = Chain(lake, "w1")
    catalog: Any = open_catalog(served.settings, patience=LONG)
    book = lake.book(catalog=catalog)
    chain.publish()
    assert lake.tick(book).commit is not None
    chain.publish()
    assert served.server is not None
    with served.server.frozen(), impatient(catalog):
        for _ in range(2):
            with pytest.raises(Retry):
                lake.tick(book, seconds=11)
    lake.settle(book)
    lake.settle(lake.book())
    assert (lake.missing(), lake.double(), lake.pending(), lake.wrong()) == ([], [], [], [])


@needs_proc
def test_a_server_that_freezes_at_the_commit_leaves_an_unknown_outcome_and_no_row_twice(served: Place) -> None:
    lake = served.lake()
    Chain(lake, "w1").publish()
    assert served.server is not None
    faults, frozen = Faults(), ExitStack()
    faults.between("commit_table", lambda: frozen.enter_context(served.server.frozen()))  # type: ignore[union-attr]
    book = lake.book(catalog=FaultyCatalog(open_catalog(served.settings, patience=ONCE), faults))
    with frozen, pytest.raises(Retry):
        lake.tick(book)
    lake.settle(book)
    lake.settle(lake.book())
    assert (lake.missing(), lake.double(), lake.pending(), lake.wrong()) == ([], [], [], [])


@needs_proc
def test_opening_a_catalog_whose_server_is_frozen_is_given_up(served: Place) -> None:
    assert served.server is not None
    with served.server.frozen(), pytest.raises(CatalogUnavailable, match=r"within 0\.2 s|timed out|timeout"):
        open_catalog(served.settings, patience=SHORT)
    open_catalog(served.settings).list_namespaces()


def test_what_a_bounded_call_raises_comes_back_as_it_is() -> None:
    with pytest.raises(KeyError, match="this"):
        within(LONG, lambda: {}["this"])
    assert within(LONG, lambda: 42) == 42
