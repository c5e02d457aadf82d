"""
8c. A change stream through `writer lines`, as flat rows and as Debezium's envelopes, into a keyed table.

    python -m benchmarks.change_stream

A process reads upserts and deletes of random keys from a file. Then a bookkeeper commits what is pending, and a fold
makes the table cheap to read. DuckDB and pyiceberg must see the replay of the changes, else the benchmark fails.
"""

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import ManifestContent

from benchmarks.harness import Chosen, Timing, alone, now, timed
from benchmarks.lake import Lake
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.fold.fold import plan_fold
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.ledger.fold_commit import commit_fold
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.tick.tick import Bookkeeper

COLUMNS = [
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string", "required": False},
    {"name": "op", "type": "string", "required": False},
    {"name": "seq", "type": "long", "required": False},
]
OP_FIELD, DELETES = "__op", 0.2
#: the file, and how `writer lines` is told what it is
FORMATS = {"flat": ("--op-field", OP_FIELD), "debezium": ("--preset", "debezium")}
HEAD = (
    *("changes, keys", "loaded; wall (CPU), ms", "changes/s", "txlogs"),
    *("committed, ms", "folded, ms", "DuckDB reads, ms", "pyiceberg reads, ms"),
)
State = dict[int, str]


@dataclass(frozen=True, slots=True)
class Size:
    """Changes, and the keys that they are of."""

    changes: int
    keys: int


SIZES = {"toy": Size(300, 40), "short": Size(50_000, 5_000), "big": Size(1_000_000, 100_000)}


def changes(size: Size) -> Iterator[tuple[int, str | None]]:
    """Keys and their new values; None is a delete."""
    dice = random.Random(17)
    for number in range(size.changes):
        key = dice.randrange(size.keys)
        yield key, None if dice.random() < DELETES else f"value {number:08d} of {key}"


def written(path: Path, kind: str, size: Size) -> State:
    """Writes the file; what its changes make of an empty table."""
    state = State()
    with path.open("w") as out:
        for key, value in changes(size):
            before = {"id": key, "value": state.get(key)}
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
            after = None if value is None else {"id": key, "value": value}
            op = "d" if value is None else "u"
            envelope = {"before": before, "after": after, "op": op, "ts_ms": 1_700_000_000_000}
            line = {OP_FIELD: op, "id": key, "value": value} if kind == "flat" else {"payload": envelope, "schema": {}}
            out.write(json.dumps(line) + "\n")
    return state


class KeyedLake:
    """A keyed table with op- and order-column, and its bookkeeper."""

    def __init__(self, root: Path) -> None:
        columns = {"schema": COLUMNS, "partition_by": [], "key": ["id"], "op_column": "op", "order_column": "seq"}
        self.lake = Lake.at(root, **columns)
        settings = self.lake.settings.tables["events"]
        self.ledger = Ledger(open_catalog(self.lake.settings.catalog), settings.identifier, now)
        self.book = Bookkeeper(settings, self.lake.folder, self.ledger)

    def load(self, path: Path, kind: str) -> Timing:
        """`writer lines` of the file, as a process."""
        folder = self.lake.folder.store.url
        words = [sys.executable, "-m", "writers", "lines", "--folder", folder, "--name", "changes", "--quiet"]
        words += [*FORMATS[kind], "--max-bad", "0", "--bad", str(path.with_suffix(".bad")), str(path)]
        began, used = time.perf_counter(), _children_ms()
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        return Timing((time.perf_counter() - began) * 1000, _children_ms() - used)

    def commit(self) -> None:
        """Ticks until nothing is pending."""
        for _ in range(1000):
            self.book.tick(now())
            if not self.lake.folder.pending():
                return
        raise AssertionError("txlogs stay pending")

    def fold(self) -> None:
        """All equality delete files become position delete files."""
        folder = self.lake.folder.card().folder
        done = plan_fold(self.ledger, self.ledger.load(folder), now(), os.urandom(10))
        if done.left:
            raise AssertionError(f"not folded: {sorted({*done.left.values()})}")
        if done.plan is not None:
            commit_fold(self.ledger, self.ledger.load(folder), done.plan)
        view = self.ledger.load(folder)
        if any(file.content == EQUALITY_DELETES for file in self.ledger.live_entries(view, ManifestContent.DELETES)):
            raise AssertionError("equality delete files are left")


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def duckdb(location: str) -> pa.Table:
    """The table as DuckDB reads it."""
    import duckdb as engine
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    session = engine.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (binary,) = Path(str(package.__file__)).parent.rglob("*.duckdb_extension")
        session.execute(f"LOAD '{binary}'")
    found = session.execute(f"SELECT id, value FROM iceberg_scan('{location.removeprefix('file://')}')")
    return found.to_arrow_table()


def check(reader: str, found: pa.Table, state: State) -> None:
    """Fails unless it is the replay."""
    columns = [found.column("id").cast(pa.int64()), found.column("value").cast(pa.string())]
    rows = pa.table(columns, names=["id", "value"]).sort_by("id")
    wanted = sorted(state.items())
    ids, values = [key for key, _ in wanted], [value for _, value in wanted]
    if rows.column("id").to_pylist() != ids or rows.column("value").to_pylist() != values:
        raise AssertionError(f"{reader} sees {rows.num_rows} rows, which are not the replay's {len(ids)}")


def measure(chosen: Chosen) -> None:
    """
    A row for each kind of file.
    """
    size, report = SIZES[chosen.size], chosen.report
    report.table("change-stream", "A file of changes through `writer lines`, and its table", HEAD)
    for kind in FORMATS:
        with chosen.folder() as root:
            path, found = root / f"{kind}.ndjson", dict[str, Any]()
            state = written(path, kind, size)
            table = KeyedLake(root / "lake")
            loaded = table.load(path, kind)
            txlogs = len(table.lake.folder.pending())
            committed, folded = timed(table.commit), timed(table.fold)
            head = table.lake.table()
            read = [
                timed(lambda head=head, found=found: found.update(DuckDB=duckdb(head.metadata_location))),
                timed(lambda head=head, found=found: found.update(pyiceberg=head.scan().to_arrow())),
            ]
            for reader, rows in found.items():
                check(reader, rows, state)
        speed = f"{size.changes / loaded.wall * 1000:,.0f}"
        times = [f"{item.wall:,.0f}" for item in (committed, folded, *read)]
        report.row(f"{kind}, {size.changes:,}, {size.keys:,}", loaded, speed, str(txlogs), *times)
    report.note(f"the table is the replay of the changes, {len(state):,} rows of the last one, by DuckDB and pyiceberg")


if __name__ == "__main__":
    alone(measure, __doc__)
