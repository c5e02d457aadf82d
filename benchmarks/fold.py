"""
A fold of 50 equality delete files over 1.5 million rows, and what readers need before and after it.

    python -m benchmarks.fold

The table has a key of one number; each delete file has 1,000 random ones. A reader that needs longer than LONGEST is
stopped. Spark's figures: docs/upserts.md.
"""

import io
import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from benchmarks.support.harness import Chosen, alone, now, timed
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract import keyed
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope, StepFile, encode, encode_steps
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.folds.fold import plan_fold
from bookkeeper.format.bounds import leaves
from bookkeeper.format.entries import DataFile
from bookkeeper.format.footer import metrics
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.fold_commit import commit_fold
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.open import open_store
from bookkeeper.tick.tick import Bookkeeper

IDENTIFIER = "demo.events"
#: of one reader, in seconds
LONGEST = 60.0
COLUMNS = ({"name": "id", "type": "long", "required": True}, {"name": "value", "type": "string"})


@dataclass(frozen=True, slots=True)
class Size:
    """Rows, the data files that they are in, equality delete files and the keys in each."""

    rows: int
    files: int
    deletes: int
    keys: int


SIZES = {"toy": Size(3_000, 3, 8, 10), "short": Size(1_500_000, 15, 50, 1_000), "big": Size(15_000_000, 60, 50, 10_000)}


class Keyed:
    """A keyed table with data and the delete files of as many steps."""

    def __init__(self, root: Path, size: Size) -> None:
        root.mkdir(exist_ok=True)
        self.settings = Table(
            "events", IDENTIFIER, file_names="loose", schema=COLUMNS, partition_by=(), check_files=False
        )
        uri = {"type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/wh"}
        self.catalog = open_catalog(Catalog("lake", uri), create=True)
        made = initialise(self.catalog, self.settings, schema_for(self.settings))
        self.folder, table = Folder(open_store(made.folder)), self.table()
        with table.update_schema() as change:
            change.set_identifier_fields("id")
        with table.transaction() as transaction:
            transaction.set_properties({keyed.PROPERTY: json.dumps({"delete-spec-id": 0})})
        self.ledger = Ledger(self.catalog, IDENTIFIER, CommitClock(now, self.settings.name, self.folder))
        self.tick()  # writes the card
        self.card = self.folder.card()
        self.name = TxlogName("bench", new_incarnation(int(now().timestamp() * 1000), os.urandom(10)), 0)
        self._publish(size)

    def table(self) -> Any:
        """As pyiceberg loads it."""
        return self.catalog.load_table(IDENTIFIER)

    def tick(self) -> None:
        """One tick of a bookkeeper that folds nothing."""
        Bookkeeper(self.settings, self.folder, self.ledger).tick(now())

    def _publish(self, size: Size) -> None:
        noise, each = random.Random(7), size.rows // size.files
        self.name, about = self.name.at(1), self._about(1)
        files = [self._stored(range(begin, begin + each), COLUMNS[1]) for begin in range(0, size.rows, each)]
        self.folder.publish(self.name, encode(about, self.card.schema, self.card.spec, files))
        self.tick()
        deletes = [
            StepFile(self._stored(sorted(noise.sample(range(size.rows), size.keys)), None), step)
            for step in range(1, size.deletes + 1)
        ]
        self.name, about = self.name.at(2), self._about(2)
        schema, spec = self.card.schema, self.card.spec
        self.folder.publish(self.name, encode_steps(about, schema, spec, [], spec, deletes, (1,), size.deletes + 1))
        self.tick()

    def _about(self, sequence: int) -> Envelope:
        return Envelope(self.name.at(sequence), self.card.table_uuid, int(now().timestamp() * 1000))

    def _stored(self, ids: Sequence[int], value: Any) -> DataFile:
        """A file of these keys; with a value of 100 characters, or as an equality delete file."""
        whole = self.card.schema
        schema = whole if value is not None else Schema(whole.find_field("id"))
        columns: list[Any] = [pa.array(ids, pa.int64())]
        if value is not None:
            columns.append(pa.array([f"{number:0100}" for number in ids], pa.large_string()))
        out, footers = io.BytesIO(), list[Any]()
        arrow = schema_to_pyarrow(schema)
        with pq.ParquetWriter(out, arrow, compression="zstd", metadata_collector=footers) as writer:
            writer.write_table(pa.Table.from_arrays(columns, schema=arrow))
        name = f"{self.name.incarnation}-{os.urandom(6).hex()}.parquet"
        open_store(self.card.data_path).upload(name, out.getvalue())
        found = metrics(footers[0], leaves(schema, {}))
        about = {key: getattr(found, key) for key in found.__slots__}
        return DataFile(f"{self.card.data_path}/{name}", "PARQUET", (), len(ids), out.tell(), **about)

    def fold(self) -> tuple[float, float]:
        """Seconds of the computation, beside the ticks, and of the commit."""
        folder, begun = self.card.folder, time.perf_counter()
        done = plan_fold(self.ledger, self.ledger.load(folder), now(), os.urandom(10))
        computed = time.perf_counter()
        assert done.plan is not None and not done.left
        commit_fold(self.ledger, self.ledger.load(folder), done.plan)
        return computed - begun, time.perf_counter() - computed


