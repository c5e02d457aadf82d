"""
Tables behind latency: a storage and its catalogs with a proxy before each, and a bookkeeper that knows only those.
"""

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.schema import Schema

from benchmarks.support import daemon
from benchmarks.support.counting_proxy import Record, Wire, wire
from benchmarks.support.crowd import Crowd
from benchmarks.support.lake import written
from benchmarks.support.places import PLACES, Place
from benchmarks.support.round_trips import named
from bookkeeper.catalogs.open import STORAGE, open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config import load as config
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.locations import normal
from bookkeeper.stores.open import open_store
from tests.servers import Unavailable
from tests.servers.process import LOOPBACK
from tests.servers.rest import rest_catalog

SQLITE, REST, ALONE = "SQLite", "REST", "storage alone"
POLLING, EVENTS = "polling", "events"
_LONGEST_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Kind:
    """A storage (a key of PLACES), a catalog, and how new txlogs are noticed."""

    storage: str
    catalog: str
    mode: str = POLLING

    def __str__(self) -> str:
        label = f"{self.storage.replace('s3', 'S3').replace('azurite', 'Azurite')}, {self.catalog}"
        return label if self.mode == POLLING else f"{label}, {self.mode}"


@dataclass
class Where:
    """A storage with its REST catalog, if there is one, each behind a proxy."""

    place: Place
    rest: tuple[int, Wire] | Unavailable

    def delay(self, milliseconds: float) -> None:
        """From now on each request takes so much longer."""
        for item in self._wires:
            item.delay(milliseconds / 1000)

    def taken(self) -> list[Record]:
        """What the storage and the catalog were asked since this was asked last."""
        return [record for item in self._wires if not item.queue for record in item.taken()]

    @property
    def _wires(self) -> list[Wire]:
        return [*self.place.wires, *([self.rest[1]] if isinstance(self.rest, tuple) else [])]

    def catalog(self, kind: Kind, root: Path, warehouse: str, far: bool) -> dict[str, Any]:
        """The keys of a catalog, past the proxies or, `far`, behind them; raises Unavailable."""
        keys = {"name": "lake", "warehouse": warehouse, **(self.place.far if far else self.place.near)}
        if kind.catalog == ALONE:
            return {**keys, "py-catalog-impl": STORAGE}
        if kind.catalog == SQLITE:
            return {**keys, "type": "sql", "uri": f"sqlite:///{root}/cat.db"}
        if isinstance(self.rest, Unavailable):
            raise self.rest
        server, proxy = self.rest
        return {**keys, "type": "rest", "uri": f"http://{LOOPBACK}:{proxy.port if far else server}"}


@contextmanager
def where(storage: str, root: Path, rest: bool) -> Iterator[Where]:
    """
    A running storage, and a REST catalog for it on demand. Raises Unavailable for the storage.
    """
    with ExitStack() as stack:
        place = stack.enter_context(PLACES[storage](root))
        found: tuple[int, Wire] | Unavailable = Unavailable("no REST catalog was asked for")
        try:
            if rest:
                server = stack.enter_context(rest_catalog(f"{place.base}/rest", dict(place.near)))
                found = server.port, stack.enter_context(wire(server.port))
        except Unavailable as exc:
            found = exc
        yield Where(place, found)


