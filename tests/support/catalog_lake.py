"""
A queue in any of the catalogs, and where it lives.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog.sql import SqlCatalog

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Retry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper, TickResult
from tests.chaos.account import account
from tests.chaos.tally import Tally
from tests.servers import Server, postgres, rest_catalog, scratch
from tests.servers.line import Line
from tests.servers.proxy import Proxy, proxy
from tests.support.lake import Lake, Writes
from tests.support.lossy import lossy_catalog

STORAGE = "bookkeeper.catalogs.storage.StorageCatalog"
KINDS = ("sqlite", "postgres", "rest", "storage")


@dataclass
class Place:
    """Where queues live: a catalog, its server if it has one, and the proxy before a REST catalog."""

    kind: str
    root: Path
    settings: Catalog
    server: Server | None = None
    proxy: Proxy | None = None
    made: int = 0
    opened: list[IcebergCatalog] = field(default_factory=list)

    def open(self, settings: Catalog | None = None) -> IcebergCatalog:
        """The catalog, opened anew; closed with the place."""
        self.opened.append(open_catalog(settings or self.settings, create=True))
        return self.opened[-1]

    @cached_property
    def near(self) -> IcebergCatalog:
        """The catalog, with nothing between us and it."""
        return self.open()

    def over(self, line: Line, all_requests: bool = False, anew: bool = False) -> Any:
        """The catalog at the end of `line`; `anew` with connections of its own, for a thread of its own."""
        if self.proxy is None:
            return lossy_catalog(self.open() if anew else self.near, line, all_requests)
        # Opened before the line is used: opening asks the server too.
        catalog = self.open(self._far) if anew else self._behind_proxy
        self.proxy.use(line, all_requests)
        return catalog

    @cached_property
    def _behind_proxy(self) -> IcebergCatalog:
        return self.open(self._far)

    @property
    def _far(self) -> Catalog:
        assert self.proxy is not None
        return replace(self.settings, properties={**self.settings.properties, "uri": self.proxy.uri})

    def restart(self) -> None:
        """Starts a stopped server again, and forgets the connections it broke."""
        assert self.server is not None
        self.server.start()
        if isinstance(self.near, SqlCatalog):
            self.near.engine.dispose()

    def table(self, **settings: Any) -> Table:
        """The settings of a table that was not used yet."""
        return Table(**{"file_names": "loose", **self._names(), **settings})

    def lake(self, **settings: Any) -> "CatalogLake":
        """A new queue; what an earlier one's line did to requests is over."""
        if self.proxy is not None:
            self.proxy.use(Line())
        return CatalogLake(self, **{**self._names(), **settings})

    def _names(self) -> dict[str, Any]:
        self.made += 1
        return {"name": f"events{self.made}", "identifier": f"demo.events{self.made}"}

    def close(self) -> None:
        """Gives back what the opened catalogs hold."""
        for catalog in self.opened:
            catalog.close()


@contextmanager
def place(kind: str) -> Iterator[Place]:
    """
    A catalog of this kind, gone with its files at the end. Raises Unavailable.
    """
    with tempfile.TemporaryDirectory(prefix=f"bookkeeper-{kind}-", dir=scratch()) as root:
        yield from _place(kind, Path(root))


def _place(kind: str, root: Path) -> Iterator[Place]:
    warehouse = root / "warehouse"
    warehouse.mkdir()
    if kind == "sqlite":
        uri = f"sqlite:///{root}/catalog/catalog.db"
        yield from _closed(Place(kind, root, _settings({"type": "sql", "uri": uri}, warehouse)))
    elif kind == "storage":
        yield from _closed(Place(kind, root, _settings({"py-catalog-impl": STORAGE}, warehouse)))
    elif kind == "postgres":
        with postgres() as server:
            yield from _closed(Place(kind, root, _settings(server.properties, warehouse), server))
    else:
        with rest_catalog(warehouse) as server, proxy(server.port) as before:
            yield from _closed(Place(kind, root, _settings(server.properties, warehouse), server, before))


def _settings(properties: Any, warehouse: Path) -> Catalog:
    return Catalog("lake", {**properties, "warehouse": warehouse.as_uri()})


def _closed(made: Place) -> Iterator[Place]:
    try:
        yield made
    finally:
        made.close()


class CatalogLake(Lake):
    """A queue in a catalog of any kind."""

    def __init__(self, where: Place, **settings: Any) -> None:
        self.where = where
        super().__init__(where.root, catalog=where.settings, **settings)
        self.published: list[str] = []

    def opened(self, create: bool = False, **far: str) -> Any:
        """The catalog, with nothing between us and it; closed with its place."""
        return self.where.near

    def store(self, url: str) -> Store:
        """The store at `url`, with the machine's clock."""
        return open_store(url)

    def book(
        self,
        store: Callable[[str], Store] = open_store,
        catalog: Any = None,
        ledger: type[Ledger] = Ledger,
        book: type[Bookkeeper] = Bookkeeper,
    ) -> Bookkeeper:
        """A bookkeeper that remembers nothing, as after a restart."""
        made = ledger(catalog or self.where.near, self.settings.identifier, self.clock, store)
        return book(self.settings, Folder(store(self.made.folder)), made, store=store)

    def attempt(self, book: Bookkeeper) -> TickResult | None:
        """One tick; None when it said Retry. Whatever else it raises is a defect."""
        try:
            turn: TickResult = self.tick(book)
        except Retry:
            return None
        return turn

    def settle(self, book: Bookkeeper, ticks: int = 30) -> None:
        """Ticks until nothing is pending."""
        for _ in range(ticks):
            if self.attempt(book) is not None and not self.pending():
                return
        raise AssertionError(f"still pending after {ticks} ticks: {self.pending()}")

    def tally(self, points: int, where: str, rounds: int = 1) -> Tally:
        """What became of the rows after `points` faults."""
        done = account(self.published, self.keys(), points=points, where=where)
        return replace(done, rounds=rounds, wrong=done.wrong + [f"{where}: {what}" for what in self.wrong()])

    def missing(self) -> list[str]:
        """Published keys that no reader sees."""
        return sorted(set(self.published) - set(self.keys()))

    def double(self) -> list[str]:
        """Keys that a reader sees more often than they were published."""
        keys = self.keys()
        return sorted(key for key in set(keys) if keys.count(key) > self.published.count(key))

    def wrong(self) -> list[str]:
        """What `verify` calls an error, and what was rejected though all that was published is good."""
        return [*super().wrong(), *self.rejected()]


class Chain:
    """One run of a writer; it sends a txlog again when the storage said nothing."""

    def __init__(self, lake: CatalogLake, name: str, positions: bool = False) -> None:
        self.lake, self.writes, self.positions = lake, Writes(lake, name), positions
        self.folder = lake.folder
        self.number = 0

    def publish(self) -> TxlogName:
        """Publishes one file with two rows."""
        self.number += 1
        keys = [f"{self.writes.name.writer}-{self.number:03d}{letter}" for letter in "ab"]
        name, data = self.writes.encoded([self.writes.file(keys, sequence=self.number)], **self._envelope())
        self._send(name, data)
        self.lake.published += keys
        return name

    def _envelope(self) -> dict[str, bytes | None]:
        if not self.positions:
            return {}
        before = b"%d" % (self.number - 1) if self.number > 1 else None
        return {"position": b"%d" % self.number, "previous_position": before}

    def _send(self, name: TxlogName, data: bytes) -> None:
        for _ in range(20):
            try:
                return self.folder.publish(name, data)
            except Retry:
                continue
        raise AssertionError(f"{name} could not be published")
