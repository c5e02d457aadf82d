"""A server that takes a request and never answers, or is gone without a word: given up, then tried again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bookkeeper.core.catalog import load_table, open_catalog
from bookkeeper.core.errors import CatalogUnavailable
from bookkeeper.core.settings import Catalog
from tests.catalogs.lake import Chain, Place
from tests.servers.line import Fault, Line

SHORT = timedelta(seconds=0.2)


def test_a_commit_that_a_rest_catalog_never_answers_is_given_up_and_found_in_the_table(rest: Place) -> None:
    lake = rest.lake()
    Chain(lake, "w1").publish()
    line = Line(Fault.UNANSWERED, most=1)
    rest.over(line)
    turn = lake.tick(lake.book(catalog=open_catalog(_behind_proxy(rest), patience=SHORT)))
    assert line.injected == 1 and turn.waiting == 0
    assert lake.operations() == ["append"] and lake.keys() == lake.published


def test_a_load_that_a_rest_catalog_never_answers_is_given_up(rest: Place) -> None:
    lake, line = rest.lake(), Line(Fault.UNANSWERED, every=2, most=1)
    rest.over(line, all_requests=True)
    catalog = open_catalog(_behind_proxy(rest), patience=SHORT)
    with pytest.raises(CatalogUnavailable, match="timed out"):
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
