"""
A small real lake for the Spark tests: SQLite catalog, Parquet files with field ids, guarded appends.

Its commits are made as the bookkeeper makes them: one `commit_table`, sent once, never pyiceberg's own retry.
"""

import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import LessThan
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import BinaryType, NestedField, StringType, TimestamptzType

from benchmarks.support.lake import written
from bookkeeper.catalogs.commit import commit, load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.errors import CommitConflict
from tests.support.configured import Queue
from tests.support.pyiceberg_files import parquet_file, sqlite_catalog

SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "key", StringType(), required=True),
    NestedField(3, "value", BinaryType(), required=False),
)
BY_DAY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "timestamp_day"))
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: where a DataFile of pyiceberg keeps it: there is no setter
_RECORD_COUNT = 4

Row = Mapping[str, Any]


def rows(keys: Sequence[str], at: datetime = START) -> list[dict[str, Any]]:
    """
    One row per key, all at one moment.
    """
    return [{"timestamp": at, "key": key, "value": key.encode()} for key in keys]


def name_of(table: Table) -> str:
    """
    The table's name as Spark writes it.
    """
    return ".".join(("lake", *table.name()))


def folder_of(table: Table) -> Path:
    """
    The table's txlog folder.
    """
    return Path(table.location().removeprefix("file://")) / "_bookkeeper"


def data_file(table: Table, content: Sequence[Row]) -> DataFile:
    """
    Write `content` (rows of one day) as a Parquet file of the table and describe it.
    """
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    arrow = schema_to_pyarrow(table.schema())
    columns = [pa.array([row.get(f.name) for row in content], f.type) for f in arrow]
    metadata: list[Any] = []
    pq.write_table(pa.table(columns, schema=arrow), local, metadata_collector=metadata)
    footer = pq.read_metadata(local)
    statistics = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(table.schema(), {}), parquet_path_to_id_mapping(table.schema())
    )
    days = {(row["timestamp"] - _EPOCH).days for row in content}
    assert len(days) == 1, "a file holds rows of one day"
    partition = (*days,) if table.spec().fields else ()
    return parquet_file(path, table.spec().spec_id, partition, sort_order_id=None, **statistics.to_serialized_dict())


@dataclass
class SharedCatalog(Queue):
    """A catalog that pyiceberg and Spark share, with tables that pyiceberg makes."""

    made: list[str] = field(default_factory=list)

    @cached_property
    def catalog(self) -> Any:
        return open_catalog(self.settings.catalog, create=True)

    def new_table(
        self,
        name: str | None = None,
        *,
        schema: Schema = SCHEMA,
        spec: PartitionSpec = BY_DAY,
        **properties: str,
    ) -> Table:
        """An empty format v2 table with its txlog folder, in the configuration under its name."""
        name = name or f"t{len(self.made)}"
        table = self.catalog.create_table(
            f"queue.{name}", schema, partition_spec=spec, properties={"format-version": "2", **properties}
        )
        folder_of(table).mkdir(parents=True)
        with self.config.open("a") as text:
            text.write(f'\n[tables.{name}]\nidentifier = "queue.{name}"\n')
        self.made.append(name)
        return table

    def load(self, table: Table) -> Table:
        """The table as it is now."""
        return load_table(self.catalog, ".".join(table.name()))

    def append(self, table: Table, *files: Sequence[Row]) -> Table:
        """Append one data file per argument in one snapshot, tried until it is in; the table after it."""
        table = self.load(table)
        return self.append_files(table, *(data_file(table, content) for content in files))

    def append_files(self, table: Table, *files: DataFile) -> Table:
        """Append written data files (or none) in one snapshot, tried until it is in; the table after it."""
        while True:
            table = self.load(table)
            transaction = table.transaction()
            with transaction.update_snapshot().fast_append() as producer:
                for item in files:
                    producer.append_data_file(item)
            with suppress(CommitConflict):
                commit(table, transaction._requirements, transaction._updates)
                return self.load(table)

    def drop_files(self, table: Table, before: datetime) -> Table:
        """Drop whole files older than `before` as a `delete` snapshot, as retention does."""
        table = self.load(table)
        transaction = table.transaction()
        with transaction.update_snapshot().delete() as producer:
            producer.delete_by_predicate(LessThan("timestamp", before.isoformat()))
        commit(table, transaction._requirements, transaction._updates)
        return self.load(table)


def append_declared(lake: SharedCatalog, table: Table, key: str, count: int = 10**9) -> None:
    """
    Append a file of one row whose entry declares `count` rows: what Spark's stream plans by.
    """
    item = data_file(lake.load(table), rows([key]))
    item[_RECORD_COUNT] = count
    lake.append_files(table, item)


def new_lake(folder: Path) -> SharedCatalog:
    """
    A lake with an SQLite catalog named `lake` and its warehouse in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    catalog = sqlite_catalog(folder, warehouse=f"file://{folder}/warehouse").properties
    lake = SharedCatalog(written(folder / "bookkeeper.toml", {"catalog": {"name": "lake", **catalog}}), folder.as_uri())
    lake.catalog.create_namespace("queue")
    return lake


def days(count: float) -> timedelta:
    return timedelta(days=count)


def main(config_path: str, name: str) -> None:
    """
    As a process of its own: commit one row per line of stdin, with the line as its key.
    """
    lake = SharedCatalog(Path(config_path), "")
    table = lake.table(name)
    for line in sys.stdin:
        lake.append(table, rows([line.strip()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
