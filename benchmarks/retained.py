"""
A commit of 5 files against the number of snapshots that are retained.

    python -m benchmarks.retained [--peer SCRIPT]

Every side commits to the same table, whose metadata lists so many snapshots. Stock pyiceberg stops at 1,000.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import floor
from benchmarks.support.harness import (
    FLOOR,
    HADOOP,
    JDBC,
    OURS,
    STOCK,
    Chosen,
    Timing,
    alone,
    in_turns,
    median,
    now,
    timed,
    times,
)
from benchmarks.support.history import lengthen, share_with_hadoop
from benchmarks.support.peers import HADOOP_CATALOG, JDBC_CATALOG, Peer, stock_append, stock_file
from benchmarks.support.synthetic import Queue, data_file, schema
from bookkeeper.catalogs.open import open_catalog

FILES = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How many snapshots, and how many commits of each side; the first fifth is to warm up."""

    retained: tuple[int, ...]
    rounds: int
    stock_rounds: int
    peer_rounds: int
    stock_most: int = 1_000


SIZES = {
    "toy": Size((3, 6), 5, 1, 3),
    "short": Size((100, 1_000, 10_000), 50, 3, 150),
    "big": Size((100, 1_000, 10_000), 200, 5, 400, 10_000),
}
COLUMNS = ("retained snapshots", OURS, FLOOR, HADOOP, JDBC, STOCK, "Hadoop / ours", "Jdbc / ours", "stock / ours")


class Ours:
    """One table: a tick with one txlog of 5 files, and the bytes it wrote written and fsynced once more."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.book = queue, queue.book()
        self.written: list[int] = []

    def tick(self) -> Timing:
        """One commit."""
        self.queue.publish(1, FILES, now())
        before = floor.sizes_in(self.queue.metadata)
        took = timed(lambda: self.book.tick(now()))
        self.written = floor.written_since(before, self.queue.metadata)
        return took

    def floor(self) -> Timing:
        """The same bytes."""
        return timed(lambda: floor.write_all(self.queue.root / "floor", self.written))


def ours_and_floor(root: Path, size: Size) -> dict[str, Timing]:
    """
    "ours" and "floor" of each number of snapshots: a disk that is faster a minute later must not decide between them.
    """
    sides: dict[str, Callable[[], Timing]] = {}
    for retained in size.retained:
        one = Ours(long_queue(root / str(retained), retained))
        sides |= {f"{OURS} {retained}": one.tick, f"{FLOOR} {retained}": one.floor}
    warm = size.rounds // 5
    return in_turns(sides, size.rounds - warm, warm)


def stock(queue: Queue, rounds: int) -> Timing:
    """
    pyiceberg's fast append of 5 files to the same table.
    """
    table = open_catalog(queue.catalog).load_table("ns.t")
    taken = []
    for turn in range(rounds + 1):
        paths = (f"{table.location()}/data/s{turn}-{index}" for index in range(FILES))
        made = [stock_file(data_file(schema(3), path, index)) for index, path in enumerate(paths)]
        taken.append(timed(lambda made=made: stock_append(table, made)))
    return median(taken[1:])


def java(peer: Peer, root: Path, catalog: str, retained: int, rounds: int) -> Timing:
    """
    The peer's commits of one log of 5 files each, to its own table lengthened likewise; the later half.
    """
    peer.run("write", root, catalog, n=1, files_per_log=FILES, sets=rounds)
    if catalog == JDBC_CATALOG:
        queue = long_queue(root, retained)
    else:
        queue = long_queue(root / "ours", retained)
        share_with_hadoop(queue, root)
    os.sync()
    said = peer.run("drain", root, catalog)["rounds"][rounds // 2 :]
    return median(Timing(item["read_ms"] + item["commit_ms"], item["cpu_ms"]) for item in said)


def long_queue(root: Path, retained: int) -> Queue:
    """
    A queue whose table lists so many snapshots.
    """
    root.mkdir(exist_ok=True)
    queue = Queue.at(root)
    queue.publish(1, FILES, now())
    queue.book().tick(now())
    lengthen(queue, retained)
    return queue


def measure(chosen: Chosen) -> None:
    """
    One row per number of snapshots.
    """
    size, report = SIZES[chosen.size], chosen.report
    report.table("retained", "One commit of 5 files against retained snapshots; wall (CPU), ms", COLUMNS)
    with chosen.folder() as root:
        taken = ours_and_floor(root, size)
    for retained in size.retained:
        us, least = taken[f"{OURS} {retained}"], taken[f"{FLOOR} {retained}"]
        others: list[Timing | None] = [None, None, None]
        for index, catalog in enumerate((HADOOP_CATALOG, JDBC_CATALOG) if chosen.peer else ()):
            with chosen.folder() as root:
                others[index] = java(chosen.peer, root, catalog, retained, size.peer_rounds)  # type: ignore[arg-type]
        if retained <= size.stock_most:
            with chosen.folder() as root:
                others[2] = stock(long_queue(root, retained), size.stock_rounds)
        report.row(f"{retained:,}", us, least, *others, *(times(item, us) for item in others))
        first = taken[f"{OURS} {size.retained[0]}"]
        report.note(f"{us.wall / first.wall:.2f} x ours at {size.retained[0]:,}")


if __name__ == "__main__":
    alone(measure, __doc__)
