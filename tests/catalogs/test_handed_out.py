"""Keys that a REST catalog hands out and that end: everything works with them, for days, and none is used too late."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.catalogs.open import load_table, open_catalog
from bookkeeper.commands.fold import fold
from bookkeeper.config.settings import Catalog, Reaper, Retention, Settings
from bookkeeper.consumers.consumer import Consumer
from bookkeeper.errors import StorageUnavailable, TableUnusable
from bookkeeper.retention.apply import apply_retention
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.stores import handed_out
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper
from reaper import reap
from tests.servers import rest_catalog
from tests.servers.handing_out import CatalogProxy, Desk, Now, StorageProxy, handing_out
from tests.servers.needed import needed
from tests.servers.objects import bucket, s3
from tests.support.keyed import KEYED, Steps
from tests.support.lake import Lake, WallClock, Writes

_NUMBERS = count(1)
#: half of the life of keys, and a bit: a renewal is due
LATER = 31.0


@dataclass
class Lakehouse:
    """A REST catalog on S3 behind proxies that hand out keys; `own` are the server's own keys, for the test alone."""

    catalog: Catalog
    own: dict[str, str]
    first: CatalogProxy
    second: StorageProxy
    desk: Desk

    def lake(self, **settings: Any) -> "GovernedLake":
        """A new queue, with its txlog folder in a bucket of its own."""
        number = next(_NUMBERS)
        named = {"name": f"events{number}", "identifier": f"demo.events{number}", "folder": f"s3://queue/e{number}"}
        return GovernedLake(self, **{**named, **settings})


class GovernedLake(Lake):
    """A queue of which the product has only the keys of the txlog folder."""

    def __init__(self, house: Lakehouse, **settings: Any) -> None:
        self.house = house
        super().__init__(Path(), WallClock(), catalog=house.catalog, **settings)

    def store(self, url: str) -> Store:
        """What the test itself sees: with the server's own keys."""
        return stores_with(self.house.own)(url)

    def product(self) -> Bookkeeper:
        """A bookkeeper as the daemon opens it."""
        everything = Settings(catalog=self.house.catalog, tables={self.settings.name: self.settings})
        return open_bookkeeper(everything, self.settings, self.clock)


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
        yield Lakehouse(Catalog("lake", properties), own, first, second, desk)


def test_ticks_retention_the_reaper_a_consumer_go_on_across_renewals(
    house: Lakehouse, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    lake = house.lake(reaper=Reaper(older_than=timedelta(), retain_last=1))
    settings = Settings(catalog=house.catalog, tables={lake.settings.name: lake.settings})
    book, write = lake.product(), Writes(lake)
    consumer = Consumer.open(settings, lake.settings.name, name="c1")
    seen, loads = list[str](), len(house.desk.loads)
    with consumer:
        for turn in range(5):
            write.publish(f"{turn}a", f"{turn}b")
            assert book.tick(lake.clock.now).commit.txlogs == 1
            for batch in consumer.batches(follow=False):
                seen += batch.table["key"].to_pylist()
                consumer.commit(batch)
            house.desk.now.seconds += LATER
    view = book.ledger.load(book.folder.card().folder)
    dropped = apply_retention(book.ledger, view, Retention(keep_bytes=1, brake=1.0), lake.clock.now)
    house.desk.now.seconds += LATER
    catalog = open_catalog(house.catalog)
    reaped = reap(catalog, lake.settings, lake.clock.now, release_brake=True)
    house.desk.now.seconds += LATER
    assert seen == write.keys
    assert dropped.files == 4 and reaped.snapshots > 0 and reaped.data_files == 4
    assert house.desk.refused == [] and house.desk.expired == []
    assert len(house.desk.loads) - loads >= 3 and len(house.desk.secrets()) >= 8
    assert {key for key, path in house.desk.used if path.startswith("/queue/")} == {"test"}
    assert lake.keys() == write.keys[-2:]
    told = caplog.text + "".join(capsys.readouterr()) + repr([vars(record) for record in caplog.records])
    assert not [secret for secret in house.desk.secrets() if secret in told]


def test_a_fold_reads_and_writes_with_keys_that_were_handed_out(house: Lakehouse) -> None:
    lake = house.lake(**KEYED)
    book, write = lake.product(), Steps(lake)
    for number in range(4):
        write.publish_rows({1: str(number), 2: "b"})
        assert book.tick(lake.clock.now).commit.txlogs == 1
        house.desk.now.seconds += LATER
    folded = fold(book.ledger, book.folder, book.publisher, lake.clock.now, lambda size: b"r" * size)
    assert (folded.outcome, folded.dead_rows) == ("folded", 6)
    assert house.desk.refused == [] == house.desk.expired
