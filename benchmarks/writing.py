"""
Writers: rows and bytes per second against plain `pyarrow.parquet.write_table` of the same rows.

    python -m benchmarks.writing [--peer SCRIPT]

Ours takes the rows, writes and fsyncs the Parquet file, reads its statistics, and publishes the txlog. Plain pyarrow
writes the same file with the same codec; with fsync, so that as much is safe; the floor is the file's bytes alone.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support import floor
from benchmarks.support.harness import FLOOR, OURS, Chosen, Timing, alone, in_turns, number, timed, times
from benchmarks.support.lake import Lake
from benchmarks.support.peers import HADOOP_CATALOG
from benchmarks.support.synthetic import moment
from writers.generate import Load
from writers.writer import Writer

PLAIN, SYNCED, JAVA = "pyarrow", "pyarrow + fsync", "Java GenericRecord"


@dataclass(frozen=True, slots=True)
class Size:
    """Rows of a file, bytes of a value; rounds, of which the first are to warm up."""

    shapes: tuple[tuple[int, int], ...]
    rounds: int
    warm: int


SIZES = {
    "toy": Size(((200, 100),), 2, 1),
    "short": Size(((20_000, 1_700), (1_000_000, 20)), 15, 3),
    "big": Size(((20_000, 1_700), (1_000_000, 20)), 40, 5),
}
COLUMNS = ("rows x value bytes", OURS, PLAIN, SYNCED, FLOOR, JAVA, "ours, rows/s", "ours, MB/s", "ours : pyarrow")


def _plain(rows: pa.Table, path: Path, sync: bool) -> None:
    pq.write_table(rows, path, compression="zstd")
    if sync:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def sides(root: Path, rows: pa.Table) -> dict[str, Callable[[], Timing]]:
    """
    What is compared; each call writes one file anew.
    """
    lake = Lake.at(root / "lake", pending_limit=10_000, target_file_size="1GiB")
    writer = Writer.open(lake.folder.store.url, name="bench")
    names = iter(range(10**6))
    _plain(rows, root / "once.parquet", False)
    size = (root / "once.parquet").stat().st_size

    def ours() -> None:
        writer.write(rows)
        writer.publish()

    return {
        OURS: partial(timed, ours),
        PLAIN: lambda: timed(partial(_plain, rows, root / f"{next(names)}.parquet", False)),
        SYNCED: lambda: timed(partial(_plain, rows, root / f"{next(names)}.parquet", True)),
        FLOOR: partial(timed, partial(floor.write_all, root / "floor", [size])),
    }


def measure(chosen: Chosen) -> None:
    """
    One row per shape of a file.
    """
    size, report = SIZES[chosen.size], chosen.report
    report.table("writing", "One file written and published; wall (CPU), ms", COLUMNS)
    for count, width in size.shapes:
        rows = pa.concat_tables(Load("w", "r", count, width).file(0, moment(0))).combine_chunks()
        with chosen.folder() as root:
            took = in_turns(sides(root, rows), size.rounds, size.warm)
        java = None
        if chosen.peer is not None:
            with chosen.folder() as root:
                said = chosen.peer.run("writers", root, HADOOP_CATALOG, n=size.rounds, rows=count, bytes=width)
            java = Timing(sorted(said["ms_per_file"][size.warm :])[(size.rounds - size.warm) // 2])
        us = took[OURS]
        speed = (number(count / us.wall * 1000), number(rows.nbytes / us.wall / 1000))
        shown = (us, took[PLAIN], took[SYNCED], took[FLOOR], java)
        report.row(f"{count:,} x {width:,}", *shown, *speed, times(took[PLAIN], us))


if __name__ == "__main__":
    alone(measure, __doc__)
