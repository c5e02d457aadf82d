"""
Keeps a copy of a keyed table elsewhere: Spark's stream of its changes, merged into another Iceberg table.

A new copy is made of the rows of a snapshot, in one commit that says which, and the stream begins behind it
(`begin`). A copy that lost its checkpoint begins there again. So the stream may repeat changes that the copy has
already, and each change must be right when it is applied again:

* Of a micro-batch the newest version of each key counts, by the order-column. A micro-batch is made of whole snapshots
  (so there are no limits for it), and versions of a key rise from snapshot to snapshot.
* A version that is not newer than the copy's is skipped.
* A delete leaves nothing in the copy. An upsert from before it, applied again, would come back until the delete is
  applied again, too; both are in the micro-batch, or the delete in a later one.

A crash before the MERGE's commit leaves the copy as it was, and files that nothing names. After it, before Spark writes
`commits/N`, a crash leaves micro-batch N to be merged again, of the same rows: `offsets/N` was written before them.
Between the copy's making and the first offset it leaves a copy that says where its stream begins.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import load_settings
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs import job, query, read_stream, session
from spark_jobs import start_option as starts
from spark_jobs import table as tables
from spark_jobs.begin import Has, begin
from spark_jobs.columns_now import rows_of
from spark_jobs.start_option import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_jobs.begin import Beginning
    from spark_jobs.begin_plan import Plan

#: of the copy: the table's uuid, and the snapshot that was its head before the copy was made (null: it was empty)
COPY_OF = "bookkeeper.copy-of"
_VIEW = "bookkeeper_changes"
_DELETED = "D"


@dataclass(frozen=True, slots=True)
class Changes:
    """A keyed table as a stream of changes: names of its keys, its op-column and its order-column."""

    table: str
    uuid: str
    keys: tuple[str, ...]
    op: str
    order: str


def changes_of(spark: SparkSession, name: str) -> Changes:
    """
    How the table `name` (catalog.namespace.table) tells its changes; raises NotPossible where it does not.
    """
    from pyiceberg.schema import Schema

    from bookkeeper.contract import keyed

    found = tables.load(spark, name)
    jvm: Any = spark.sparkContext._jvm
    schema = Schema.model_validate_json(jvm.org.apache.iceberg.SchemaParser.toJson(found.schema()))
    stored = found.properties().get(keyed.PROPERTY)
    if stored is None:
        hint = "`bookkeeper init --key` makes it one, with --op-column and --order-column. read_stream copies appends."
        raise NotPossible(f"{name} is append-only, not a keyed table", hint=hint)
    try:
        how = keyed.parse(json.loads(stored), schema)
    except (ValueError, RecursionError) as exc:
        raise NotPossible(f"the property {keyed.PROPERTY} does not fit {name}: {exc}", hint=keyed.ADVICE) from exc
    for what, number, why in (
        ("op-column", how.op_field_id, "its stream does not say what is deleted"),
        ("order-column", how.order_field_id, "its stream does not say which version of a key is the newest"),
    ):
        if number is None:
            hint = f"`bookkeeper init --key ... --{what} ...` adds it; changes from before it are not told apart."
            raise NotPossible(f"{name} has no {what}: {why}", hint=hint)
    keys, op, order = how.key_ids, how.op_field_id or 0, how.order_field_id or 0
    names = [schema.find_field(number).name for number in (*keys, op, order)]
    return Changes(name, str(found.uuid()), tuple(names[:-2]), names[-2], names[-1])


def target_name(catalog: str, text: str) -> str:
    """
    `catalog.namespace.table` from that or from `namespace.table`; raises ConfigInvalid.
    """
    parts = text.split(".")
    if len(parts) < 2 or not all(parts):
        raise ConfigInvalid(f"--target {text}: namespace.table or catalog.namespace.table is allowed")
    return text if len(parts) > 2 else f"{catalog}.{text}"


@dataclass(frozen=True)
class Copy:
    """The output of the job: `target` (catalog.namespace.table), which says of which snapshot it was made."""

    spark: SparkSession
    changes: Changes
    target: str

    @property
    def anew(self) -> str:
        return f"DROP TABLE {self.target}: it is made anew. Take a new --checkpoint."

    def note(self) -> int | None:
        return None

    def has(self, plan: Plan | None) -> Has | None:
        """The snapshot that it was made of; raises NotPossible when it is no copy of this table."""
        return Has(self._made_of()) if self.spark.catalog.tableExists(self.target) else None

    def check(self) -> None:
        """Raises NotPossible when it is no copy of this table, or has other columns."""
        self._made_of()
        _check_columns(self.spark, self.changes.table, self.target)

    def _made_of(self) -> int | None:
        if self.target == self.changes.table:
            raise NotPossible(f"{self.target} cannot be a copy of itself")
        stored = tables.load(self.spark, self.target).properties().get(COPY_OF)
        copied = json.loads(stored) if stored else {}
        if copied.get("table-uuid") != self.changes.uuid:
            hint = "Name a --target that is not there yet: this job makes it."
            raise NotPossible(f"{self.target} is no copy of {self.changes.table} ({self.changes.uuid})", hint=hint)
        snapshot: int | None = copied.get("snapshot-id")
        return snapshot

    def make(self, first: Beginning) -> None:
        """
        The copy, if it is not there, all at once by Iceberg's staged create: with the rows of a snapshot, or none where
        the stream begins without them.
        """
        if self.spark.catalog.tableExists(self.target):
            return
        rows, snapshot = first.rows, first.snapshot
        if rows is None and first.goes_on:
            rows, snapshot = self._rows_of_now()
        if rows is None:
            rows = self.spark.table(self.changes.table).limit(0)
        copied = json.dumps({"table-uuid": self.changes.uuid, "snapshot-id": snapshot})
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.target.rpartition('.')[0]}")
        new = rows.writeTo(self.target).using("iceberg").tableProperty("format-version", "2")
        new.tableProperty(COPY_OF, copied).create()

    def _rows_of_now(self) -> tuple[DataFrame | None, int | None]:
        """The rows for a copy that is gone, whose stream goes on: it repeats what they have already."""
        loaded = load(self.spark, self.changes.table)
        newest = loaded.newest()
        if newest is None:
            return None, None
        return rows_of(self.spark, loaded, newest.snapshot_id), newest.snapshot_id


def _check_columns(spark: SparkSession, table: str, target: str) -> None:
    if _columns(spark.table(table)) != _columns(spark.table(target)):
        hint = f"Change {target} as {table} was changed (ALTER TABLE ... ADD, RENAME or ALTER COLUMN)."
        raise NotPossible(f"{target} has other columns than {table}", hint=hint)


def _columns(rows: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in rows.schema.fields}


def apply(changes: Changes, target: str, batch: DataFrame, number: int) -> None:
    """
    Merge a micro-batch into `target`, in one commit. Done twice, it changes nothing the second time.

    Raises NotPossible when the table has got other columns since the stream began.
    """
    spark = batch.sparkSession
    # The stream leaves out a new column. It was added before the rows of the batch that have it were committed.
    if _columns(batch) != _columns(spark.table(changes.table)):
        raise NotPossible(f"the columns of {changes.table} {query.CHANGED}")
    newest(changes, batch).createOrReplaceTempView(_VIEW)
    spark.sql(merge(changes, target))


def newest(changes: Changes, rows: DataFrame) -> DataFrame:
    """
    The newest version of each key by the order-column; one without an order is the oldest.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_key = Window.partitionBy(*map(_quoted, changes.keys))
    rank = F.row_number().over(by_key.orderBy(F.col(_quoted(changes.order)).desc_nulls_last()))
    return rows.select("*", rank.alias(_VIEW)).where(F.col(_VIEW) == 1).drop(_VIEW)


