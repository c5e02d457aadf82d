"""
Drain of 1,000 txlogs: read + check + commit (deletes apart), in steady state and from process start.

    python -m benchmarks.drain [--peer SCRIPT]

The peer and stock pyiceberg read their own serialized data files, check nothing and sync nothing to the disk. The floor
reads the same txlogs as ours, and writes the same bytes of metadata, fsynced.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
    cpu_ms,
    median,
    now,
    timed,
    times,
)
from benchmarks.support.peers import HADOOP_CATALOG, JDBC_CATALOG, Peer, stock_append, stock_file
from benchmarks.support.synthetic import Queue, data_file, schema
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.tick.tick import Bookkeeper

#: of ours; a side's first may have to read its libraries from the disk, as the peer's did long before
STARTS = 3
SHAPES = ((1, 3), (10, 3), (1, 50), (10, 50))


@dataclass(frozen=True, slots=True)
class Size:
    """How many txlogs and how many rounds of each side; of ours the first are to warm up."""

    txlogs: int
    rounds: int
    stock_rounds: int
    peer_rounds: int
    shapes: tuple[tuple[int, int], ...] = SHAPES


SIZES = {
    "toy": Size(10, 2, 1, 2, ((2, 3),)),
    "short": Size(1000, 8, 2, 20),
    "big": Size(1000, 20, 3, 20),
}
COLUMNS = (OURS, FLOOR, HADOOP, JDBC, STOCK, "Hadoop / ours", "Jdbc / ours", "stock / ours")


class Deletes:
    """Takes the time that a bookkeeper spends on deleting consumed txlogs."""

    def __init__(self, book: Bookkeeper) -> None:
        self.wall = self.cpu = 0.0
        self._delete: Callable[[Any], int] = book.folder.delete
        book.folder.delete = self  # type: ignore[method-assign,assignment]

    def __call__(self, names: Any) -> int:
        done = []
        took = timed(lambda: done.append(self._delete(names)))
        self.wall, self.cpu = self.wall + took.wall, self.cpu + (took.cpu or 0)
        return done[0]


def drained(queue: Queue, book: Bookkeeper, deletes: Deletes, txlogs: int, files: int) -> tuple[Timing, Timing]:
    """
    One round of ours, and the floor for what it read and wrote.
    """
    pending = Path(queue.folder.store.url.removeprefix("file://")) / "pending"
    names = queue.publish(txlogs, files, now())
    before = floor.sizes_in(queue.metadata)
    read = timed(lambda: floor.read_all(pending / str(name) for name in names))
    deletes.wall = deletes.cpu = 0.0
    wall, cpu = time.perf_counter(), cpu_ms()
    turn = book.tick(now())
    ours = Timing((time.perf_counter() - wall) * 1000 - deletes.wall, cpu_ms() - cpu - deletes.cpu)
    assert turn.commit is not None and turn.commit.files == txlogs * files, turn
    written = floor.written_since(before, queue.metadata)
    write = timed(lambda: floor.write_all(queue.root / "floor", written))
    return ours, Timing(read.wall + write.wall, (read.cpu or 0) + (write.cpu or 0))


def ours_and_floor(root: Path, files: int, columns: int, size: Size, rounds: int) -> tuple[Timing, Timing]:
    """
    Medians of the later half of the rounds.
    """
    queue = Queue.at(root, columns)
    book = queue.book()
    deletes = Deletes(book)
    taken = [drained(queue, book, deletes, size.txlogs, files) for _ in range(rounds)][rounds // 2 :]
    ours, least = zip(*taken, strict=True)
    return median(ours), median(least)


def stock(root: Path, files: int, columns: int, size: Size) -> Timing:
    """
    pyiceberg's own fast append of the same data files, which it finds serialized in as many files as we do.
    """
    table = open_catalog(Queue.at(root, columns).catalog).load_table("ns.t")
    taken = []
    for turn in range(size.stock_rounds + 1):
        folder = root / f"logs-{turn}"
        folder.mkdir()
        for log in range(size.txlogs):
            numbers = range(log * files, (log + 1) * files)
            paths = (f"{table.location()}/data/{turn}-{number}" for number in numbers)
            made = [data_file(schema(columns), path, index) for index, path in zip(numbers, paths, strict=True)]
            (folder / str(log)).write_bytes(pickle.dumps([stock_file(file) for file in made]))
        os.sync()
        taken.append(timed(partial(_stock_turn, table, folder)))
    return median(taken[1:])


def _stock_turn(table: Any, folder: Path) -> None:
    stock_append(table, [file for path in sorted(folder.iterdir()) for file in pickle.loads(path.read_bytes())])


def java(peer: Peer, root: Path, files: int, columns: int, size: Size) -> dict[str, tuple[Timing, float]]:
    """
    By catalog: the last quarter of its rounds (warm), and from the start of its process to its first commit.

    Both drain the same logs, which it writes once.
    """
    folders = {HADOOP_CATALOG: root / "hadoop", JDBC_CATALOG: root / "jdbc"}
    logs = {"n": size.txlogs, "files_per_log": files, "sets": size.peer_rounds}
    peer.run("write", folders[HADOOP_CATALOG], HADOOP_CATALOG, cols=columns, **logs)
    peer.run("write", folders[JDBC_CATALOG], JDBC_CATALOG, cols=columns, n=1)
    shutil.rmtree(folders[JDBC_CATALOG] / "txlogs-0")
    for log in folders[HADOOP_CATALOG].glob("txlogs-*"):
        shutil.copytree(log, folders[JDBC_CATALOG] / log.name, copy_function=os.link)
    os.sync()
    return {name: _java(peer, folder, name, columns, size) for name, folder in folders.items()}


def _java(peer: Peer, folder: Path, catalog: str, columns: int, size: Size) -> tuple[Timing, float]:
    said = peer.run("drain", folder, catalog, cols=columns)
    last = said["rounds"][-max(1, size.peer_rounds // 4) :]
    warm = median(Timing(item["read_ms"] + item["commit_ms"], item["cpu_ms"]) for item in last)
    return warm, said["first_round_from_process_start_ms"] - said["rounds"][0]["delete_ms"]


def from_start(root: Path, files: int, columns: int, size: Size) -> float:
    """
    From the start of `bookkeeper run` to its first commit, all txlogs in it: marks.json follows the commit at once.
    """
    queue = Queue.at(root, columns)
    queue.publish(size.txlogs, files, now())
    options = ["--log-level", "error", "--listen", ""]
    words = [sys.executable, "-m", "bookkeeper", "run", "--config", str(queue.config({})), *options]
    marks = Path(queue.folder.store.url.removeprefix("file://")) / "marks.json"
    started = time.perf_counter()
    process = subprocess.Popen(words)
    while not marks.exists() and process.poll() is None:
        time.sleep(0.001)
    took = (time.perf_counter() - started) * 1000
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0 and marks.exists()
    return took


def measure(chosen: Chosen) -> None:
    """
    Both tables. Ours runs before and after the peers, and the medians are of both.
    """
    size, report, cold = SIZES[chosen.size], chosen.report, []
    title = f"Drain of {size.txlogs:,} txlogs: read + check + commit, steady state; wall (CPU), ms"
    report.table("drain", title, ("files x columns", *COLUMNS))
    for files, columns in size.shapes:
        peers: dict[str, tuple[Timing, float]] = {}
        first = _ours(chosen, files, columns, size)
        if chosen.peer:
            with chosen.folder() as root:
                peers = java(chosen.peer, root, files, columns, size)
        with chosen.folder() as root:
            other = stock(root, files, columns, size)
        second = _ours(chosen, files, columns, size)
        us, least = (median(pair) for pair in zip(first, second, strict=True))
        warm = [peers[name][0] if name in peers else None for name in (HADOOP_CATALOG, JDBC_CATALOG)]
        ratios = [times(item, us) for item in (*warm, other)]
        report.row(f"{files} x {columns}", us, least, *warm, other, *ratios)
        cold.append((files, columns, [peers[name][1] if name in peers else None for name in peers]))
    _cold(chosen, size, cold)


def _ours(chosen: Chosen, files: int, columns: int, size: Size) -> tuple[Timing, Timing]:
    with chosen.folder() as root:
        return ours_and_floor(root, files, columns, size, size.rounds)


def _from_start(chosen: Chosen, files: int, columns: int, size: Size) -> float:
    with chosen.folder() as root:
        return from_start(root, files, columns, size)


def _cold(chosen: Chosen, size: Size, others: list[tuple[int, int, list[float | None]]]) -> None:
    title = f"From process start to the first commit of {size.txlogs:,} txlogs, ms"
    columns = ("files x columns", OURS, HADOOP, JDBC, "Hadoop / ours", "Jdbc / ours")
    chosen.report.table("drain-cold", title, columns)
    for files, wide, found in others:
        us = sorted(_from_start(chosen, files, wide, size) for _ in range(STARTS))[STARTS // 2]
        java_ms = found or [None, None]
        chosen.report.row(f"{files} x {wide}", us, *java_ms, *(times(item, us) for item in java_ms))


if __name__ == "__main__":
    alone(measure, __doc__)
