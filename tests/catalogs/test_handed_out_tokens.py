"""SAS tokens of Azure and tokens of Google that a catalog hands out: as keys of S3, none is used too late."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from pyiceberg.io import FileIO

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.catalogs.open import STORAGE, open_catalog
from bookkeeper.catalogs.storage_credentials import place_of, told_for
from bookkeeper.config.settings import Catalog, Settings
from bookkeeper.contract.txlog_folder import folder_url
from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores import handed_out
from bookkeeper.stores.open import stores_with
from tests.servers.catalog_over import catalog_over
from tests.servers.guarded import AzureGuard, GoogleGuard, guarded
from tests.servers.handing_out import Desk, Now
from tests.servers.needed import needed
from tests.servers.objects import ACCOUNT, azure_properties, azurite, bucket, gcs
from tests.servers.process import Server
from tests.support.governed import LATER, Lakehouse, work_across_renewals
from tests.support.lake import Writes
from writers import Writer, stores_of_catalog
from writers.reach import Reach

HOST = f"{ACCOUNT}.dfs.core.windows.net"
_SERVERS = {"azure": azurite, "google": gcs}


@pytest.fixture(scope="module", params=_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A storage with a bucket for tables and one for txlog folders."""
    with ExitStack() as stack:
        with needed(request.param, optional=request.param == "google"):
            made = stack.enter_context(_SERVERS[request.param]())
        for name in ("lake", "queue"):
            bucket(made, name)
        yield made


@pytest.fixture
def house(server: Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Lakehouse]:
    """A lake that is governed; the clock by which tokens end stands until the test moves it."""
    now = Now(datetime.now(UTC).timestamp())
    monkeypatch.setattr(handed_out, "time", now)
    desk, own = Desk(now), {key: value for key, value in server.properties.items() if key != "py-io-impl"}
    is_azure = "adls.connection-string" in own
    urls = {name: f"abfss://{name}@{HOST}" if is_azure else f"gs://{name}" for name in ("lake", "queue")}
    warehouse = f"{urls['lake']}/{request.node.name[:40].strip('[]_')}"
    inner = Catalog("inner", {"py-catalog-impl": STORAGE, "warehouse": warehouse, **own})
    with (
        catalog_over(lambda: open_catalog(inner, create=True), desk) as first,
        guarded(AzureGuard if is_azure else GoogleGuard, server.port, desk) as second,
    ):
        if is_azure:
            through = {f"adls.connection-string.{HOST}": f"{second.uri}/{ACCOUNT}"}
            queue = azure_properties(second.port)["adls.connection-string"]
            through["adls.bucket.queue.connection-string"] = queue
        else:
            through = {"gcs.service.host": second.uri, "gcs.bucket.queue.oauth2.token": "anon"}
        for module in ("tests.support.lake", "tests.support.keyed"):
            monkeypatch.setattr(f"{module}.open_store", stores_with(own))
        properties = {"type": "rest", "uri": first.uri, "warehouse": warehouse, **through}
        yield Lakehouse(Catalog("lake", properties), own, first, desk, urls["queue"], urls["lake"])


