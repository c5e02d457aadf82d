"""
What others read, held against the model: pyiceberg's plans, scans and metadata tables, DuckDB's scans; iceberg-rust.

Rows are compared column by column under the table's schema of now, filtered ones too.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.histories.decoded import local
from tests.histories.files import internal
from tests.histories.model import comparable
from tests.histories.world import KEY, TIMESTAMP, World

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Filter:
    """A filter as pyiceberg and as SQL write it, and which rows pass it."""

    expression: str
    sql: str
    passes: Callable[[dict[int, Any]], bool]


ALL = Filter("true", "true", lambda row: True)


def filters(world: World) -> Iterator[Filter]:
    """On the timestamp (which days come from), on the key (which buckets come from), and on both."""
    now = world.lake.clock.now
    for hours in (-1, 2, 30):
        limit = now - timedelta(hours=hours)
        yield Filter(
            f"timestamp >= '{limit.isoformat()}'",
            f"timestamp >= TIMESTAMP '{limit.isoformat()}'",
            lambda row, limit=limit: row[TIMESTAMP] is not None and row[TIMESTAMP] >= limit,
        )
    keys = sorted(row[KEY] for file in world.model.live.values() for row in file.rows)
    for key in keys[:: max(1, len(keys) // 3)]:
        yield Filter(f"key = '{key}'", f"key = '{key}'", lambda row, key=key: row[KEY] == key)
    yield Filter("timestamp IS NULL", "timestamp IS NULL", lambda row: row[TIMESTAMP] is None)
    if any(field.name == "region" for field in world.lake.table().schema().fields):
        yield Filter("region = 'süd'", "region = 'süd'", lambda row: row.get(4) == "süd")
        yield Filter("region IS NULL", "region IS NULL", lambda row: row.get(4) is None)
    # pyarrow skips row groups whose bounds are numbers when it is asked for NaN; it prunes, not we.
    yield Filter("", "isnan(ratio)", lambda row: comparable(row.get(5)) == "NaN")


def expected(world: World, schema: Any, passes: Callable[[dict[int, Any]], bool] = lambda row: True) -> Rows:
    """The model's rows that pass, in the order of the schema's columns."""
    rows = (row for file in world.model.live.values() for row in file.rows if passes(row))
    return Counter(tuple(told(row.get(field.field_id)) for field in schema.fields) for row in rows)


def told(item: Any) -> Any:
    """A value that equals itself, moments in microseconds."""
    return comparable(internal(item) if isinstance(item, datetime) else item)


def counted(rows: Iterator[Sequence[Any]] | Sequence[Sequence[Any]]) -> Rows:
    """Rows of a reader."""
    return Counter(tuple(map(told, row)) for row in rows)


def complete(table: Any) -> bool:
    """Whether the columns of every spec are still there; else pyiceberg's tables and DuckDB fail on any file."""
    columns = {field.field_id for field in table.schema().fields}
    return {field.source_id for spec in table.metadata.partition_specs for field in spec.fields} <= columns


# -- pyiceberg


def pyiceberg_scans(world: World) -> Iterator[str]:
    """Everything, and by every filter."""
    table = world.lake.table()
    schema, names = table.schema(), [field.name for field in table.schema().fields]
    for wanted in (item for item in [ALL, *filters(world)] if item.expression):
        found = table.scan(row_filter=wanted.expression).to_arrow().select(names).to_pylist()
        rows = counted([tuple(row.values()) for row in found])
        if rows != expected(world, schema, wanted.passes):
            yield f"{wanted.expression}: {difference(rows, expected(world, schema, wanted.passes))}"


def pyiceberg_plans(world: World) -> Iterator[str]:
    """The files of a plan, each once."""
    found = Counter(task.file.file_path for task in world.lake.table().scan().plan_files())
    if found != Counter(list(world.model.live)):
        yield difference(found, Counter(list(world.model.live)))


