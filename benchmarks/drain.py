"""
Drain of 1,000 txlogs: read + check + commit (deletes apart), against stock pyiceberg and the peer in Iceberg Java.

    python -m benchmarks.drain [--peer SCRIPT] [--rounds 8] [--peer-rounds 20]
"""

import argparse
import json
import resource
import statistics
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFile as StockFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from benchmarks.made import Queue, data_file, schema
from bookkeeper.core.catalog import open_catalog
from bookkeeper.daemon import Bookkeeper
from bookkeeper.ledger.ledger import Ledger

SHAPES = ((1, 3), (10, 3), (1, 50), (10, 50))
TXLOGS = 1000
Figures = tuple[float, float]  # wall and CPU, ms


def now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


def ours(root: Path, files: int, columns: int, rounds: int) -> Figures:
    """
    Medians of the rounds but the first two, without the time that deletes took.
    """
    queue = Queue.at(root, columns)
    book = Bookkeeper(queue.settings, queue.folder, Ledger(open_catalog(queue.catalog), "ns.t", now))
    deletes = Deletes(book)
    taken = []
    for _ in range(rounds):
        queue.publish(TXLOGS, files, now())
        deletes.wall = deletes.cpu = 0.0
        wall, cpu = time.perf_counter(), _cpu()
        turn = book.tick(now())
        taken.append((time.perf_counter() - wall - deletes.wall, _cpu() - cpu - deletes.cpu))
        assert turn.commit is not None and turn.commit.files == TXLOGS * files, turn
    return _medians(taken[2:])


class Deletes:
    """Takes the time that a bookkeeper spends on deleting consumed txlogs."""

    def __init__(self, book: Bookkeeper) -> None:
        self.wall = self.cpu = 0.0
        self._delete = book.folder.delete
        book.folder.delete = self  # type: ignore[method-assign,assignment]

    def __call__(self, names: Any) -> int:
        wall, cpu = time.perf_counter(), _cpu()
        done = self._delete(names)
        self.wall, self.cpu = self.wall + time.perf_counter() - wall, self.cpu + _cpu() - cpu
        return done


def stock(root: Path, files: int, columns: int, rounds: int) -> Figures:
    """
    pyiceberg's own fast append of the same data files, given to it ready made: it reads no txlogs and checks nothing.
    """
    queue = Queue.at(root, columns)
    table = open_catalog(queue.catalog).load_table("ns.t")
    taken = []
    for number in range(rounds):
        made = [
            _stock_file(data_file(schema(columns), f"{table.location()}/data/{number}-{index}", index))
            for index in range(TXLOGS * files)
        ]
        wall, cpu = time.perf_counter(), _cpu()
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in made:
                append.append_data_file(file)
        taken.append((time.perf_counter() - wall, _cpu() - cpu))
    return _medians(taken[1:])


def _stock_file(file: Any) -> StockFile:
    made = StockFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        split_offsets=[4],
        sort_order_id=0,
        equality_ids=None,
        key_metadata=None,
    )
    made.spec_id = 0
    return made


def java(script: str, root: Path, files: int, columns: int, rounds: int) -> Figures:
    """
    The peer's last round (warm): list + read + commit of its own serialized logs; it checks nothing.
    """
    shape = ["--dir", str(root), "--cols", str(columns)]
    _peer(script, "write", *shape, "--n", str(TXLOGS), "--files-per-log", str(files), "--sets", str(rounds))
    last = _peer(script, "drain", *shape)["rounds"][-5:]
    wall = statistics.median(item["read_ms"] + item["commit_ms"] for item in last)
    return wall, statistics.median(item["cpu_ms"] for item in last)


def _peer(script: str, *arguments: str) -> Any:
    done = subprocess.run([script, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _medians(taken: list[tuple[float, float]]) -> Figures:
    wall, cpu = zip(*taken, strict=True)
    return statistics.median(wall) * 1000, statistics.median(cpu) * 1000


def _temporary() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="bench-")


def main() -> None:
    """
    Print the table.
    """
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peer", help="script of the Java peer; without it its columns say 'not run'")
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--peer-rounds", type=int, default=20)
    options.add_argument("--stock-rounds", type=int, default=2)
    chosen = options.parse_args()
    print(f"{TXLOGS} txlogs, read + check + commit; wall (CPU), ms, medians")
    print(f"{'shape':<16}{'ours':>16}{'stock pyiceberg':>20}{'Java, warm':>20}{'stock/ours':>12}{'Java/ours':>18}")
    for files, columns in SHAPES:
        with _temporary() as one, _temporary() as two, _temporary() as three:
            us = ours(Path(one), files, columns, chosen.rounds)
            other = stock(Path(two), files, columns, chosen.stock_rounds)
            peer = java(chosen.peer, Path(three), files, columns, chosen.peer_rounds) if chosen.peer else None
        against = f"{peer[0] / us[0]:.1f} ({peer[1] / us[1]:.1f})" if peer else "-"
        print(
            f"{f'{files} x {columns} col':<16}{_shown(us):>16}{_shown(other):>20}"
            f"{_shown(peer) if peer else 'not run':>20}{other[0] / us[0]:>12.1f}{against:>18}",
            flush=True,
        )


def _shown(figures: Figures) -> str:
    return f"{figures[0]:.0f} ({figures[1]:.0f})"


if __name__ == "__main__":
    main()
