"""What the engine makes of any history, read by Spark: scans, metadata tables, streams; its maintenance in between."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bookkeeper.format.entries import DataFile
from bookkeeper.ledger import merge
from spark_jobs import read_stream
from tests.histories import readers
from tests.histories.decoded import Entry, local, pairs
from tests.histories.files import File, Row
from tests.histories.invariants import SIZES
from tests.histories.random_walk import publish, walk
from tests.histories.readers import ALL, counted, difference, expected, filters
from tests.histories.world import KEY, SPECS, World

#: steps of the clock, which Spark does not follow, and expiry, which is Spark's here
NOT_HERE = ("wait", "reap")
DATA = "data_file.content = 0"


class Shared(World):
    """A history on a table that Spark writes too, so by the real clock."""

    keeps_sources = True

    begin = staticmethod(lambda: datetime.now(UTC))

    def tick(self, minutes: float = 0, book: int = 0) -> None:
        self.lake.clock.now = max(datetime.now(UTC), self.lake.clock.now)
        super().tick(0.001, book)

    @property
    def name(self) -> str:
        return f"lake.{self.lake.settings.identifier}"

    def adopt(self) -> None:
        """Takes the files that Spark wrote into the model; their rows must be those that were there."""
        state, schema = self.state(), self.lake.table().schema()
        before, live = expected(self, schema), {}
        for manifest in state.head.data:
            for entry in manifest.live():
                known = self.model.live.get(entry.path)
                live[entry.path] = known or spark_file(entry, manifest.line["partition_spec_id"])
        self.model.live = live
        assert difference(expected(self, schema), before) == difference(Counter(), Counter())
        deletes = [entry for manifest in state.head.deletes for entry in manifest.live()]
        self.model.delete_bytes = sum(entry.file["file_size_in_bytes"] for entry in deletes)
        self.seen = set(state.snapshots)


def spark_file(entry: Entry, spec_id: int) -> File:
    """A file as its entry describes it, its rows by field id."""
    table = pq.read_table(local(entry.path), partitioning=None)
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in table.schema}
    rows = tuple({ids[name]: item for name, item in row.items()} for row in table.to_pylist())
    said: dict[str, Any] = {name: pairs(entry.file[name]) for name in SIZES}
    described = DataFile(
        entry.path, "PARQUET", (), entry.file["record_count"], entry.file["file_size_in_bytes"], **said
    )
    return File(entry.path, rows, -1, spec_id, entry.partition, described)


# -- what Spark reads


def scans(world: Shared, spark: Any) -> Iterator[str]:
    """Everything, and by every filter."""
    schema = world.lake.table().schema()
    columns = ", ".join(
        f"unix_micros({field.name})" if str(field.field_type) == "timestamptz" else field.name
        for field in schema.fields
    )
    for wanted in [ALL, *list(filters(world))[1::2]]:
        rows = counted(
            [tuple(row) for row in spark.sql(f"SELECT {columns} FROM {world.name} WHERE {wanted.sql}").collect()]
        )
        if rows != expected(world, schema, wanted.passes):
            yield f"{wanted.sql}: {difference(rows, expected(world, schema, wanted.passes))}"


def metadata_tables(world: Shared, spark: Any) -> Iterator[str]:
    """files, all_files, entries, manifests, partitions and snapshots, against model and decoder."""
    state, live = world.state(), world.model.live.values()
    entries = [(entry.path, *entry.ids[:2]) for entry in state.head.live()]
    ever = {entry.path for snapshot in state.snapshots.values() for entry in snapshot.live()}
    manifests = [
        (manifest.path, manifest.line["added_files_count"], manifest.line["existing_files_count"])
        for manifest in state.head.data
    ]
    operations = [
        (found.id, found.said.get("parent-snapshot-id"), found.summary["operation"])
        for found in state.snapshots.values()
    ]
    sums = (len(live), sum(file.described.record_count for file in live))
    for what, sql, known in (
        (
            "files",
            "file_path, record_count, file_size_in_bytes, spec_id FROM {}.files WHERE content = 0",
            described(world),
        ),
        (
            "entries",
            "data_file.file_path, snapshot_id, sequence_number FROM {}.entries WHERE status < 2 AND " + DATA,
            entries,
        ),
        ("all_files", "DISTINCT file_path FROM {}.all_files WHERE content = 0", [(path,) for path in ever]),
        (
            "manifests",
            "path, added_data_files_count, existing_data_files_count FROM {}.manifests WHERE content = 0",
            manifests,
        ),
        ("partitions", "sum(file_count), sum(record_count) FROM {}.partitions", [sums]),
        ("snapshots", "snapshot_id, parent_id, operation FROM {}.snapshots", operations),
    ):
        found = Counter(tuple(row) for row in spark.sql(f"SELECT {sql.format(world.name)}").collect())
        if found != Counter(known):
            yield f"{what}: {difference(found, Counter(known))}"


def described(world: World) -> list[tuple[Any, ...]]:
    files = world.model.live.values()
    return [(file.path, file.described.record_count, file.described.size_bytes, file.spec_id) for file in files]


# -- what Spark does


def delete_on_read(world: Shared, spark: Any) -> None:
    """Deletes one row of a file of several by a position delete file."""
    spark.sql(f"ALTER TABLE {world.name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    file = next(file for file in world.model.live.values() if len(file.rows) > 1)
    gone = file.rows[0][KEY]
    spark.sql(f"DELETE FROM {world.name} WHERE key = '{gone}'")
    kept: tuple[Row, ...] = tuple(row for row in file.rows if row[KEY] != gone)
    world.model.live[file.path] = File(file.path, kept, file.schema_id, file.spec_id, file.partition, file.described)
    world.adopt()


def maintain(world: Shared, spark: Any, procedure: str, arguments: str = "") -> None:
    """One of Iceberg's procedures."""
    spark.sql(f"CALL lake.system.{procedure}(table => '{world.lake.settings.identifier}'{arguments})").collect()
    world.adopt()


