"""
Ten sequential updates of 1,000 keys: one tick, and ten commits of a RowDelta by Iceberg Java; in one run, in turns.

Both commit files that are there before. The tick reads the txlog, checks it, looks the files up, commits, waits until
all of it is on the disk, writes marks.json and deletes the txlog. Java runs in the JVM of a local Spark session.

    python -m benchmarks.upserts
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from benchmarks.support.harness import Chosen, Timing, alone, in_turns, now, timed, times
from benchmarks.support.lake import Lake
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope, StepFile, encode_steps
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.open import open_store
from bookkeeper.tick.tick import Bookkeeper

COLUMNS = [
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string", "required": False},
]
JAVA = "Java, RowDeltas"
PEER = "lake.demo.peer"
#: all of its compilers, which a session for tests goes without
_JVM = {"spark.driver.extraJavaOptions": "-Xss4m"}


@dataclass(frozen=True, slots=True)
class Size:
    """How many updates of how many keys, in how many rounds."""

    updates: int = 10
    keys: int = 1000
    rounds: int = 7
    warm: int = 2


SIZES = {"toy": Size(3, 10, 1, 0), "short": Size(), "big": Size(rounds=20)}


class KeyedTable:
    """A keyed table, its bookkeeper, and a writer that is nothing but the contract."""

    def __init__(self, root: Path, size: Size) -> None:
        self.lake, self.size = Lake.at(root, schema=COLUMNS, partition_by=[], key=["id"], file_names="loose"), size
        settings = self.lake.settings.tables["events"]
        clock = CommitClock(now, settings.name, self.lake.folder)
        ledger = Ledger(open_catalog(self.lake.settings.catalog), settings.identifier, clock)
        self.book = Bookkeeper(settings, self.lake.folder, ledger)
        self.card = self.lake.folder.card()
        self.name = TxlogName("bench", new_incarnation(int(now().timestamp() * 1000), bytes(10)), 0)
        self.written = 0

    def publish(self, updates: int) -> None:
        """A txlog of so many steps; each updates all keys."""
        data, deletes = list[StepFile](), list[StepFile]()
        for number in range(1, updates + 1):
            data.append(StepFile(self.file(self.card.schema), number))
            deletes.append(StepFile(self.file(Schema(self.card.schema.find_field("id"))), number))
        self.name = self.name.at(self.name.sequence + 1)
        about = Envelope(self.name, self.card.table_uuid, int(now().timestamp() * 1000))
        encoded = encode_steps(
            about, self.card.schema, self.card.spec, data, self.card.spec, deletes, (1,), updates + 1
        )
        self.lake.folder.publish(self.name, encoded)

    def file(self, schema: Schema) -> DataFile:
        """A file of all keys with these columns."""
        self.written += 1
        rows = [{"id": key, "value": f"{self.written}-{key}"} for key in range(self.size.keys)]
        out, path = io.BytesIO(), f"{self.name.incarnation}-{self.written:06d}.parquet"
        names = [field.name for field in schema.fields]
        kept = [{name: row[name] for name in names} for row in rows]
        pq.write_table(pa.Table.from_pylist(kept, schema=schema_to_pyarrow(schema)), out)
        open_store(self.card.data_path).upload(path, out.getvalue())
        return DataFile(f"{self.card.data_path}/{path}", "PARQUET", (), self.size.keys, out.tell())

    def tick(self, txlogs: int) -> Timing:
        """One tick of pending txlogs that update all keys ten times in all; publishing them is not measured."""
        for _ in range(txlogs):
            self.publish(self.size.updates // txlogs)
        return timed(lambda: self.book.tick(now()))

    def snapshots(self) -> list[Any]:
        """As pyiceberg loads them."""
        return list(self.lake.table().metadata.snapshots)


class JavaTable:
    """A table that Iceberg Java commits to, one RowDelta an update."""

    def __init__(self, spark: Any, files: Sequence[tuple[DataFile, DataFile]]) -> None:
        spark.sql(f"CREATE TABLE {PEER} (id bigint NOT NULL, value string) TBLPROPERTIES ('format-version'='2')")
        self.jvm, self.files = spark._jvm, files
        self.table = self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, PEER)
        self.ids = spark._sc._gateway.new_array(self.jvm.int, 1)
        self.ids[0] = 1

    def update(self) -> Timing:
        """All the updates, each as a commit of its own."""
        spec, iceberg = self.table.spec(), self.jvm.org.apache.iceberg
        pairs = [
            (
                _described(iceberg.DataFiles.builder(spec), data),
                _described(iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(self.ids), delete),
            )
            for data, delete in self.files
        ]

        def commit() -> None:
            for data, delete in pairs:
                self.table.newRowDelta().addRows(data).addDeletes(delete).commit()

        taken = timed(commit)
        return Timing(taken.wall)  # the CPU is the JVM's

    def manifests(self) -> int:
        """Those that the head lists."""
        return int(self.table.currentSnapshot().allManifests(self.table.io()).size())


def _described(builder: Any, file: DataFile) -> Any:
    found = builder.withPath(file.path).withFormat("parquet").withFileSizeInBytes(file.size_bytes)
    return found.withRecordCount(file.record_count).build()


def measure(chosen: Chosen) -> None:
    """
    The updates in one txlog, in as many txlogs, and by Java.
    """
    from spark_jobs import session

    size, report = SIZES[chosen.size], chosen.report
    with chosen.folder() as root:
        one, many = KeyedTable(root / "one", size), KeyedTable(root / "many", size)
        spark = session.build(one.lake.settings, app="upserts", extra=_JVM)
        try:
            schema = one.card.schema
            keys = Schema(schema.find_field("id"))
            java = JavaTable(spark, [(one.file(schema), one.file(keys)) for _ in range(size.updates)])
            counts = list[int]()

            def by_java() -> Timing:
                taken = java.update()
                counts.append(java.manifests())
                return taken

            sides = {
                "one txlog": lambda: one.tick(1),
                "as many txlogs": lambda: many.tick(size.updates),
                JAVA: by_java,
            }
            found = in_turns(sides, size.rounds, size.warm)
        finally:
            spark.stop()
        title = f"{size.updates} sequential updates of {size.keys:,} keys; wall (CPU), ms"
        report.table("upserts", title, ("", "time", "Java / this", "commits", "new manifests"))
        for name, table in (("one txlog", one), ("as many txlogs", many)):
            first = table.snapshots()[:2]
            own = [item for made in first for item in made.manifests(table.lake.table().io)]
            new = {item.manifest_path for item in own}
            kinds = "+".join(made.summary.operation.value for made in first)
            report.row(name, found[name], times(found[JAVA], Timing(found[name].wall)), f"1: {kinds}", len(new))
        report.row(JAVA, found[JAVA], "1.0 x", size.updates, counts[0])


if __name__ == "__main__":
    alone(measure, __doc__)
