"""
Loading files: `writer lines` in blocks, line by line, and the floor of pyarrow's own reader and writer.

    python -m benchmarks.loading

The rows are like those of nycflights13 (336,776 rows of 19 columns, missing values as NA in CSV and null in JSON). All
sides use one core. The floor reads the file and writes one Parquet file with the same codec: no position, no bad lines,
no txlog, no fsync, and what Arrow takes without a word is taken.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, PrimitiveType, StringType, TimestamptzType

from benchmarks.support.harness import FLOOR, OURS, Chosen, Timing, alone, in_turns, now, number, timed, times
from benchmarks.support.lake import configured
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise
from bookkeeper.config import load as config
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.writer import Writer

BY_LINE, ONE_BAD = "line by line", "with one bad line"
NULL = "NA"


@dataclass(frozen=True, slots=True)
class Size:
    """Rows of the file, rows of the file that is loaded line by line; rounds, of which the first are to warm up."""

    rows: int
    few: int
    rounds: int
    warm: int


SIZES = {
    "toy": Size(200, 100, 1, 0),
    "short": Size(336_776, 20_000, 3, 1),
    "big": Size(336_776, 336_776, 5, 1),
}
_INT, _LONG, _REAL, _TEXT = IntegerType(), LongType(), DoubleType(), StringType()
_KINDS: dict[str, PrimitiveType] = {
    "year": _INT,
    "month": _INT,
    "day": _INT,
    "dep_time": _INT,
    "sched_dep_time": _INT,
    "dep_delay": _REAL,
    "arr_time": _INT,
    "sched_arr_time": _INT,
    "arr_delay": _REAL,
    "carrier": _TEXT,
    "flight": _LONG,
    "tailnum": _TEXT,
    "origin": _TEXT,
    "dest": _TEXT,
    "air_time": _INT,
    "distance": _LONG,
    "hour": _INT,
    "minute": _INT,
    "time_hour": TimestamptzType(),
}
SCHEMA = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(_KINDS.items(), 1)))
COLUMNS = (
    *("format, rows", OURS, ONE_BAD, FLOOR, f"{BY_LINE}, rows/s", "ours, rows/s", "ours, MB/s"),
    *(f"{BY_LINE} : ours", "ours : floor"),
)


def flights(count: int) -> Iterator[list[Any]]:
    """
    Rows like those of nycflights13: one in 33 flights never left.
    """
    dice = random.Random(13)
    for _ in range(count):
        left = dice.random() > 0.03
        month, day, hour, minute = dice.randint(1, 12), dice.randint(1, 28), dice.randint(5, 23), dice.randint(0, 59)
        late, planned = dice.randint(-20, 180), hour * 100 + minute
        yield [
            *(2013, month, day, planned + 7 if left else None, planned, float(late) if left else None),
            *(dice.randint(1, 2400) if left else None, dice.randint(1, 2400), float(late - 5) if left else None),
            *(dice.choice(["UA", "AA", "B6", "DL"]), dice.randint(1, 8500), f"N{dice.randint(10_000, 99_999)}"),
            *(dice.choice(["EWR", "JFK", "LGA"]), dice.choice(["IAH", "MIA", "ORD", "LAX"])),
            *(dice.randint(20, 690) if left else None, dice.randint(80, 4983), hour, minute),
            f"2013-{month:02d}-{day:02d}T{hour:02d}:00:00Z",
        ]


def written(path: Path, kind: str, count: int, bad: bool = False) -> Path:
    """
    A file of flights, with a bad line in its middle if `bad`.
    """
    with path.open("w") as out:
        if kind == "csv":
            out.write(",".join(_KINDS) + "\n")
        for index, row in enumerate(flights(count)):
            if bad and index == count // 2:
                out.write("this is no flight\n")
            cells = [NULL if value is None else str(value) for value in row]
            out.write(",".join(cells) if kind == "csv" else json.dumps(dict(zip(_KINDS, row, strict=True))))
            out.write("\n")
    return path


@contextmanager
def one_core() -> Iterator[None]:
    """Arrow's threads for the CPU are one."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(before)


def load(folder: str, path: Path, form: Format, bad: int, numbers: Iterator[int]) -> None:
    """
    The file as `writer lines` loads it, under a name of its own.
    """
    with Writer.open(folder, f"bench-{next(numbers)}", clock=now) as writer, BadLines(path.with_suffix(".bad")) as side:
        Loader(writer, form, side, now).load_files([str(path)])
    if side.count != bad:
        raise AssertionError(f"{side.count} bad lines, {bad} were made")


def at_least(path: Path, kind: str, target: Path) -> None:
    """
    The floor: pyarrow's reader with the table's types, and one Parquet file.
    """
    schema = schema_to_pyarrow(SCHEMA, include_field_ids=False)
    if kind == "csv":
        rows = pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(use_threads=False),
            convert_options=pa_csv.ConvertOptions(column_types=schema, null_values=[NULL], strings_can_be_null=True),
        )
    else:
        rows = pa_json.read_json(
            path,
            read_options=pa_json.ReadOptions(use_threads=False),
            parse_options=pa_json.ParseOptions(explicit_schema=schema),
        )
    pq.write_table(rows, target, compression="zstd")


def sides(root: Path, kind: str, size: Size) -> dict[str, Callable[[], Timing]]:
    """
    What is compared; each call loads its file anew.
    """
    path = configured(root, {}, {"pending_limit": 10_000})
    settings = config.load(str(path), {})
    done = initialise(open_catalog(settings.catalog, create=True), settings.tables["events"], SCHEMA, partition=[])
    form = Format(kind, nulls=(NULL,))
    files = {
        OURS: (written(root / "flights", kind, size.rows), form, 0),
        ONE_BAD: (written(root / "one-bad", kind, size.rows, bad=True), form, 1),
        BY_LINE: (written(root / "few", kind, size.few), Format(kind, nulls=(NULL,), by_line=True), 0),
    }
    names = iter(range(10**6))
    loads = {side: partial(timed, partial(load, done.folder, *given, names)) for side, given in files.items()}
    return {**loads, FLOOR: partial(timed, partial(at_least, root / "flights", kind, root / "floor.parquet"))}


def measure(chosen: Chosen) -> None:
    """
    One row per format.
    """
    size, report = SIZES[chosen.size], chosen.report
    report.table("loading", "A file of lines loaded and published on one core; wall (CPU), ms", COLUMNS)
    for kind in ("ndjson", "csv"):
        with chosen.folder() as root, one_core():
            took = in_turns(sides(root, kind, size), size.rounds, size.warm)
            megabytes = os.path.getsize(root / "flights") / 1e6
        us, slow = took[OURS], took[BY_LINE]
        scaled = Timing(slow.wall * size.rows / size.few, (slow.cpu or 0) * size.rows / size.few)
        speeds = (size.few / slow.wall * 1000, size.rows / us.wall * 1000, megabytes / us.wall * 1000)
        ratios = (times(scaled, us), times(us, took[FLOOR]))
        report.row(f"{kind}, {size.rows:,}", us, took[ONE_BAD], took[FLOOR], *map(number, speeds), *ratios)


if __name__ == "__main__":
    alone(measure, __doc__)
