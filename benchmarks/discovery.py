"""
11. Discovery: storage x how new txlogs are noticed x writers: visibility, requests, and what they cost.

    python -m benchmarks.discovery

A real `bookkeeper run` that ticks every second, on an SQLite catalog, its other requests through a proxy that counts
them. Many writers are one publisher. "Visible" is from the begin of a txlog's put until the catalog shows it to
a reader that looks every 5 ms. A commit's requests are all from the first publish to the last delete, ticks that found
nothing among them; an idle tick's are the mean of two rounds of `look-every`. Prices: benchmarks/prices.py.
"""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import daemon, prices
from benchmarks.counting_proxy import LEASE
from benchmarks.crowd import Crowd, rows
from benchmarks.harness import Chosen, alone, now, number, percentile
from benchmarks.lake import IDENTIFIER, Watch, configured
from benchmarks.places import LOCAL, PLACES, Place
from benchmarks.synthetic import schema
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise
from bookkeeper.config import load as config
from bookkeeper.config.settings import Settings, Table
from bookkeeper.core.folder import Folder
from bookkeeper.core.names import TxlogName
from bookkeeper.discover.discovery import Discovery, Hints, Listing
from bookkeeper.discover.pending_index import PendingIndex
from bookkeeper.discover.probe import Probe
from bookkeeper.leases.object_lease import LASTING
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.stores.locations import normal
from bookkeeper.stores.open import open_store, stores_with
from tests.servers import Unavailable
from writers.writer import Writer

#: rows that a txlog brings, for the costs; the data file is up to 8 MiB then, one put
ROWS = 20_000
#: txlogs a second that each storage gets at most; no writer publishes more often than once a second
MOST = {"local": 200, "s3": 50, "azurite": 10}
MODES = ("list", "probe", "notify")
#: of more writers than this a probe makes a listing
PROBED = 200
_GREETERS = 5
_MONTH_SECONDS = 30 * 86_400
_COUNTED = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How many writers on each storage, how the bookkeeper notices, and for how many seconds they publish."""

    writers: Mapping[str, tuple[int, ...]]
    modes: tuple[str, ...]
    seconds: float


_ALL = {"local": (5, 100, 1000), "s3": (5, 100, 1000), "azurite": (5, 100)}
SIZES = {
    "toy": Size({"local": (2,), "s3": (2,)}, ("notify",), 1),
    "short": Size(_ALL, MODES, 4),
    "big": Size(_ALL, MODES, 30),
}
COLUMNS = (
    "storage, discovery", "writers", "txlogs/s", "visible after, p50 / p99 ms", "txlogs a commit",
    "requests: an idle tick", "a commit: put+list / get+head / delete / queue", "$ a million rows", "$ a month idle",
)  # fmt: skip


class Silent(Listing):
    """What a queue is that tells nothing."""

    def hints(self) -> Hints:
        return frozenset()


@dataclass
class Stand:
    """A new, empty table with its folder at a place, and the configuration that a bookkeeper of it gets."""

    place: Place
    root: Path
    path: Path
    settings: Settings
    folder: Folder
    crowd: Crowd

    @classmethod
    def at(cls, place: Place, root: Path, writers: int, discover: str = "list") -> "Stand":
        """A table with its folder at `place`, and so many writers; each publish goes to the place's queue, if any."""
        root.mkdir()
        url = place.fresh()
        keys: dict[str, Any] = {"discover": discover, "folder": f"{url}/queue", "partition-by": []}
        tell = None
        if discover == "notify" and place.queue is not None:
            keys["queue"], tell = place.queue()
        near = {**place.near, "warehouse": f"{url}/warehouse"}
        settings = config.load(str(configured(root, {}, keys, near)), {})
        done = initialise(open_catalog(settings.catalog, create=True), settings.tables["events"], schema(3))
        path = configured(root, {}, keys, {**near, **place.far})
        store = open_store(done.folder, place.near)
        parts = urlsplit(normal(store.url))

        def told(name: TxlogName) -> None:
            if tell is not None:
                tell(parts.username or parts.netloc, [f"{parts.path.lstrip('/')}/pending/{name}"])

        folder = Folder(store)
        card = folder.card()
        crowd = Crowd(folder, card, open_store(card.data_path, place.near), writers, told)
        return cls(place, root, path, settings, folder, crowd)

    def table(self) -> Any:
        """As pyiceberg loads it, past the proxy."""
        return open_catalog(self.settings.catalog).load_table(IDENTIFIER)

    def drained(self, process: "subprocess.Popen[bytes]", seconds: float = 120) -> None:
        """Waits until nothing is pending, and the bookkeeper has said so of all."""
        deadline = time.monotonic() + seconds
        while sum(line["txlogs"] for line in daemon.commits(self.log)) < len(self.crowd.begun) or self.folder.pending():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the bookkeeper does not go on: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    @property
    def log(self) -> Path:
        """What the bookkeeper says."""
        return self.root / "bookkeeper.log"


@dataclass(frozen=True)
class Busy:
    """What was seen while writers published."""

    txlogs: int
    commits: int
    seconds: float
    visible_ms: list[float]
    requests: Counter[str]