class Consumer:
    """A stream that is drained whenever a test asks, and remembers every key it was given."""

    def __init__(self, world: Shared, spark: Any, folder: Path) -> None:
        self.world, self.spark, self.checkpoint = world, spark, str(folder / "checkpoint")
        self.keys: list[str] = []

    def drain(self) -> None:
        stream = read_stream.read(self.spark, self.world.name).select("key").writeStream
        started = stream.foreachBatch(lambda rows, batch: self.keys.extend(row.key for row in rows.collect()))
        started.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start().awaitTermination()


def all_readers_agree(world: Shared, spark: Any, duckdb: Any) -> None:
    world.look()
    found = [*scans(world, spark), *metadata_tables(world, spark), *readers.pyiceberg_scans(world)]
    found += [*readers.pyiceberg_plans(world), *readers.duckdb_scans(world, duckdb)]
    assert found == [], "\n".join(found)


@pytest.fixture(autouse=True)
def _merges_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "FAN", 2)


@pytest.fixture
def duckdb() -> Any:
    return readers.duckdb_session()


@pytest.mark.parametrize("seed, spec", list(enumerate(sorted(SPECS))), ids=sorted(SPECS))
def test_every_reader_agrees_before_and_after_spark_maintained_the_table(spark, lake, duckdb, tmp_path, seed, spec):
    world = Shared(lake.config.parent, SPECS[spec], seed, identifier=f"queue.history_{seed}")
    consumer = Consumer(world, spark, tmp_path)
    consumer.drain()  # of an empty table: its first offset is one that never expires
    for _ in walk(world, seed, 25, NOT_HERE):
        world.look()
    publish(world, world.dice)
    world.publish([3])
    world.tick()
    all_readers_agree(world, spark, duckdb)
    consumer.drain()
    delete_on_read(world, spark)
    maintain(world, spark, "rewrite_manifests")
    world.publish([2], hours=1)
    world.tick()
    all_readers_agree(world, spark, duckdb)
    maintain(world, spark, "rewrite_data_files", ", options => map('rewrite-all', 'true')")
    consumer.drain()
    maintain(world, spark, "expire_snapshots", ", older_than => TIMESTAMP '2100-01-01', retain_last => 4")
    for _ in walk(world, seed + 50, 15, NOT_HERE):
        world.look()
    world.publish([1])
    world.tick()
    all_readers_agree(world, spark, duckdb)
    consumer.drain()
    assert Counter(consumer.keys) == Counter(row[KEY] for row in world.model.ever)