def pyiceberg_tables(world: World) -> Iterator[str]:
    """The metadata tables files, entries, manifests and partitions."""
    table = world.lake.table()
    columns = {field.field_id for field in table.schema().fields}
    specs = table.metadata.partition_specs
    # pyiceberg's tables need the columns of every spec, also of those of the past.
    if table.current_snapshot() is None or any(
        field.source_id not in columns for spec in specs for field in spec.fields
    ):
        return
    look, live = table.inspect, world.model.live
    files = look.data_files().select(["file_path", "record_count", "file_size_in_bytes", "spec_id"]).to_pylist()
    said = Counter(tuple(row.values()) for row in files)
    known = Counter(
        (file.path, file.described.record_count, file.described.size_bytes, file.spec_id) for file in live.values()
    )
    if said != known:
        yield f"files: {difference(said, known)}"
    manifests = look.manifests().to_pylist()
    listed = sum(row["added_data_files_count"] + row["existing_data_files_count"] for row in manifests)
    if listed != len(live):
        yield f"manifests: {listed} live files, not {len(live)}"
    sums = look.partitions().to_pylist()
    total = (sum(row["file_count"] for row in sums), sum(row["record_count"] for row in sums))
    if total != (len(live), world.model.totals["total-records"]):
        yield f"partitions: {total}"


def difference(found: Counter[Any], known: Counter[Any]) -> str:
    """What is too much and what is missing."""
    return f"too much {list((found - known).items())[:3]}, missing {list((known - found).items())[:3]}"


# -- DuckDB


def duckdb_session() -> Any:
    """A connection with the Iceberg extension of the Python packages; DuckDB proves their signatures itself."""
    import duckdb

    names = ("duckdb_extension_avro", "duckdb_extension_iceberg")
    no_wheel = "DuckDB's Iceberg extension has no wheel for this platform"
    packages = [pytest.importorskip(name, reason=no_wheel) for name in names]
    session = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for package in packages:
        (binary,) = Path(str(package.__file__)).parent.rglob("*.duckdb_extension")
        session.execute(f"LOAD '{binary}'")
    session.execute("SET TimeZone = 'UTC'")
    return session


def duckdb_scans(world: World, session: Any) -> Iterator[str]:
    """Everything, and by every filter."""
    table = world.lake.table()
    if not complete(table):
        return
    schema = table.schema()
    columns = ", ".join(
        f'epoch_us("{field.name}")' if str(field.field_type) == "timestamptz" else f'"{field.name}"'
        for field in schema.fields
    )
    source = f"iceberg_scan('{local(table.metadata_location)}')"
    for wanted in [ALL, *filters(world)]:
        sql = wanted.sql.replace("TIMESTAMP '", "TIMESTAMPTZ '")
        rows = counted(session.execute(f"SELECT {columns} FROM {source} WHERE {sql}").fetchall())
        if rows != expected(world, schema, wanted.passes):
            yield f"{sql}: {difference(rows, expected(world, schema, wanted.passes))}"


def duckdb_plans(world: World, session: Any) -> Iterator[str]:
    """The live entries of its metadata function."""
    location = local(world.lake.table().metadata_location)
    sql = f"SELECT file_path, record_count FROM iceberg_metadata('{location}')"
    sql += " WHERE status <> 'DELETED' AND manifest_content = 'DATA'"
    found = Counter(session.execute(sql).fetchall())
    known = Counter((file.path, file.described.record_count) for file in world.model.live.values())
    if found != known:
        yield difference(found, known)


# -- iceberg-rust


def rust_rows(table: Any, columns: str) -> list[tuple[Any, ...]]:
    """These columns of each row as iceberg-rust reads them; DataFusion understands the SQL."""
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    session = SessionContext()
    source = IcebergDataFusionTable(table.name(), table.metadata_location, {})
    session.register_table("source", source)
    found = session.sql(f"SELECT {columns} FROM source").to_arrow_table()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def log_goes_back(table: Any) -> bool:
    """Whether an entry of a log is over a minute older than that before it; iceberg-rust and Java refuse that."""
    metadata = table.metadata
    logs = ([item.timestamp_ms for item in log] for log in (metadata.snapshot_log, metadata.metadata_log))
    return any(
        later < earlier - 60_000 for log in logs for earlier, later in pairwise([*log, metadata.last_updated_ms])
    )
