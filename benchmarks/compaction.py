"""
The embedded compactor alone: files read, written anew and published as a rewrite, by their size, unsorted and sorted.

    python -m benchmarks.compaction [--toy | --big]

Each row is a process of its own, whose peak of memory is shown beside what it had before the first rewrite. The table
holds no data: only what a compactor does is measured, no plan and no commit.
"""

import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.support.harness import Chosen, Timing, alone, cpu_ms, number
from benchmarks.support.lake import Lake
from benchmarks.support.synthetic import moment

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Case:
    """So many files of so many rows with values of `width` random and repeated bytes, so many of them in a group."""

    files: int
    rows: int
    width: int
    group: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """What is rewritten."""

    cases: tuple[Case, ...]


SHORT = (
    Case(300, 30, 900, 300),
    Case(3_300, 30, 900, 300),
    Case(3_300, 30, 900, 3_300),
    Case(16, 40_000, 900, 16),
    Case(16, 40_000, 900, 16, last=True),
    Case(16, 500_000, 20, 16),
    Case(16, 500_000, 20, 16, last=True),
)
SIZES = {
    "toy": Size((Case(4, 10, 100, 2), Case(2, 10, 100, 2, last=True))),
    "short": Size(SHORT),
    "big": Size((*SHORT, Case(64, 40_000, 900, 64), Case(64, 40_000, 900, 64, last=True))),
}
COLUMNS = (
    "files x size", "order", "Arrow, MB", "stored, MB", "new files", "s", "CPU, s", "stored MB/s", "Arrow MB/s",
    "before, MiB", "peak, MiB",
)  # fmt: skip


def prepared(root: Path, case: Case) -> tuple[Lake, list[Any], int]:
    """
    A table that is sorted by its key, files of its schema in its data path, and the bytes of their rows as Arrow.
    """
    from pyiceberg.transforms import IdentityTransform

    from bookkeeper.contract.rewrite import ReplacedFile
    from bookkeeper.format.bounds import leaves
    from bookkeeper.format.parquet_writer import ParquetFile
    from bookkeeper.stores.open import open_store

    lake = Lake.at(root, partition_by=[])
    with lake.table().update_sort_order() as update:
        update.asc("key", IdentityTransform())
    card = lake.folder.card()
    store, columns = open_store(card.data_path), leaves(card.schema, {})
    found, size = [], 0
    for index in range(case.files):
        rows = rows_of(case, index)
        size += rows.nbytes
        file = ParquetFile(rows.schema, columns, card.compression, 2**40)
        file.add(rows)
        done = file.finish()
        store.upload(f"{index}.parquet", done.data)
        described = done.described(f"{card.data_path}/{index}.parquet", "PARQUET", ())
        found.append(ReplacedFile(described, index + 1, index + 1))
    return lake, found, size


def rows_of(case: Case, index: int) -> pa.Table:
    """
    The rows of one file.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    from bookkeeper.commands.init import DEFAULT_SCHEMA, schema_of

    half = case.width // 2
    noise = os.urandom(half * case.rows)
    values = [noise[at * half : (at + 1) * half] + b"v" * half for at in range(case.rows)]
    keys = [os.urandom(8).hex() for _ in range(case.rows)]
    times = [moment(index * case.rows + at) for at in range(case.rows)]
    given = {"timestamp": times, "key": keys, "value": values}
    schema = schema_to_pyarrow(schema_of(DEFAULT_SCHEMA))
    return pa.table([pa.array(given[field.name], field.type) for field in schema], schema=schema)


def rewritten(root: Path, case: Case) -> dict[str, Any]:
    """
    All groups of a case; in a process of its own.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        lake, files, size = child.submit(_prepare, root, case).result()
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        return {"arrow": size, **child.submit(_rewrite, lake, files, case).result()}


def _prepare(root: Path, case: Case) -> tuple[str, list[Any], int]:
    lake, files, size = prepared(root, case)
    return str(lake.path), files, size


def _rewrite(config_path: str, files: list[Any], case: Case) -> dict[str, Any]:
    from benchmarks.support.harness import now
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.config import load
    from bookkeeper.contract.rewrite import Base
    from reaper.compactor.group import Group
    from reaper.compactor.worker import rewrite
    from reaper.context import ReaperContext

    settings = load.load(config_path, {})
    chosen = settings.tables["events"]
    context = ReaperContext.of(chosen, open_catalog(settings.catalog), None, now())
    table = context.load()
    base = Base(str(table.metadata.table_uuid), 1, len(files))
    before, wall, cpu, done = _peak(), time.perf_counter(), cpu_ms(), []
    for begin in range(0, len(files), case.group):
        group = Group(0, (), tuple(files[begin : begin + case.group]), "measured", case.last)
        options: Any = {"now": now(), "bytes_per_second": None, "stopped": lambda: False}
        done.append(rewrite(context, table, base, group, **options))
    return {
        "new": sum(item.new_files for item in done),
        "read": sum(item.read_bytes for item in done),
        "took": Timing((time.perf_counter() - wall) * 1000, cpu_ms() - cpu),
        "before": before,
        "peak": _peak(),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(chosen: Chosen) -> None:
    """
    One row per case.
    """
    report = chosen.report
    report.table("compaction", "Files rewritten by the embedded compactor", COLUMNS)
    for case in SIZES[chosen.size].cases:
        with chosen.folder() as root:
            found = rewritten(root, case)
        seconds, cpu = found["took"].wall / 1000, found["took"].cpu / 1000
        report.row(
            f"{case.files:,} x {number(found['read'] / case.files / 1024)} KiB, {case.group:,} a group",
            "sorted" if case.last else "as it is",
            found["arrow"] / 1e6,
            found["read"] / 1e6,
            found["new"],
            seconds,
            cpu,
            found["read"] / 1e6 / seconds,
            found["arrow"] / 1e6 / seconds,
            found["before"],
            found["peak"],
        )


if __name__ == "__main__":
    alone(measure, __doc__)
