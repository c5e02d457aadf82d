"""Keys that a REST catalog hands out and that end: everything works with them, for days, and none is used too late."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.handed_out import HandedOut, stores_of
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.fold import fold
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import StorageUnavailable, TableUnusable
from bookkeeper.stores import handed_out
from bookkeeper.stores.open import stores_with
from tests.servers import rest_catalog
from tests.servers.handing_out import Now, handing_out
from tests.servers.needed import needed
from tests.servers.objects import bucket, s3
from tests.support.governed import LATER, Lakehouse, work_across_renewals
from tests.support.keyed import KEYED, Step, Steps
from tests.support.lake import Writes


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[int, int]]:
    """The ports of a REST catalog and of the S3 server on which its warehouse is."""
    with needed("s3"), s3() as storage:
        warehouse = bucket(storage, "lake")
        bucket(storage, "queue")
        with needed("rest"), rest_catalog(f"{warehouse}/warehouse", storage.properties) as server:
            yield server.port, storage.port


@pytest.fixture
def house(servers: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lakehouse]:
    """A lake that is governed; the clock by which keys end stands until the test moves it."""
    now = Now(datetime.now(UTC).timestamp())
    monkeypatch.setattr(handed_out, "time", now)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with handing_out(*servers, now) as (first, second, desk):
        common = {"s3.endpoint": second.uri, "s3.region": "us-east-1"}
        own = {**common, "s3.access-key-id": "test", "s3.secret-access-key": "testtest"}
        queue = {"s3.bucket.queue.access-key-id": "test", "s3.bucket.queue.secret-access-key": "testtest"}
        properties = {"type": "rest", "uri": first.uri, "warehouse": "s3://lake/warehouse", **common, **queue}
        for module in ("tests.support.lake", "tests.support.keyed"):
            monkeypatch.setattr(f"{module}.open_store", stores_with(own))
        yield Lakehouse(Catalog("lake", properties), own, first, desk, "s3://queue", "s3://lake")


def test_ticks_retention_the_reaper_a_consumer_go_on_across_renewals(
    house: Lakehouse, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    work_across_renewals(
        house, lambda: caplog.text + "".join(capsys.readouterr()) + repr([vars(record) for record in caplog.records])
    )
    assert {key for key, path in house.desk.used if path.startswith("/queue/")} == {"test"}


def test_a_fold_reads_and_writes_with_keys_that_were_handed_out(house: Lakehouse) -> None:
    lake = house.lake(**KEYED)
    book, write = lake.product(), Steps(lake)
    for number in range(4):
        write.publish_steps(Step({1: str(number), 2: "b"}))
        assert book.tick(lake.clock.now).commit.txlogs == 1
        house.desk.now.seconds += LATER
    folded = fold(book.ledger, book.folder, book.publisher, lake.clock.now, lambda size: b"r" * size)
    assert (folded.outcome, folded.dead_rows) == ("folded", 6)
    assert house.desk.refused == [] == house.desk.expired


def test_an_answer_replaces_all_secrets_of_the_configuration() -> None:
    secrets = {"s3.access-key-id": "own", "s3.secret-access-key": "own", "s3.session-token": "own"}
    secrets |= {"s3.profile-name": "own", "client.session-token": "own", "s3.bucket.lake.session-token": "own"}
    azure = dict.fromkeys(("adls.account-key", "adls.sas-token.a", "adls.client-secret", "adls.anon"), "own")
    properties = {**secrets, **azure, "s3.region": "r", "s3.endpoint": "http://own"}
    catalog = SimpleNamespace(properties=properties, load_table=print)
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    told = {"py-io-impl": "evil.Io", "s3.endpoint": "http://told", "adls.sas-token": "sas", "token": "t"}
    credentials = [SimpleNamespace(prefix=prefix, config=keys) for prefix in ("s3a://lake/t", "abfss://c@a/t")]
    metadata = SimpleNamespace(location="s3://lake/t", properties={"s3.proxy-uri": "http://stolen"})
    HandedOut(catalog).take(("t",), SimpleNamespace(config=told, storage_credentials=credentials, metadata=metadata))
    found = {one.prefix: one.options for one in catalog._bookkeeper_handed_out.keys(("t",))._keys}
    assert found["s3://lake/t"] == {**keys, "s3.region": "r", "s3.endpoint": "http://told"}
    assert found["abfss://c@a/t"] == {"adls.sas-token": "sas"}


def test_two_tables_never_share_keys_and_each_path_has_those_of_the_longest_prefix(house: Lakehouse) -> None:
    one, two = house.lake(), house.lake()
    special = f"{one.made.location}/data/special"
    house.desk.more[one.settings.identifier] = [special, "s3://lake/warehouse"]
    catalog = open_catalog(house.catalog)
    for lake in (one, two):
        load_table(catalog, lake.settings.identifier)
    stores = [stores_of(catalog, lake.settings.identifier) for lake in (one, two)]
    stores[0](f"{one.made.location}/data").upload("special/a", b"a")
    stores[0](f"{one.made.location}/data").upload("b", b"b")
    key_of = {path: key for key, path in house.desk.used}
    prefixes = [house.desk.keys[key_of[f"{one.made.location[4:]}/data/{name}"]].prefix for name in ("special/a", "b")]
    assert prefixes == [special, one.made.location]
    assert stores[0](f"{one.made.location}/data").delete_many(["special/a", "b"]) == 2
    with pytest.raises(StorageUnavailable):
        stores[1](f"{one.made.location}/data").upload("c", b"c")
    keys_of_two = [key for key, made in house.desk.keys.items() if made.prefix == two.made.location]
    assert not {key for key, path in house.desk.used if path.startswith(one.made.location[4:])} & {*keys_of_two}


def test_keys_in_config_count_for_the_tables_location(house: Lakehouse) -> None:
    house.desk.as_config = True
    lake = house.lake()
    Writes(lake).publish("a")
    book = lake.product()
    assert book.tick(lake.clock.now).commit.txlogs == 1
    assert lake.keys() == ["a"] and house.desk.refused == []


def test_a_tables_property_redirects_nothing(house: Lakehouse) -> None:
    lake = house.lake()
    hostile = {"s3.endpoint": "http://127.0.0.1:1", "s3.proxy-uri": "http://127.0.0.1:1", "s3.access-key-id": "other"}
    lake.catalog.commit_table(lake.table(), (), (SetPropertiesUpdate(updates=hostile),))
    Writes(lake).publish("a")
    assert lake.product().tick(lake.clock.now).commit.txlogs == 1
    assert lake.keys() == ["a"] and house.desk.refused == []
    assert all(
        request.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials" for request in house.first.seen
    )


def test_keys_that_are_refused_before_they_should_end_are_renewed_once(house: Lakehouse) -> None:
    house.desk.says_end = False
    lake = house.lake()
    catalog = open_catalog(house.catalog)
    table = load_table(catalog, lake.settings.identifier)
    store = stores_of(catalog, lake.settings.identifier)(table.metadata.location)
    store.upload("data/a", b"a")
    house.desk.now.seconds += 2 * LATER
    loads = len(house.desk.loads)
    store.create("data/b", b"b")
    assert (store.read("data/a"), store.read("data/b")) == (b"a", b"b")
    assert len(house.desk.loads) == loads + 1 and len(house.desk.expired) == 1
    house.desk.hands_out = False
    house.desk.now.seconds += 2 * LATER
    with pytest.raises(StorageUnavailable):
        store.read("data/a")


def test_a_table_that_is_held_for_long_is_read_with_keys_that_are_good(house: Lakehouse) -> None:
    lake = house.lake()
    Writes(lake).publish("a")
    assert lake.product().tick(lake.clock.now).commit.txlogs == 1
    table, loads = load_table(open_catalog(house.catalog, scans=False), lake.settings.identifier), len(house.desk.loads)
    for turn in range(1, 4):
        house.desk.now.seconds += LATER
        assert table.scan().to_arrow()["key"].to_pylist() == ["a"]
        assert len(house.desk.loads) == loads + turn
    assert house.desk.refused == [] and not [text for text in house.desk.secrets() if text in repr(vars(table.io))]


def test_keys_alone_are_asked_for_where_the_server_lists_that(house: Lakehouse) -> None:
    house.desk.lists_credentials = True
    lake = house.lake()
    catalog = open_catalog(house.catalog)
    location = load_table(catalog, lake.settings.identifier).location()
    house.desk.more[lake.settings.identifier] = [f"{location}/data"]
    load_table(catalog, lake.settings.identifier)
    store, loads = stores_of(catalog, lake.settings.identifier)(location), len(house.desk.loads)
    for turn in range(1, 4):
        house.desk.now.seconds += LATER
        store.upload("data/a", b"a")
        assert (len(house.desk.loads), len(house.desk.asked)) == (loads, turn)
    assert house.desk.refused == [] == house.desk.expired


@pytest.mark.parametrize("change", [{"credentials_status": 501}, {"credentials_status": 403}, {"more": {}}])
def test_where_keys_alone_do_not_come_the_table_is_loaded(house: Lakehouse, change: dict[str, Any]) -> None:
    house.desk.lists_credentials = True
    lake = house.lake()
    house.desk.more[lake.settings.identifier] = ["s3://lake/other"]
    catalog = open_catalog(house.catalog)
    store = stores_of(catalog, lake.settings.identifier)(load_table(catalog, lake.settings.identifier).location())
    for name, value in change.items():
        setattr(house.desk, name, value)
    house.desk.now.seconds += LATER
    loads = len(house.desk.loads)
    store.upload("data/a", b"a")
    assert (len(house.desk.loads), len(house.desk.asked)) == (loads + 1, 1)
    assert house.desk.refused == [] == house.desk.expired


def test_a_read_by_pyiceberg_is_repeated_once_where_its_keys_were_refused(house: Lakehouse) -> None:
    house.desk.says_end = False
    lake = house.lake()
    Writes(lake).publish("a")
    assert lake.product().tick(lake.clock.now).commit.txlogs == 1
    table = load_table(open_catalog(house.catalog), lake.settings.identifier)
    loads = len(house.desk.loads)
    for turn in (1, 2):
        house.desk.now.seconds += 2 * LATER
        assert table.scan().to_arrow()["key"].to_pylist() == ["a"]
        assert (len(house.desk.loads), len(house.desk.expired)) == (loads + turn, turn)


def test_keys_beside_the_config_go_before_those_in_it(house: Lakehouse) -> None:
    lake = house.lake()
    house.desk.config = {"s3.access-key-id": "stale", "s3.secret-access-key": "stale"}
    catalog = open_catalog(house.catalog)
    location = load_table(catalog, lake.settings.identifier).location()
    stores_of(catalog, lake.settings.identifier)(location).upload("data/a", b"a")
    assert house.desk.refused == []


def test_many_requests_at_once_ask_the_catalog_once(house: Lakehouse) -> None:
    lake = house.lake()
    catalog = open_catalog(house.catalog)
    store = stores_of(catalog, lake.settings.identifier)(load_table(catalog, lake.settings.identifier).location())
    keys = [f"data/{number}" for number in range(100)]
    for key in keys:
        store.upload(key, b"PAR1")
    loads = len(house.desk.loads)
    house.desk.now.seconds += 2 * LATER
    assert len(store.heads(keys)) == 100 and len(house.desk.loads) == loads + 1
    assert house.desk.refused == []


def test_remote_signing_without_keys_is_refused_and_with_keys_of_our_own_it_is_not(house: Lakehouse) -> None:
    lake = house.lake()
    house.desk.hands_out, house.desk.config = False, {"s3.remote-signing-enabled": "true"}
    with pytest.raises(TableUnusable, match="remote signing") as refused:
        load_table(open_catalog(house.catalog), lake.settings.identifier)
    assert "vended credentials" in refused.value.hint
    own = replace(house.catalog, properties={**house.catalog.properties, **house.own})
    assert load_table(open_catalog(own), lake.settings.identifier).metadata.location == lake.made.location
