"""
A lake whose catalog hands out keys that end, and a run of all that works on it across renewals.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Catalog, Reaper, Retention, Settings
from bookkeeper.consumers.consumer import Consumer
from bookkeeper.retention.apply import apply_retention
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper
from reaper import reap
from tests.servers.handing_out import CatalogProxy, Desk
from tests.support.lake import Lake, WallClock, Writes
from tests.support.stores import content

_NUMBERS = count(1)
#: half of the life of keys, and a bit: a renewal is due
LATER = 31.0


@dataclass
class Lakehouse:
    """
    A REST catalog and a storage behind proxies that hand out keys; `own` reaches all of it, for the test alone.

    `queue` is where txlog folders are, with keys of the configuration; `lake` where the tables are.
    """

    catalog: Catalog
    own: dict[str, str] = field(repr=False)
    first: CatalogProxy
    desk: Desk
    queue: str
    lake_url: str

    def lake(self, **settings: Any) -> "GovernedLake":
        """A new queue, with its txlog folder in a bucket of its own."""
        number = next(_NUMBERS)
        named = {"name": f"events{number}", "identifier": f"demo.events{number}", "folder": f"{self.queue}/e{number}"}
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


def read(consumer: Consumer) -> list[str]:
    """The keys of what is there for it."""
    seen = list[str]()
    for batch in consumer.batches(follow=False):
        seen += batch.table["key"].to_pylist()
        consumer.commit(batch)
    return seen


def work_across_renewals(house: Lakehouse, said: Callable[[], str]) -> None:
    """
    Ticks, retention, a consumer and the reaper, and before each of them keys are due. `said` returns all that was
    logged and printed.
    """
    lake = house.lake(reaper=Reaper(older_than=timedelta(), retain_last=1))
    settings = Settings(catalog=house.catalog, tables={lake.settings.name: lake.settings})
    book, write = lake.product(), Writes(lake)
    consumer = Consumer.open(settings, lake.settings.name, name="c1")
    seen, loads = list[str](), len(house.desk.loads)
    with consumer:
        for turn in range(5):
            write.publish(f"{turn}a", f"{turn}b")
            _tick(lake, book)
            seen += read(consumer)
            house.desk.now.seconds += LATER
        view = book.ledger.load(book.folder.card().folder)
        dropped = apply_retention(book.ledger, view, Retention(keep_bytes=1, brake=1.0), lake.clock.now)
        house.desk.now.seconds += LATER
        write.publish("z")
        _tick(lake, book)
        seen += read(consumer)
    catalog = open_catalog(house.catalog)
    reaped = reap(catalog, lake.settings, lake.clock.now, release_brake=True)
    house.desk.now.seconds += LATER
    assert seen == write.keys
    assert dropped.files == 4 and reaped.snapshots > 0 and reaped.data_files == 4
    assert house.desk.refused == [] and house.desk.expired == []
    assert len(house.desk.loads) - loads >= 3
    assert len({key for key, made in house.desk.keys.items() if made.uses}) >= 4
    assert lake.keys() == write.keys[-3:]
    _check_secrets(house, lake, said())


def _tick(lake: GovernedLake, book: Bookkeeper) -> None:
    """One that commits; on Google's storage those are some seconds apart."""
    commit = book.tick(lake.clock.now).commit or book.tick(lake.clock.now + timedelta(seconds=10)).commit
    assert commit is not None and commit.txlogs == 1


def _check_secrets(house: Lakehouse, lake: GovernedLake, told: str) -> None:
    stored = b"".join(data for url in (house.lake_url, house.queue) for data in content(lake.store(url)).values())
    secrets = house.desk.secrets()
    assert len(secrets) >= 60 and stored
    assert not [secret for secret in secrets if secret in told or secret.encode() in stored]
