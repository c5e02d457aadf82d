"""
The curve: commits of 5 files in a row, with reaper, retention and merge at work; p50 and p99 per window of 100.

    python -m benchmarks.curve [--peer SCRIPT] [--big]

A commit is a tick: list, read, check, commit, marks.json, delete. Every 100 commits the reaper expires to 100
snapshots and deletes what nothing needs, as the peer does; that is timed apart. The peer has no retention in its
loop, and stock pyiceberg has neither it nor a reaper: its snapshots are expired in its catalog only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.support.harness import (
    HADOOP,
    JDBC,
    OURS,
    STOCK,
    Chosen,
    Timing,
    alone,
    cpu_ms,
    now,
    percentile,
    timed,
    times,
)
from benchmarks.support.peers import HADOOP_CATALOG, JDBC_CATALOG, Peer, stock_append, stock_file
from benchmarks.support.synthetic import Queue, data_file, moment, schema
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper
from reaper.run import reap

FILES, EVERY, RETAIN = 5, 100, 100


@dataclass(frozen=True, slots=True)
class Size:
    """Commits of ours and the peer, of stock pyiceberg, how many are to warm up, and how many files stay live."""

    commits: int
    stock: int
    warm: int
    part: int
    live: int


SIZES = {
    "toy": Size(40, 20, 10, 10, 50),
    "short": Size(2_000, 400, 200, 400, 2_500),
    "big": Size(10_000, 1_000, 200, 1_000, 10_000),
}
WINDOW = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds of each commit, CPU of all of them, and milliseconds of each expiry."""

    commits: Sequence[float]
    cpu: float | None = None
    expiry: Sequence[float] = ()


class Retaining:
    """Ours: a queue whose retention keeps so many files, and whose reaper keeps 100 snapshots."""

    def __init__(self, root: Path, live: int) -> None:
        self.queue = Queue.at(root)
        self.queue.settings = replace(self.queue.settings, reaper=Reaper(older_than=timedelta(0), retain_last=RETAIN))
        self.live = live
        self.book = self.queue.book()
        self.catalog = open_catalog(self.queue.catalog)

    def keep(self, at: datetime) -> None:
        """Sets retention so that the newest `live` files are kept; it looks every 10 commits."""
        aged = at - moment(self.queue.files) + timedelta(seconds=self.live)
        retention = replace(self.queue.settings.retention, keep=aged, every=timedelta(0), brake=1.0)
        self.book.duties.retention.settings = replace(self.queue.settings, retention=retention)

    def commit(self, turn: int) -> Timing:
        """One tick with one txlog."""
        self.queue.publish(1, FILES, now())
        at = now()
        if turn % 10 == 0:
            self.keep(at)
        self.book.duties.retention.due.last = at if turn % 10 else at - timedelta(days=1)
        return timed(lambda: self.book.tick(at))

    def reap(self) -> Timing:
        """One run of the reaper."""
        return timed(lambda: reap(self.catalog, self.queue.settings, now(), release_brake=True))


def ours(root: Path, size: Size) -> Curve:
    """
    Every commit of ours.
    """
    side, commits, expiry, cpu = Retaining(root, size.live), [], [], 0.0
    for turn in range(size.commits):
        took = side.commit(turn)
        commits.append(took.wall)
        cpu += took.cpu or 0
        if (turn + 1) % EVERY == 0:
            expiry.append(side.reap().wall)
    return Curve(commits, cpu / size.commits, expiry)


def stock(root: Path, size: Size) -> Curve:
    """
    Every commit of stock pyiceberg, its snapshots expired every 100.
    """
    queue = Queue.at(root)
    table = open_catalog(queue.catalog).load_table("ns.t")
    commits, expiry, cpu = [], [], cpu_ms()
    for turn in range(size.stock):
        paths = (f"{table.location()}/data/{turn}-{index}" for index in range(FILES))
        made = [stock_file(data_file(schema(3), path, index)) for index, path in enumerate(paths)]
        commits.append(timed(partial(stock_append, table, made)).wall)
        if (turn + 1) % EVERY == 0:
            snapshots = sorted(table.metadata.snapshots, key=lambda item: item.timestamp_ms)[:-RETAIN]
            old = [item.snapshot_id for item in snapshots]
            expiry.append(timed(table.maintenance.expire_snapshots().by_ids(old).commit).wall)
            table = table.refresh()
    return Curve(commits, (cpu_ms() - cpu) / size.stock, expiry)


