"""
What compaction saves readers: full scans of one table by other programs, before and after.

    python -m benchmarks.readers

A writer closes one small file after the other, `bookkeeper run` commits them, readers scan every row and column of the
table; then the embedded compactor rewrites the files, and the same readers scan again. Each scan loads the table anew;
the first of each reader is not counted. The files are in the cache of the operating system.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from benchmarks.compaction import Case, rows_of
from benchmarks.support.daemon import running
from benchmarks.support.harness import Chosen, alone, now, number, times
from benchmarks.support.lake import IDENTIFIER, Lake
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.contract.pending_rewrites import pending_rewrites
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from spark_jobs import prepare
from spark_jobs import session as sessions
from tests.histories.readers import duckdb_session
from writers.writer import Writer

#: scans a table once; the rows it read
Scan = Callable[[], int]
SCANS = 3
#: of the machine's time, for rewrites to be committed
LONGEST_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Size:
    """The files, and which readers scan them."""

    files: Case
    readers: tuple[str, ...]


EVERY = ("pyiceberg", "Spark", "DuckDB", "Polars")
SIZES = {
    "toy": Size(Case(20, 22, 900, 0), ("pyiceberg", "DuckDB")),
    "short": Size(Case(3_300, 22, 900, 0), EVERY),
    "big": Size(Case(3_300, 22, 900, 0), EVERY),
}
COLUMNS = ("reader", "before, s", "after, s", "before / after")


def small_files(lake: Lake, case: Case) -> None:
    """
    Each file closed, published and committed on its own, as far as a bookkeeper keeps up.
    """
    with running(lake.path, lake.root / "bookkeeper.log"):
        with Writer.open(lake.folder, "w") as writer:
            for index in range(case.files):
                writer.write(rows_of(case, index))
                writer.publish()
        _until(lambda: not lake.folder.pending())


def compacted(lake: Lake) -> float:
    """
    Rounds of the compactor until there is nothing left to rewrite; seconds.
    """
    catalog, settings = open_catalog(lake.settings.catalog), lake.settings.tables["events"]
    began, compactor = time.monotonic(), Compactor(settings, rewrite, now)
    with running(lake.path, lake.root / "bookkeeper.log"):
        while compactor.round(catalog, now()).rewrites:
            _until(lambda: not pending_rewrites(lake.folder))
    compactor.close()
    return time.monotonic() - began


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError("the bookkeeper does not go on")
        time.sleep(0.1)


def pyiceberg(lake: Lake, stack: ExitStack) -> Scan:
    """
    The table as Arrow.
    """
    return lambda: lake.table().scan().to_arrow().num_rows


def polars(lake: Lake, stack: ExitStack) -> Scan:
    """
    The table as a data frame.
    """
    import polars

    return lambda: polars.scan_iceberg(lake.table()).collect().height


def duckdb(lake: Lake, stack: ExitStack) -> Scan:
    """
    A sum, or a maximum, of each column.
    """
    session = duckdb_session()
    stack.callback(session.close)

    def scan() -> int:
        location = lake.table().metadata_location.removeprefix("file://")
        columns = "max(epoch_us(timestamp)), max(key), sum(octet_length(value))"
        sql = f"SELECT count(*), {columns} FROM iceberg_scan('{location}')"
        return int(session.execute(sql).fetchone()[0])

    return scan


def spark(lake: Lake, stack: ExitStack) -> Scan:
    """
    The same.
    """
    prepare.prepare(os.environ)
    session = sessions.build(lake.settings, app="readers")
    stack.callback(session.stop)
    sql = f"SELECT count(*), max(timestamp), max(key), sum(length(value)) FROM lake.{IDENTIFIER}"
    return lambda: int(session.sql(sql).collect()[0][0])


READERS: dict[str, Callable[[Lake, ExitStack], Scan]] = {
    "pyiceberg": pyiceberg, "Spark": spark, "DuckDB": duckdb, "Polars": polars,
}  # fmt: skip


def scanned(scans: Mapping[str, Scan], rows: int) -> dict[str, float]:
    """
    Seconds of a scan by each reader.
    """
    found = {}
    for name, scan in scans.items():
        took = list[float]()
        for _ in range(SCANS + 1):
            began = time.perf_counter()
            read = scan()
            took.append(time.perf_counter() - began)
            assert read == rows, f"{name} read {read} rows, {rows} were published"
        found[name] = statistics.median(took[1:])
    return found


def measure(chosen: Chosen) -> None:
    """
    One row per reader.
    """
    size, report = SIZES[chosen.size], chosen.report
    case, loaded = size.files, os.getloadavg()[0]
    title = f"A full scan of {case.files * case.rows:,} rows of a kilobyte, before and after compaction"
    report.table("readers", title, COLUMNS)
    with chosen.folder() as root, ExitStack() as stack:
        lake, scans = Lake.at(root / "lake", partition_by=[]), dict[str, Scan]()
        small_files(lake, case)
        for name in size.readers:
            with suppress(ImportError):
                scans[name] = READERS[name](lake, stack)
        files, kib = lake.live_files(), _bytes(lake) / case.files / 1024
        before = scanned(scans, case.files * case.rows)
        took = compacted(lake)
        after = scanned(scans, case.files * case.rows)
        for name in size.readers:
            was, now_is = before.get(name), after.get(name)
            report.row(name, was, now_is, times(was, now_is) if now_is else None)
        less = f"{files:,} files of {number(kib)} KiB became {lake.live_files()} in {number(took)} s"
        report.note(f"{less}; load of this machine {loaded:.1f} before, {os.getloadavg()[0]:.1f} after")


def _bytes(lake: Lake) -> int:
    return sum(task.file.file_size_in_bytes for task in lake.table().scan().plan_files())


if __name__ == "__main__":
    alone(measure, __doc__)