def merge(changes: Changes, target: str) -> str:
    """
    The statement that merges a batch, of one row a key.
    """
    op, order = _quoted(changes.op), _quoted(changes.order)
    same = " AND ".join(f"old.{key} = new.{key}" for key in map(_quoted, changes.keys))
    newer = f"coalesce(old.{order} < new.{order}, old.{order} IS NULL AND new.{order} IS NOT NULL)"
    deleted = f"(new.{op} <=> '{_DELETED}')"
    return (
        f"MERGE INTO {target} AS old USING {_VIEW} AS new ON {same} "
        f"WHEN MATCHED AND {newer} AND {deleted} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET * "
        f"WHEN NOT MATCHED AND NOT {deleted} THEN INSERT *"
    )


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _start(rows: DataFrame, changes: Changes, target: str, checkpoint: str, trigger: str) -> StreamingQuery:
    """
    Start the query that merges `rows`, the stream of the table, into `target`.
    """
    writer = rows.writeStream.foreachBatch(functools.partial(apply, changes, target))
    return writer.trigger(**query.trigger(trigger)).option("checkpointLocation", checkpoint).start()


@click.command(cls=Command)
@job.options
@click.option(
    "--target", required=True, help="The copy: namespace.table, or catalog.namespace.table; made if it is not there."
)
@click.option("--checkpoint", required=True, help="Folder or URL where the stream keeps its place; one per copy.")
@starts.option
@click.option(
    "--trigger",
    default="10s",
    show_default=True,
    help="Pause between merges, or available-now: apply what is there, and end.",
)
@click.option("--progress", metavar="FILE", help="Append one JSON line per micro-batch to FILE.")
@click.option(
    "--consumer",
    metavar="NAME",
    help="Register with the reaper by this name, or `none`; default: a name made from the folder.",
)
def main(
    config: str | None,
    table: str | None,
    conf: tuple[str, ...],
    target: str,
    checkpoint: str,
    start: str | None,
    trigger: str,
    progress: str | None,
    consumer: str | None,
) -> None:
    """
    Keep a copy of a keyed table by its changes. SIGTERM ends it after the current merge.

    The table needs an op-column and an order-column. A merge that is interrupted is done again, and changes nothing
    twice. It registers itself with the reaper, which then keeps the snapshots it needs.

    \b
    Example: python -m spark_jobs.apply_changes --target marts.events --checkpoint /var/lib/copy-cp
    """
    settings, where = load_settings(config, os.environ), starts.parsed(start, datetime.now(UTC))
    name, to = session.table_name(settings, table), target_name(settings.catalog.name, target)
    query.trigger(trigger)
    spark = job.begin(settings, f"apply_changes {name}", conf)
    copy = Copy(spark, changes_of(spark, name), to)
    with begin(spark, settings, table, checkpoint, start=where, consumer=consumer, output=copy) as first:
        copy.make(first)
        first.done()
    copy.check()
    merging = functools.partial(_start, read_stream.read(spark, name), copy.changes, to, checkpoint)
    read_stream.follow(spark, name, checkpoint, merging, trigger, progress=progress)
    spark.stop()


if __name__ == "__main__":
    main()