Count = Callable[[], int]


@contextmanager
def duckdb(table: Keyed) -> Iterator[Count]:
    """Counts rows with DuckDB, through a column; raises TimeoutError after LONGEST."""
    import duckdb as engine
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    session = engine.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (binary,) = Path(str(package.__file__)).parent.rglob("*.duckdb_extension")
        session.execute(f"LOAD '{binary}'")
    location = table.table().metadata_location.removeprefix("file://")
    stop = threading.Timer(LONGEST, session.interrupt)

    def count() -> int:
        stop.start()
        try:
            (row,) = session.execute(f"SELECT count(value) FROM iceberg_scan('{location}')").fetchall()
        except engine.InterruptException as exc:
            raise TimeoutError from exc
        return int(row[0])

    try:
        yield count
    finally:
        stop.cancel()
        session.close()


@contextmanager
def rust(table: Keyed) -> Iterator[Count]:
    """
    Counts them with iceberg-rust, in a process of its own: only its end stops iceberg-rust.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(load_rust)

        def count() -> int:
            try:
                return pool.apply_async(count_by_rust, (table.table().metadata_location,)).get(LONGEST)
            except multiprocessing.TimeoutError as exc:
                raise TimeoutError from exc

        yield count


def load_rust() -> None:
    """Both are libraries of 100 MB."""
    import datafusion  # noqa: F401
    import pyiceberg_core.datafusion  # noqa: F401


def count_by_rust(location: str) -> int:
    """The rows of the table at this location."""
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    session = SessionContext()
    session.register_table("events", IcebergDataFusionTable(["demo", "events"], location, {}))
    return int(session.sql("SELECT count(value) FROM events").to_arrow_table()[0][0].as_py())


@contextmanager
def pyiceberg(table: Keyed) -> Iterator[Count]:
    """Counts the rows that pyiceberg reads."""
    yield lambda: int(table.table().scan(selected_fields=("value",)).to_arrow().num_rows)


READERS: dict[str, Callable[[Keyed], AbstractContextManager[Count]]] = {
    "DuckDB": duckdb,
    "iceberg-rust": rust,
    "pyiceberg": pyiceberg,
}


def seconds(read: Callable[[Keyed], AbstractContextManager[Count]], table: Keyed, rows: int | None) -> str:
    """What a reader needs; what it cannot do is said."""
    found = list[int]()
    try:
        with read(table) as count:
            took = timed(lambda: found.append(count()))
    except TimeoutError:
        return f"> {LONGEST:.0f}"
    except Exception as exc:  # noqa: BLE001 - a reader that refuses such tables is a result
        return f"refuses: {type(exc).__name__}"
    assert rows is None or found == [rows], (found, rows)
    return f"{took.wall / 1000:.2f}"


def measure(chosen: Chosen) -> None:
    """
    A row for each reader, before and after the fold.
    """
    size = SIZES[chosen.size]
    with chosen.folder() as root:
        table = Keyed(root / "lake", size)
        before = {name: seconds(read, table, None) for name, read in READERS.items()}
        computed, committed = table.fold()
        gone = len({key for each in _deleted(size) for key in each})
        after = {name: seconds(read, table, size.rows - gone) for name, read in READERS.items()}
    title = f"Fold of {size.deletes} equality delete files over {size.rows:,} rows in {size.files} files; seconds"
    chosen.report.table("fold", title, ("", "before", "after"))
    for name in READERS:
        chosen.report.row(f"{name} counts all rows", before[name], after[name])
    chosen.report.note(f"fold: {computed:.2f} s beside the ticks, {committed:.3f} s in one")


def _deleted(size: Size) -> list[list[int]]:
    noise = random.Random(7)
    return [noise.sample(range(size.rows), size.keys) for _ in range(size.deletes)]


if __name__ == "__main__":
    alone(measure, __doc__)