def test_ticks_retention_the_reaper_a_consumer_go_on_across_renewals(
    house: Lakehouse, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("adlfs", "gcsfs", "fsspec", "azure", "urllib3", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    work_across_renewals(
        house, lambda: caplog.text + "".join(capsys.readouterr()) + repr([vars(record) for record in caplog.records])
    )


@pytest.mark.parametrize("way", ["table", "configuration"])
def test_a_writer_goes_on_across_renewals_with_nothing_but_tokens_of_the_catalog(
    house: Lakehouse, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    named = {**house.catalog.properties, "warehouse": "lake"}
    house.catalog = Catalog("lake", {key: value for key, value in named.items() if ".bucket." not in key})
    lake = house.lake(folder=None, credentials="catalog")
    stores: Any = stores_of_catalog(house.catalog.properties, lake.settings.identifier)
    if way == "configuration":
        stores = Reach(Settings(catalog=house.catalog, tables={lake.settings.name: lake.settings}))
        assert folder_url(lake.settings, stores.location(lake.settings)) == lake.made.folder
    used, keys = len(house.desk.used), [f"a{turn}" for turn in range(5)]
    with Writer.open(lake.made.folder, "w", stores=stores, wait=lambda _: True) as run:
        for key in keys:
            run.write({"timestamp": datetime(2026, 1, 31, tzinfo=UTC), "key": key})
            house.desk.now.seconds += LATER
            run.publish()
    assert {key for key, _ in house.desk.used[used:]} <= house.desk.keys.keys()
    assert house.desk.refused == [] == house.desk.expired
    assert lake.product().tick(lake.clock.now).commit.txlogs == 5 and lake.keys() == keys


class OtherClock(Now):
    """A clock that goes before another one by so many seconds, or behind it."""

    def __init__(self, other: Now, by: float) -> None:
        self.other, self.by = other, by

    def time(self) -> float:
        """As the server has it."""
        return self.other.seconds + self.by


@pytest.mark.parametrize("by", [-40, 40])
def test_clocks_that_differ_by_less_than_tokens_live_use_none_too_late(house: Lakehouse, by: float) -> None:
    ours = house.desk.now
    house.desk.now = OtherClock(ours, by)
    lake = house.lake()
    catalog = open_catalog(house.catalog)
    store = stores_of(catalog, lake.settings.identifier)(load_table(catalog, lake.settings.identifier).location())
    loads = len(house.desk.loads)
    for turn in range(12):
        store.upload(f"data/{turn}", b"a")
        ours.seconds += 10
    assert house.desk.refused == [] == house.desk.expired and 2 <= len(house.desk.loads) - loads <= 12


def test_a_clock_that_is_wrong_by_more_than_tokens_live_is_named_as_a_cause(house: Lakehouse) -> None:
    lake = house.lake()
    house.desk.now = OtherClock(house.desk.now, -2 * house.desk.seconds)
    catalog = open_catalog(house.catalog)
    with pytest.raises(StorageUnavailable, match="have ended") as refused:
        stores_of(catalog, lake.settings.identifier)(load_table(catalog, lake.settings.identifier).location()).read("a")
    assert "clocks" in refused.value.hint


def test_tokens_that_are_refused_before_they_should_end_are_renewed_once(house: Lakehouse) -> None:
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


def test_a_table_that_is_held_for_long_is_read_and_written_with_tokens_that_are_good(house: Lakehouse) -> None:
    lake = house.lake()
    Writes(lake).publish("a")
    assert lake.product().tick(lake.clock.now).commit.txlogs == 1
    table = load_table(open_catalog(house.catalog, scans=False), lake.settings.identifier)
    for _ in range(3):
        house.desk.now.seconds += LATER
        assert table.scan().to_arrow()["key"].to_pylist() == ["a"]
    held, place = table.io.new_input(_data_file(table)).open(), f"{table.location()}/data/x"
    house.desk.now.seconds += 2 * LATER
    with held as file:
        assert file.read(4) == b"PAR1"
    with table.io.new_output(place).create() as file:
        file.write(b"x")
        house.desk.now.seconds += 2 * LATER
    with pytest.raises(FileExistsError):
        table.io.new_output(place).create()
    assert _bytes(table.io, place) == b"x" and len(table.io.new_input(place)) == 1
    table.io.delete(place)
    assert not table.io.new_input(place).exists()
    with pytest.raises(FileNotFoundError):
        table.io.new_input(place).open()
    assert house.desk.refused == [] == house.desk.expired
    assert not [text for text in house.desk.secrets() if text in repr(vars(table.io))]


def _data_file(table: object) -> str:
    return str(next(iter(table.scan().plan_files())).file.file_path)  # type: ignore[attr-defined]


def _bytes(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as file:
        return file.read()


def test_moves_deletes_and_listings_go_with_the_token_of_their_path(house: Lakehouse) -> None:
    lake = house.lake()
    catalog = open_catalog(house.catalog)
    location = load_table(catalog, lake.settings.identifier).location()
    store = stores_of(catalog, lake.settings.identifier)(location)
    store.upload("data/a", b"a" * 9 * 2**20)
    house.desk.now.seconds += LATER
    store.move("data/a", "data/b")
    store.create("data/c", b"c")
    house.desk.now.seconds += LATER
    assert sorted(item.key for item in store.list("data")) == ["data/b", "data/c"]
    assert store.delete_many(["data/b", "data/c"]) == 2 and [*store.list("data")] == []
    assert house.desk.refused == [] == house.desk.expired
    other = house.lake().made.location
    with pytest.raises(StorageUnavailable):
        stores_of(catalog, lake.settings.identifier)(other).upload("data/a", b"a")


PLACE = "abfss://c@acc.dfs.core.windows.net/t"


@pytest.mark.parametrize(
    "config",
    [
        {"adls.sas-token.acc.dfs.core.windows.net": "T", "adls.sas-token-expires-at-ms.acc.dfs.core.windows.net": "7"},
        {"adls.sas-token.acc.blob.core.windows.net": "T", "adls.sas-token-expires-at-ms.acc": "7"},
        {"adls.sas-token.acc": "T", "adls.sas-token-expires-at-ms": "7"},
        {"adls.sas-token": "T", "adls.sas-token-expires-at-ms": "7", "adls.refresh-credentials-endpoint": "v1/x"},
        {"adls.sas-token.acc": "T", "adls.sas-token.other": "U", "adls.sas-token-expires-at-ms.acc": "7"},
    ],
)
def test_a_sas_token_is_found_by_each_name_that_catalogs_give_it(config: dict[str, str]) -> None:
    assert told_for(PLACE, {**config, "s3.access-key-id": "a", "py-io-impl": "evil"}) == {
        "adls.sas-token": "T",
        "adls.sas-token-expires-at-ms": "7",
    }


def test_no_account_gets_the_token_of_another() -> None:
    assert told_for(PLACE, {"adls.sas-token.other.dfs.core.windows.net": "U", "adls.sas-token.second": "V"}) == {}


@pytest.mark.parametrize(
    ("end", "ms"),
    [("2026-01-31T12:00:00Z", "1769860800000"), ("2026-01-31", "1769817600000"), ("soon", None), ("", None)],
)
def test_an_end_that_only_the_token_says_counts(end: str, ms: str | None) -> None:
    found = told_for(PLACE, {"adls.sas-token.acc": f"?sv=1&se={end}&sig=x"})
    assert found.get("adls.sas-token-expires-at-ms") == ms and found["adls.sas-token"]


def test_one_blob_has_one_place_whatever_its_scheme_is_called() -> None:
    others = ["abfs://c@acc.dfs.core.windows.net/t", "wasbs://c@acc.blob.core.windows.net/t", PLACE]
    assert {place_of(url) for url in others} == {PLACE}
    urls = ("s3a://b/t", "gcs://b/t", "s3", "file:///x")
    assert [place_of(url) for url in urls] == ["s3://b/t", "gs://b/t", "s3://", None]
