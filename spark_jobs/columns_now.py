"""
Rows of a snapshot in the columns that the table has now: Spark shows an old snapshot in the columns of its time.

A stream has the columns of now, and an output takes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bookkeeper.errors import NotPossible

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_jobs.start_option import Loaded


def rows_of(spark: SparkSession, loaded: Loaded, snapshot: int) -> DataFrame:
    """
    The rows of a snapshot, whatever is committed later, in the table's columns: renamed, widened, and null where new.

    Raises NotPossible where a nested column has changed inside.
    """
    from pyspark.sql import functions as F

    then = spark.read.option("versionAsOf", snapshot).table(loaded.name)
    kinds = {field.name: field.dataType for field in spark.table(loaded.name).schema.fields}
    was = _schema_of(loaded.table, snapshot)
    chosen: list[Column] = []
    for field in loaded.table.schema().columns():
        before = was.findField(field.fieldId())
        if before is None:
            found = F.lit(None)
        else:
            _check(loaded.name, field, before)
            found = then["`" + before.name().replace("`", "``") + "`"]
        chosen.append(found.cast(kinds[field.name()]).alias(field.name()))
    return then.select(*chosen)


def _schema_of(table: Any, snapshot: int) -> Any:
    number = table.snapshot(snapshot).schemaId()
    return table.schema() if number is None else table.schemas().get(number)


def _check(table: str, field: Any, before: Any) -> None:
    changed = not field.type().equals(before.type())
    if changed and not (field.type().isPrimitiveType() and before.type().isPrimitiveType()):
        raise NotPossible(
            f"the nested column {field.name()} of {table} has changed since its newest append",
            hint="Run it again once something was appended to the table: a snapshot has the columns of its time.",
        )