def java(peer: Peer, root: Path, catalog: str, size: Size) -> tuple[list[tuple[float, float]], float, float]:
    """
    p50 and p99 of each window of the peer, CPU per commit (its expiry included), p50 of its expiry.
    """
    said = peer.run(
        "loop", root, catalog, commits=size.commits, files_per_commit=FILES, retain=RETAIN, every=EVERY, window=WINDOW
    )
    windows = [(item["p50"], item["p99"]) for item in said["per_window"]]
    return windows, said["cpu_ms_per_commit"], said.get("expire_ms", {}).get("p50", 0.0)


def windows(values: Sequence[float]) -> list[tuple[float, float]]:
    """
    p50 and p99 of each window of 100.
    """
    parts = [values[start : start + WINDOW] for start in range(0, len(values), WINDOW)]
    return [(percentile(part, 0.5), percentile(part, 0.99)) for part in parts]


COLUMNS = ("side", "first p50", "first p99", "last p50", "last p99", "p50 ratio", "p99 ratio", "CPU", "expiry p50")


def measure(chosen: Chosen) -> None:
    """
    The table, and the points of the plot.
    """
    size, report = SIZES[chosen.size], chosen.report
    title = f"{size.commits:,} commits of {FILES} files in a row, reaper and merge at work; ms"
    note = (
        f"first and last {size.part:,} commits after {size.warm} to warm up; CPU and expiry are of one commit, one run"
    )
    report.table("curve", title, COLUMNS, note)
    with chosen.folder() as root:
        us = ours(root, size)
    _keep(chosen, OURS, windows(us.commits))
    report.row(OURS, *_parts(us.commits, size), us.cpu, percentile(us.expiry or [0.0], 0.5))
    for name, catalog in ((HADOOP, HADOOP_CATALOG), (JDBC, JDBC_CATALOG)):
        if chosen.peer is None:
            report.row(name, *[None] * (len(COLUMNS) - 1))
            continue
        with chosen.folder() as root:
            points, cpu, expiry = java(chosen.peer, root, catalog, size)
        _keep(chosen, name, points)
        report.row(name, *_of_windows(points, size), cpu, expiry)
    with chosen.folder() as root:
        other = stock(root, size)
    _keep(chosen, STOCK, windows(other.commits))
    warm = min(size.warm, size.stock // 4)
    shorter = replace(size, commits=size.stock, warm=warm, part=(size.stock - warm) // 2)
    report.row(STOCK, *_parts(other.commits, shorter), other.cpu, percentile(other.expiry or [0.0], 0.5))
    report.note(f"{STOCK} stops after {size.stock:,} commits")


def _parts(values: Sequence[float], size: Size) -> tuple[float | str, ...]:
    first, last = values[size.warm : size.warm + size.part], values[-size.part :]
    shown = [percentile(part, share) for part in (first, last) for share in (0.5, 0.99)]
    return (*shown, times(shown[2], shown[0]), times(shown[3], shown[1]))


def _of_windows(points: Sequence[tuple[float, float]], size: Size) -> tuple[float | str, ...]:
    """The same of the peer, which says only p50 and p99 of windows: medians of p50s, and the worst p99."""
    count, skip = max(1, size.part // WINDOW), 0
    first, last = points[skip : skip + count], points[-count:]
    shown = [f for part in (first, last) for f in (percentile([p for p, _ in part], 0.5), max(q for _, q in part))]
    return (*shown, times(shown[2], shown[0]), times(shown[3], shown[1]))


def _keep(chosen: Chosen, side: str, points: Sequence[tuple[float, float]]) -> None:
    rounded = [[round(value, 3) for value in pair] for pair in points]
    chosen.report.keep({"plot": "curve", "side": side, "window": WINDOW, "points": rounded})


if __name__ == "__main__":
    alone(measure, __doc__)
