"""
Latency: what a commit costs where each request takes 10, 30 or 100 ms longer.

    python -m benchmarks.latency [--big]

`bookkeeper run` as a process of its own, behind a proxy before the S3 server, Azurite, the REST catalog and the queue.
Round trips in a row are read off the proxies' records (round_trips.py). Txlogs of ticks, backlogs and many tables are
prepared, and are put past the proxies; the writers of "closed to committed" are real ones, behind them.
"""

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.support import round_trips
from benchmarks.support.behind import ALONE, EVENTS, REST, SQLITE, Kind, Stand, Where, where
from benchmarks.support.crowd import Crowd
from benchmarks.support.daemon import cpu_seconds
from benchmarks.support.harness import Chosen, Report, alone, now, number, percentile
from benchmarks.support.lake import Watch
from benchmarks.support.round_trips import Tick, separated, shown
from benchmarks.support.synthetic import schema
from benchmarks.support.usual_tick import COLUMNS, NOTE, TXLOGS, Measured, chain
from bookkeeper.contract.names import TxlogName
from bookkeeper.stores.open import stores_with
from tests.servers import Unavailable
from writers.generate import Load, publish_file
from writers.writer import Writer

Latencies = Mapping[Kind, Sequence[int]]
WRITERS, ROWS, VALUE_BYTES = 3, 300, 1_700
#: of the ticks that are looked at one by one; a reload that often, so that a few seconds have one
_EVERY, _RELOAD = 0.5, 2.5
#: seconds without a request that separate two ticks
_GAP = 0.2
_POLLED = 0.5
_LANES = 4


@dataclass(frozen=True, slots=True)
class Size:
    """What is measured behind which latencies (ms)."""

    #: ticks one by one, in so many rounds
    ticks: Latencies
    rounds: int
    #: real writers, that publish for so many seconds
    paces: Latencies
    seconds: int
    #: a backlog of so many commits
    rates: Latencies
    backlog: int
    #: so many tables in one daemon, for so many seconds; nothing where there is none
    fleets: Latencies
    tables: int
    fleet_seconds: int


_ON_S3 = tuple(Kind("s3", catalog) for catalog in (SQLITE, REST, ALONE))
_ON_AZURE = tuple(Kind("azurite", catalog) for catalog in (SQLITE, ALONE))
_BY_EVENTS = (Kind("s3", SQLITE, EVENTS), Kind("s3", ALONE, EVENTS))
_FEW, _ALL = (30,), (10, 30, 100)
SIZES = {
    "toy": Size({_ON_S3[0]: (10,)}, 1, {_BY_EVENTS[0]: (10,)}, 1, {_ON_S3[0]: (10,)}, 3, {_ON_S3[0]: (10,)}, 2, 1),
    "short": Size(
        ticks=dict.fromkeys((*_ON_S3, _BY_EVENTS[0]), _FEW),
        rounds=1,
        paces={_BY_EVENTS[0]: _FEW},
        seconds=4,
        rates={_ON_S3[0]: _FEW},
        backlog=12,
        fleets={},
        tables=0,
        fleet_seconds=0,
    ),
    "big": Size(
        ticks=dict.fromkeys((*_ON_S3, *_BY_EVENTS, *_ON_AZURE), _ALL),
        rounds=3,
        paces=dict.fromkeys((_ON_S3[0], _BY_EVENTS[0], _ON_AZURE[0], Kind("azurite", SQLITE, EVENTS)), _ALL),
        seconds=20,
        rates=dict.fromkeys((*_ON_S3, *_ON_AZURE), _ALL),
        backlog=50,
        fleets=dict.fromkeys((_ON_S3[0], _BY_EVENTS[0]), (10, 30)),
        tables=100,
        fleet_seconds=30,
    ),
}


