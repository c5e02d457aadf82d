"""
Tells the reaper of a query before it starts, so that expiry waits for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Settings, Table
    from bookkeeper.streams.registry import Consumer


def location(spark: SparkSession, name: str) -> str:
    """
    Where the table `name` (catalog.namespace.table) lies.
    """
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").first()
    assert described is not None, "Spark always describes the location"
    return str(described.data_type)


def qualified(spark: SparkSession, checkpoint: str) -> str:
    """
    The checkpoint's location as Spark resolves it, with scheme and host.
    """
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(checkpoint)
    conf = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    return str(path.getFileSystem(conf).makeQualified(path).toString())


def register(
    spark: SparkSession,
    settings: Settings,
    table: Table,
    name: str,
    checkpoint: str,
    now: datetime,
    *,
    available_now: bool,
    consumer: str | None = None,
) -> Consumer:
    """
    Registers the query that is about to start with `checkpoint`, under `consumer` or a name made from that.

    Raises StorageUnavailable when the txlog folder cannot be written, NotPossible when the configuration names it.
    """
    from bookkeeper.core.folder import folder_url
    from bookkeeper.stores.local import kept
    from bookkeeper.stores.open import stores_with
    from bookkeeper.streams.registry import JOB, Registry, configured, name_for
    from bookkeeper.streams.registry import spark as query

    where = _spelled(qualified(spark, checkpoint))
    known = {item.checkpoint: item for item in configured(table.consumers)}
    if where in known and consumer in (None, known[where].name):
        return known[where]
    found = query(consumer or name_for(where), where, now, available_now=available_now, by=JOB)
    folder = folder_url(table, location(spark, name))
    Registry(kept(stores_with(settings.catalog.properties)(folder)), table.consumers).add(found)
    return found


def _spelled(where: str) -> str:
    from bookkeeper.errors import PathRefused
    from bookkeeper.stores.locations import normal

    try:
        return normal(where)
    except PathRefused:
        return where
