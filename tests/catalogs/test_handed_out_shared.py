"""One renewal for a table and a process, however many catalog objects hold its keys."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.handed_out import HandedOut, stores_of
from bookkeeper.catalogs.open import open_catalog
from tests.catalogs import test_handed_out_writers as governed
from tests.servers.catalog_over import CatalogOver
from tests.servers.proxy import Reply
from tests.support.governed import LATER, Lakehouse

port, house = governed.port, governed.house


def opened(house: Lakehouse, identifier: str, **more: str) -> list[Any]:
    """Stores of two catalogs for one table, as of a bookkeeper and of a consumer beside it; `more` of the second."""
    second = replace(house.catalog, properties={**house.catalog.properties, **more})
    stores = []
    for catalog in (open_catalog(house.catalog, scans=False, shared=True), open_catalog(second)):
        location = load_table(catalog, identifier).metadata.location
        stores.append(stores_of(catalog, identifier)(location))
    return stores


@pytest.mark.parametrize("lists_credentials", [False, True])
def test_two_catalogs_of_one_configuration_ask_once(house: Lakehouse, lists_credentials: bool) -> None:
    house.desk.lists_credentials = lists_credentials
    lake = governed.governed(house)
    stores = opened(house, lake.settings.identifier)
    asked, begun = house.desk.asked if lists_credentials else house.desk.loads, len(house.first.seen)
    for turn in range(1, 4):
        house.desk.now.seconds += LATER
        before = len(asked)
        for number, store in enumerate(stores):
            store.create(f"data/{turn}-{number}", b"a")
        assert len(asked) == before + 1
    assert len(house.first.seen) == begun + 3
    assert house.desk.refused == [] == house.desk.expired


def test_configurations_that_differ_never_share(house: Lakehouse) -> None:
    lake = governed.governed(house)
    stores = opened(house, lake.settings.identifier, **{"header.X-Principal": "another"})
    house.desk.now.seconds += LATER
    loads = len(house.desk.loads)
    for number, store in enumerate(stores):
        store.create(f"data/{number}", b"a")
    assert len(house.desk.loads) == loads + 2
    used = [key for key, path in house.desk.used if "/data/" in path]
    assert len({*used}) == 2


def test_a_catalog_that_fails_is_asked_once_a_second_by_all(house: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = governed.governed(house)
    stores, begun = opened(house, lake.settings.identifier), []

    def down(self: CatalogOver, request: Any) -> Reply:
        begun.append(request)
        return Reply(503, [("Content-Type", "application/json")], b"{}")

    monkeypatch.setattr(CatalogOver, "answer", down)
    house.desk.now.seconds += LATER
    for turn in range(3):
        for number, store in enumerate(stores * 5):
            store.create(f"data/{turn}-{number}", b"a")
        house.desk.now.seconds += 1
    assert len(begun) == 3


@pytest.mark.parametrize("said, asks_after", [("7", 7), ("999999", 30), ("", 1), ("Fri, 31 Jan 2099 12:00:00 GMT", 30)])
@pytest.mark.parametrize("lists_credentials", [False, True])
def test_keys_are_not_asked_for_before_the_catalog_allows_it(
    house: Lakehouse, monkeypatch: pytest.MonkeyPatch, said: str, asks_after: int, lists_credentials: bool
) -> None:
    house.desk.lists_credentials = lists_credentials
    lake = governed.governed(house)
    store, seen = opened(house, lake.settings.identifier)[0], []
    house.desk.seconds = 600
    house.desk.now.seconds += LATER
    store.create("data/a", b"a")

    def busy(self: CatalogOver, request: Any) -> Reply:
        seen.append(house.desk.now.seconds)
        return Reply(429, [("Content-Type", "application/json"), *([("Retry-After", said)] if said else [])], b"{}")

    monkeypatch.setattr(CatalogOver, "answer", busy)
    house.desk.now.seconds += 301
    for turn in range(70):
        store.create(f"data/{turn}", b"a")
        house.desk.now.seconds += 0.5
    first, second = [*dict.fromkeys(seen)][:2]
    assert asks_after <= second - first <= asks_after + 0.5
    assert seen.count(first) == 1 or not said  # for the whole table too only where it did not ask to be left alone


def test_a_closed_catalog_still_renews_for_the_others(house: Lakehouse) -> None:
    lake = governed.governed(house)
    first = open_catalog(house.catalog)
    load_table(first, lake.settings.identifier)
    store = stores_of(open_catalog(house.catalog), lake.settings.identifier)(lake.made.location)
    first.close()
    house.desk.now.seconds += LATER
    store.create("data/a", b"a")
    house.desk.now.seconds += 10 * LATER
    assert store.read("data/a") == b"a"
    assert house.desk.expired == []


KEYS = {"type": "rest", "uri": "http://c", "warehouse": "w", "credential": "id:secret"}


@pytest.mark.parametrize(
    "one, other, is_shared",
    [
        ({}, {}, True),
        ({"py-io-impl": "a.B"}, {}, True),
        ({"snapshot-loading-mode": "refs"}, {}, True),
        ({"auth": {"type": "custom", "impl": "bookkeeper.catalogs.rest.TokenFile", "custom": {"path": "/t"}}},) * 2
        + (True,),
        ({"credential": "id:other"}, {}, False),
        ({"uri": "http://d"}, {}, False),
        ({"warehouse": "v"}, {}, False),
        ({"token": "t"}, {}, False),
        ({"scope": "s"}, {}, False),
        ({"rest.sigv4-enabled": "true"},) * 2 + (False,),
        ({"auth": {"type": "google", "google": {}}},) * 2 + (False,),
        ({"auth": {"type": "custom", "impl": "their.Auth", "custom": {}}},) * 2 + (False,),
    ],
)
def test_what_makes_two_configurations_one(one: dict[str, Any], other: dict[str, Any], is_shared: bool) -> None:
    catalogs = [SimpleNamespace(name="lake", properties={**KEYS, **more}) for more in (one, other)]
    keys = [HandedOut(catalog).keys(("demo", "t")) for catalog in catalogs]
    assert (keys[0] is keys[1]) is is_shared
    assert HandedOut(catalogs[0]).keys(("demo", "u")) is not keys[0]


def test_nothing_of_an_identity_is_a_secret() -> None:
    handed_out = HandedOut(SimpleNamespace(properties=KEYS))
    assert "secret" not in repr(vars(handed_out)["_identity"])