def ticks_of(stand: Stand, rounds: int) -> list[Tick]:
    """
    The ticks of a bookkeeper that finds five txlogs now and then, after its first commit.
    """
    told = list[TxlogName]()
    crowd = stand.crowd(0, TXLOGS, told.append)
    turns = [False, *[True, False, False] * rounds]
    crowd.lay(len(turns))
    with stand.running():
        for turn, after_reload in enumerate(turns):
            if after_reload:
                stand.until_asked(f"GET {round_trips.CARD}", 2 * _RELOAD)
            if turn:
                stand.until_quiet(_GAP, 0.7 * _EVERY)
            told.clear()
            crowd.greet(TXLOGS)
            stand.tell(0, told)
            stand.until((turn + 1) * TXLOGS)
        time.sleep(3 * _EVERY)
        stand.until_quiet(_GAP, 0.7 * _EVERY)
    found = [Tick.of(records) for records in separated(stand.records, _GAP)]
    ticks = [tick for tick in found if tick]
    first = next(index for index, tick in enumerate(ticks) if tick.committed)
    return ticks[first + 1 :]


def pace_of(stand: Stand, seconds: int) -> tuple[list[float], int]:
    """
    Milliseconds from closed to committed of each txlog that real writers publish, and how many commits that was.
    """
    with stand.running(), Watch(stand.root) as watch:
        warm = _written(stand, min(2, seconds))  # the first ticks load, compile and remember
        stand.until(len(warm))
        commits, said = stand.commits(), _written(stand, seconds)
        stand.until(len(warm) + len(said))
        commits = stand.commits() - commits
    at = watch.times(stand.table(0))
    return [at[item["name"]] - item["closed_ms"] for item in said], commits


def _written(stand: Stand, seconds: int) -> list[dict[str, Any]]:
    """What each writer says of each txlog; they publish in rhythms of their own."""
    reaching, until = stores_with(stand.where.place.far), time.monotonic() + seconds

    def write(index: int) -> list[dict[str, Any]]:
        name, said = f"w{index}-{uuid.uuid4().hex[:4]}", list[dict[str, Any]]()
        writer, load = Writer.open(stand.folders[0].store.url, name, stores=reaching), Load(name, "", ROWS, VALUE_BYTES)
        while not said or time.monotonic() < until:
            said.append(publish_file(writer, load, len(said), now))
            stand.tell(0, [TxlogName.parse(said[-1]["name"])])
            time.sleep(0.7 + 0.1 * index)
        return said

    with ThreadPoolExecutor(WRITERS) as pool:
        return [item for part in pool.map(write, range(WRITERS)) for item in part]


def rate_of(stand: Stand, commits: int) -> float:
    """
    Commits a second of a table with a backlog of so many commits of five txlogs.
    """
    crowd = stand.crowd(0, TXLOGS)
    crowd.lay(commits)
    for _ in range(commits):
        crowd.greet(TXLOGS)
    with stand.running():
        stand.until(commits * TXLOGS)
    swaps = {f"PUT {round_trips.METADATA}", f"POST {round_trips.TABLE}"}
    times = sorted(record.end for record in stand.where.taken() if round_trips.named(record) in swaps)
    return (len(times) - 1) / (times[-1] - times[0])


def fleet_of(stand: Stand, seconds: int, warm: int = 3) -> list[Any]:
    """
    A txlog a second for each table: commits a second, visible after p50 and p99, CPU, requests a second, CPU of one.
    """
    crowds = [
        stand.crowd(index, 1, partial(lambda index, txlog: stand.tell(index, [txlog]), index))
        for index in range(len(stand.names))
    ]
    with ThreadPoolExecutor(2 * _LANES) as pool:
        list(pool.map(lambda crowd: crowd.lay(seconds + warm), crowds))
    with stand.running() as process, Watch(stand.root, 0.01) as watch:
        _play(crowds, warm)
        stand.until(warm * len(crowds))
        known = {name for crowd in crowds for name in crowd.begun}
        stand.where.taken()
        began, used, made = time.monotonic(), cpu_seconds(process.pid), stand.commits()
        _play(crowds, seconds)
        stand.until((warm + seconds) * len(crowds))
        took = time.monotonic() - began
        used, requests = cpu_seconds(process.pid) - used, len(stand.where.taken())
        made = stand.commits() - made
    late = list[float]()
    for index, crowd in enumerate(crowds):
        at = watch.times(stand.table(index))
        late += [at[txlog] - begun for txlog, begun in crowd.begun.items() if txlog not in known]
    cpu = used / took, requests / took, 1000 * used / max(requests, 1)
    return [made / seconds, percentile(late, 0.5), percentile(late, 0.99), *cpu]