@dataclass
class Stand:
    """New tables, and the configuration of a bookkeeper that is behind the proxies."""

    where: Where
    kind: Kind
    root: Path
    names: list[str]
    folders: list[Folder] = field(default_factory=list)
    #: of each table: its queue's name or URL, and what tells it of new objects
    queues: list[tuple[str, Callable[[str, Sequence[str]], None]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    @classmethod
    def at(
        cls,
        there: Where,
        kind: Kind,
        root: Path,
        made: Schema | None = None,
        tables: int = 1,
        table: Mapping[str, Any] | None = None,
        **daemon: Any,
    ) -> "Stand":
        """`made` is the schema (default: the one of `init`); `table` and `daemon` are keys. Raises Unavailable."""
        root.mkdir()
        stand = cls(there, kind, root, [f"t{number:03d}" for number in range(tables)])
        if kind.mode == EVENTS and there.place.queue is not None:
            stand.queues = [there.place.queue() for _ in stand.names]
        url, space = there.place.fresh(), f"n{uuid.uuid4().hex[:8]}"
        common = {"partition_by": []} if made else {}
        sections: dict[str, Mapping[str, Any]] = {"bookkeeper": {"listen": "", **daemon}}
        for number, name in enumerate(stand.names):
            own = {"identifier": f"{space}.{name}", "folder": f"{url}/queue/{name}", **common, **(table or {})}
            hints = {"discover": "notify", "queue": stand.queues[number][0]} if stand.queues else {}
            sections[f"tables.{name}"] = {**own, **hints}
        for path, far in ((stand.near, False), (stand.path, True)):
            written(path, {"catalog": there.catalog(kind, root, f"{url}/warehouse", far), **sections})
        settings = config.load(str(stand.near), {})
        catalog = open_catalog(settings.catalog, create=True)
        for item in settings.tables.values():
            done = initialise(catalog, item, made or schema_for(item))
            stand.folders.append(Folder(open_store(done.folder, there.place.near)))
        return stand

    @property
    def path(self) -> Path:
        """The bookkeeper's configuration."""
        return self.root / "bookkeeper.toml"

    @property
    def near(self) -> Path:
        """The same, past the proxies."""
        return self.root / "near.toml"

    @property
    def log(self) -> Path:
        """What the bookkeeper says."""
        return self.root / "bookkeeper.log"

    def crowd(self, table: int, writers: int, told: Callable[[TxlogName], None] = lambda _: None) -> Crowd:
        """Writers of prepared txlogs; these and their data files are put past the proxies."""
        card = self.folders[table].card()
        return Crowd(self.folders[table], card, open_store(card.data_path, self.where.place.near), writers, told)

    def tell(self, table: int, txlogs: Sequence[TxlogName]) -> None:
        """One message to the table's queue, if it has one, that these were put."""
        if self.queues:
            parts = urlsplit(normal(self.folders[table].store.url))
            keys = [f"{parts.path.lstrip('/')}/pending/{txlog}" for txlog in txlogs]
            self.queues[table][1](parts.username or parts.netloc, keys)

    def table(self, number: int) -> Any:
        """As pyiceberg loads it, past the proxies."""
        settings = config.load(str(self.near), {})
        return open_catalog(settings.catalog).load_table(settings.tables[self.names[number]].identifier)

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Its bookkeeper."""
        with daemon.running(self.path, self.log) as process:
            yield process

    def commits(self) -> int:
        """How many commits the bookkeeper has told of."""
        return len(daemon.commits(self.log))

    def until(self, txlogs: int) -> None:
        """Waits until so many are in; raises RuntimeError with the end of the log."""
        self._wait(lambda: sum(line["txlogs"] for line in daemon.commits(self.log)) >= txlogs)

    def until_quiet(self, least_seconds: float, most_seconds: float) -> None:
        """Waits until a moment so long after the last request ended: between two ticks, when one is not due yet."""
        self._wait(lambda: least_seconds < time.time() - self._last_end() < most_seconds, 0.01)

    def until_asked(self, what: str, seconds: float) -> None:
        """Waits until a request of this name has ended, at most so long."""
        self._last_end()
        known, deadline = len(self.records), time.monotonic() + seconds
        while time.monotonic() < deadline and what not in map(named, self.records[known:]):
            time.sleep(0.02)
            self._last_end()

    def _wait(self, done: Callable[[], bool], pause: float = 0.05) -> None:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not done():
            if time.monotonic() > deadline:
                said = self.log.read_text().strip().splitlines() or ["it says nothing"]
                raise RuntimeError(f"the bookkeeper does not go on: {said[-1]}")
            time.sleep(pause)

    def _last_end(self) -> float:
        self.records += self.where.taken()
        return max((record.end for record in self.records), default=0.0)
