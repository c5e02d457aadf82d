"""
What Spark knows of a table: where it lies, and the snapshots of its main branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    A snapshot: `added` are the files that a stream reads of it, `total` all files of the table then.
    """

    snapshot_id: int
    parent_id: int | None
    committed_ms: int
    operation: str
    added: int = 0
    total: int = 0
    by_bookkeeper: bool = False

    @property
    def committed_at(self) -> datetime:
        """When it was committed, in UTC."""
        return datetime.fromtimestamp(self.committed_ms / 1000, UTC)


def load(spark: SparkSession, name: str) -> Any:
    """
    Iceberg's own object of the table `name` (catalog.namespace.table), as it is now.
    """
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def metadata(spark: SparkSession, table: Any) -> TableMetadata:
    """
    The metadata of a loaded table, all of one moment.
    """
    from pyiceberg.table.metadata import TableMetadataUtil

    from bookkeeper.catalogs.statistics_kinds import with_any_statistics

    jvm: Any = spark.sparkContext._jvm
    text = jvm.org.apache.iceberg.TableMetadataParser.toJson(table.operations().current())
    return with_any_statistics(lambda: TableMetadataUtil.parse_raw(text))


def location(spark: SparkSession, name: str) -> str:
    """
    Where the table `name` (catalog.namespace.table) lies.
    """
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").first()
    assert described is not None, "Spark always describes the location"
    return str(described.data_type)


def main_head(spark: SparkSession, name: str) -> int | None:
    """
    The newest snapshot of main; None in an empty table.
    """
    row = spark.table(f"{name}.refs").where("name = 'main'").first()
    return row.snapshot_id if row else None


def main_history(spark: SparkSession, name: str) -> list[Snapshot]:
    """
    The snapshots of main, newest first, as far back as the table still has them.
    """
    # The head before the snapshots: what is committed in between is newer than the head and left out. Not from
    # `.history`: that names only the last snapshot of a commit, and a merge is committed together with its append.
    head = main_head(spark, name)
    rows = spark.sql(
        "SELECT snapshot_id, parent_id, unix_millis(committed_at) AS at, operation, "
        "summary['added-data-files'] AS added, summary['total-data-files'] AS total, "
        "exists(map_keys(summary), key -> startswith(key, 'bookkeeper.')) AS by_bookkeeper "
        f"FROM {name}.snapshots"
    ).collect()
    bare = [row.snapshot_id for row in rows if row.total is None or (row.added is None and row.operation == "append")]
    counted = _counted(load(spark, name), bare) if bare else {}
    snapshots = []
    for row in rows:
        added, total = counted.get(row.snapshot_id, (row.added, row.total))
        snapshots.append(
            Snapshot(
                snapshot_id=row.snapshot_id,
                parent_id=row.parent_id,
                committed_ms=row.at,
                operation=row.operation,
                added=int(added or 0) if row.operation == "append" else 0,
                total=int(total or 0),
                by_bookkeeper=bool(row.by_bookkeeper),
            )
        )
    return ancestors(snapshots, head)


def _counted(table: Any, ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """
    The data files that each snapshot added, and all of the table then, by its manifest list: summaries of some programs
    leave both out, and Iceberg's stream counts by the manifests, too. One that has expired meanwhile is left out.
    """
    found = dict[int, tuple[int, int]]()
    for number in ids:
        snapshot = table.snapshot(number)
        if snapshot is None:
            continue
        manifests = [*snapshot.dataManifests(table.io())]
        added = sum(item.addedFilesCount() for item in manifests if item.snapshotId() == number)
        found[number] = added, sum(item.addedFilesCount() + item.existingFilesCount() for item in manifests)
    return found


def ancestors(snapshots: Sequence[Snapshot], head: int | None) -> list[Snapshot]:
    """
    The snapshot `head` and its ancestors, newest first, as far back as they are among `snapshots`.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    found = []
    while head in known:
        found.append(known[head])
        head = known[head].parent_id
    return found