def busy(stand: Stand, period: float, seconds: float, greeters: int) -> Busy:
    """
    Publishes while a bookkeeper runs; `greeters` writers have published once before, so that it knows them.
    """
    crowd = stand.crowd
    crowd.lay(2 + int(seconds / period))
    crowd.greet(greeters)
    with daemon.running(stand.path, stand.log) as process:
        stand.drained(process)
        before, known = len(daemon.commits(stand.log)), set(crowd.begun)
        stand.place.counted()
        with Watch(stand.root) as watch:
            took = crowd.play(period, seconds)
            stand.drained(process)
            requests = stand.place.counted()
        made = len(daemon.commits(stand.log)) - before
    at = watch.times(stand.table())
    visible = [at[name] - begun for name, begun in crowd.begun.items() if name not in known]
    return Busy(len(visible), made, took, visible, requests)


def idle(stand: Stand, mode: str) -> Counter[str]:
    """
    Requests of two rounds of idle ticks, by kind, divided by the ticks.
    """
    settings = config.load(str(stand.path), {})
    table: Table = replace(settings.tables["events"], discover="list")
    at = now()
    book = open_bookkeeper(settings, table, lambda: at)
    discovery: Discovery = {"list": Listing, "probe": Probe, "notify": Silent}[mode]()
    book.pending_index = PendingIndex(discovery, table.look_every)
    book.tick(at)
    discovery.after([name for name in stand.crowd.names if name.sequence])
    stand.place.counted()
    ticks = 2 * table.look_every
    for tick in range(ticks):
        book.tick(at + timedelta(milliseconds=tick))
    return _each(stand.place.counted(), ticks)


def a_writer(place: Place, root: Path) -> Counter[str]:
    """
    Requests of a real writer's txlog, by kind, when it publishes every second.
    """
    stand = Stand.at(place, root, 1)
    at = [now()]
    writer = Writer.open(stand.folder.store.url, "counted", clock=lambda: at[0], stores=stores_with(place.far))
    for turn in range(_COUNTED + 1):
        at[0] += timedelta(seconds=1)
        writer.write(rows(writer.card))
        writer.publish()
        if not turn:
            place.counted()
    return _each(place.counted(), _COUNTED)


def _each(requests: Mapping[str, float], times: int) -> Any:
    return Counter({kind: count / times for kind, count in requests.items() if kind != LEASE})


def cells(place: Place, mode: str, seen: Busy, waiting: Counter[str], writer: Counter[str]) -> list[Any]:
    """
    What the table says of one run, from the third column on.
    """
    shown = " / ".join(number(percentile(seen.visible_ms, share)) for share in (0.5, 0.99))
    first = [number(seen.txlogs / seen.seconds), shown, number(seen.txlogs / seen.commits)]
    if place.name == LOCAL:
        return [*first, "-", "-", "-", "-"]
    commit, txlog = _each(seen.requests, seen.commits), _each(seen.requests, seen.txlogs)
    txlog.update(writer)
    by_time: Counter[str] = Counter({place.lease: 3 / LASTING.total_seconds()})
    if mode == "notify" and place.queue is not None:
        txlog["EVENT"] += 1
        by_time["QUEUE"] += place.polls
    by_time.update(waiting)
    groups = (("PUT", "LIST", "OTHER"), ("GET", "HEAD"), ("DELETE",), ("QUEUE",))
    kinds = " / ".join(f"{sum(commit[kind] for kind in group):.1f}" for group in groups)
    million = prices.dollars(txlog, place.prices) * 1_000_000 / ROWS
    month = prices.dollars(by_time, place.prices) * _MONTH_SECONDS
    return [*first, f"{sum(waiting.values()):.1f}", kinds, f"{million:.5f}", f"{month:.2f}"]


def measure(chosen: Chosen) -> None:
    """
    One row per storage, discovery and number of writers.
    """
    size = SIZES[chosen.size]
    title = f"Discovery: {size.seconds:g} s of txlogs at a steady pace, each writer at most once a second"
    note = (
        f"a million rows are {1_000_000 // ROWS} txlogs of {ROWS:,}, their writers' requests among them; idle is one "
        f"tick a second, lease and queue too. {prices.AS_OF}, a million requests: S3 and SQS, us-east-1: "
        f"{prices.shown(prices.S3)}; Azure, East US: {prices.shown(prices.AZURE)}"
    )
    chosen.report.table("discovery", title, COLUMNS, note)
    began = os.getloadavg()[0]
    with chosen.folder() as root:
        for kind in size.writers:
            with ExitStack() as stack:
                try:
                    place = stack.enter_context(PLACES[kind](root))
                except Unavailable as exc:
                    chosen.report.row(kind, *([None] * (len(COLUMNS) - 1)))
                    chosen.report.note(f"{kind}: {exc}")
                    continue
                _rows(chosen, size, kind, place, root)
    chosen.report.note(f"load of this machine: {began:.1f} before, {os.getloadavg()[0]:.1f} after")


def _rows(chosen: Chosen, size: Size, kind: str, place: Place, root: Path) -> None:
    writer = Counter[str]() if place.name == LOCAL else a_writer(place, root / f"{kind}-writer")
    for writers in size.writers[kind]:
        for mode in size.modes:
            if mode == "probe" and writers > PROBED:
                continue
            stand = Stand.at(place, root / f"{kind}-{writers}-{mode}", writers, mode)
            greeters = writers if mode == "probe" else min(writers, _GREETERS)
            seen = busy(stand, max(1.0, writers / MOST[kind]), size.seconds, greeters)
            waiting = Counter[str]() if place.name == LOCAL else idle(stand, mode)
            chosen.report.row(f"{place.name}, {mode}", str(writers), *cells(place, mode, seen, waiting, writer))
            chosen.report.keep({"seen": f"{kind} {mode} {writers}", "requests": seen.requests, "idle": waiting})


if __name__ == "__main__":
    alone(measure, __doc__)