def _play(crowds: Sequence[Crowd], seconds: int) -> None:
    """Each publishes once a second, evenly spread."""
    began = time.monotonic()

    def play(lane: int) -> None:
        for second in range(seconds):
            for index in range(lane, len(crowds), _LANES):
                time.sleep(max(0.0, began + second + index / len(crowds) - time.monotonic()))
                crowds[index].publish(0)

    with ThreadPoolExecutor(_LANES) as pool:
        list(pool.map(play, range(_LANES)))


@dataclass
class Run:
    """What is measured on which storages, and where the figures go."""

    report: Report
    size: Size
    root: Path
    places: Mapping[str, Where | Unavailable]

    def each(self, wanted: Latencies, **keys: Any) -> Iterator[tuple[Kind, int, Stand | None]]:
        """A new stand for each that is wanted; None where its storage or its catalog cannot be had."""
        for kind, latencies in wanted.items():
            for latency in latencies:
                try:
                    yield kind, latency, self._stand(kind, latency, keys)
                except Unavailable as exc:
                    self.report.note(f"{kind}: {exc}")
                    yield kind, latency, None

    def _stand(self, kind: Kind, latency: int, keys: Mapping[str, Any]) -> Stand:
        there = self.places[kind.storage]
        if isinstance(there, Unavailable):
            raise there
        there.delay(0)
        stand = Stand.at(there, kind, self.root / uuid.uuid4().hex[:8], **keys)
        there.delay(latency)
        there.taken()
        return stand

    def ticks(self) -> None:
        """Round trips in a row and requests of a tick; then what is in flight in each link."""
        self.report.table("latency", "Ticks behind latency", COLUMNS, NOTE)
        began, beyond = os.getloadavg()[0], list[str]()
        commits, reloads = dict[str, list[str]](), dict[str, list[str]]()
        # By events a listing comes every 10 ticks: the usual tick is one without.
        keys = {"every": f"{_EVERY}s", "reload": f"{_RELOAD}s", "made": schema(3), "table": {"look_every": 1000}}
        for kind, latency, stand in self.each(self.size.ticks, **keys):
            if stand is None:
                self.report.row(str(kind), latency, *([None] * (len(COLUMNS) - 2)))
                continue
            ticks = ticks_of(stand, self.size.rounds)
            found = Measured.of(ticks)
            self.report.row(str(kind), latency, *found.cells())
            self.report.keep({"ticks": str(kind), "latency": latency, "chains": [chain(tick) for tick in ticks]})
            commits[str(kind)], reloads[str(kind)] = chain(found.commit or found.again), chain(found.reload)
            if over := found.beyond(kind):
                beyond.append(f"over the bounds: {kind}, {latency} ms: {', '.join(over)}")
            if waited := [tick.ahead for tick in ticks if tick.ahead]:
                beyond.append(f"{kind}: {len(waited)} of {len(ticks)} ticks waited for {shown(waited[0])} before")
        for line in beyond:
            self.report.note(line)
        self._load_since(began)
        self._links("latency-commit", "What is in flight together: a commit of five txlogs", commits)
        self._links("latency-reload", "What is in flight together: an idle tick with a reload", reloads)

    def _links(self, name: str, title: str, chains: Mapping[str, Sequence[str]]) -> None:
        self.report.table(name, title, ("link", *chains))
        for index in range(max(map(len, chains.values()), default=0)):
            cells = (made[index] if index < len(made) else "" for made in chains.values())
            self.report.row(f"{index + 1}", *cells)

    def paces(self) -> None:
        """From closed to committed."""
        columns = ("storage, catalog", "latency, ms", "p50 / p99, ms", "txlogs", "commits")
        title = f"From closed to committed: {WRITERS} writers behind the same latency, a txlog each every 0.7-0.9 s"
        note = f"polling every {_POLLED * 1000:.0f} ms; an event is sent when its txlog is published"
        self.report.table("latency-pace", title, columns, f"{note}. The bound is 1,000 ms at p99, by events 400")
        began = os.getloadavg()[0]
        for kind, latency, stand in self.each(self.size.paces, every=f"{_POLLED}s"):
            row: list[Any] = [None] * 3
            if stand is not None:
                late, commits = pace_of(stand, self.size.seconds)
                row = [" / ".join(number(percentile(late, share)) for share in (0.5, 0.99)), len(late), commits]
            self.report.row(str(kind), latency, *row)
        self._load_since(began)

    def rates(self) -> None:
        """Commits a second of one table."""
        title = f"One table that always has txlogs pending: {self.size.backlog} commits of five in a row"
        columns = ("storage, catalog", "latency, ms", "commits/s", "txlogs/s")
        self.report.table("latency-rate", title, columns, "The bound is 5 commits a second behind 30 ms")
        began, keys = os.getloadavg()[0], {"every": "10ms", "made": schema(3), "table": {"max_txlogs": TXLOGS}}
        for kind, latency, stand in self.each(self.size.rates, **keys):
            rate = rate_of(stand, self.size.backlog) if stand else None
            self.report.row(str(kind), latency, rate, rate and rate * TXLOGS)
        self._load_since(began)

    def fleets(self) -> None:
        """Many tables in one daemon."""
        columns = ("storage, catalog", "latency, ms", "commits/s", "visible p50, ms", "p99, ms", "CPU, cores")
        title = f"{self.size.tables} tables in one daemon, a txlog a second each, {self.size.fleet_seconds} s"
        note = f"polling every {_POLLED * 1000:.0f} ms; from the put of a txlog, which itself takes no longer"
        self.report.table("latency-tables", title, (*columns, "requests/s", "CPU a request, ms"), note)
        began = os.getloadavg()[0]
        keys = {"every": f"{_POLLED}s", "made": schema(3), "tables": self.size.tables}
        for kind, latency, stand in self.each(self.size.fleets, **keys):
            self.report.row(str(kind), latency, *(fleet_of(stand, self.size.fleet_seconds) if stand else [None] * 6))
        self._load_since(began)

    def _load_since(self, began: float) -> None:
        loads = f"{began:.1f} before, {os.getloadavg()[0]:.1f} after"
        self.report.note(f"load of this machine, which runs the servers and the proxies too: {loads}")


def measure(chosen: Chosen) -> None:
    """
    Ticks one by one, real writers, a backlog, many tables.
    """
    size = SIZES[chosen.size]
    wanted = [*size.ticks, *size.paces, *size.rates, *size.fleets]
    places = dict[str, Where | Unavailable]()
    with chosen.folder() as root, ExitStack() as stack:
        for storage in dict.fromkeys(kind.storage for kind in wanted):
            rest = Kind(storage, REST) in wanted
            try:
                places[storage] = stack.enter_context(where(storage, root, rest))
            except Unavailable as exc:
                places[storage] = exc
        run = Run(chosen.report, size, root, places)
        run.ticks()
        run.paces()
        run.rates()
        if size.fleets:
            run.fleets()


if __name__ == "__main__":
    alone(measure, __doc__)
