"""
Rows of one partition of a table into one task, as Iceberg's `write.distribution-mode=hash` does: a file of each
partition, where every task would write one of each partition that it has rows of.

The tasks ask the writer's own code for the partition of a row: only the columns that the table is partitioned by go
through Python for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from spark_jobs.sink_upserts import column_of, tasks_at_once

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

    from bookkeeper.contract.card import Card
    from writers.files.write_spec import WriteSpec


def spread(rows: DataFrame, card: Card) -> DataFrame:
    """
    The rows, moved by their partition into at most as many tasks as run at once. Not partitioned: as they are.

    Where Spark plans adaptively it splits what it finds to be much
    (`spark.sql.adaptive.advisoryPartitionSizeInBytes`, 64 MB) into several.
    """
    from pyspark.sql import functions
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    from bookkeeper.contract.card import dumps

    if not any(name in rows.columns for name in _sources(card)):
        return rows
    said = dumps(card)
    kind = PythonEvalType.SQL_SCALAR_ARROW_UDF
    partition = UserDefinedFunction(lambda columns: _folders(said, columns), returnType="string", evalType=kind)
    column = "_" * (1 + max(map(len, rows.columns)))  # no column has such a name
    given = functions.struct(*(column_of(rows, name) for name in _sources(card) if name in rows.columns))
    named, tasks = rows.withColumn(column, partition(given)), tasks_at_once(rows)
    if rows.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true":
        return named.hint("rebalance", tasks, functions.col(column)).drop(column)
    return named.repartition(tasks, column).drop(column)  # the hint is not known then


def _sources(card: Card) -> list[str]:
    """The columns that the table is partitioned by; of one in a struct the whole column."""
    names = [str(card.schema.find_column_name(field.source_id)) for field in card.spec.fields]
    top = {field.name for field in card.schema.fields}
    return list(dict.fromkeys(name if name in top else name.partition(".")[0] for name in names))


@lru_cache(maxsize=1)
def _spec(card: bytes) -> WriteSpec:
    from bookkeeper.contract.card import loads
    from writers.files.write_spec import WriteSpec

    return WriteSpec.of(loads(card))


def _folders(card: bytes, columns: pa.StructArray) -> pa.Array:
    """
    In a task: of each row the folder of its partition. Nulls in required columns are left to the writer.

    Raises SchemaRefused.
    """
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    from writers.values.cast import cast

    spec = _spec(card)
    fields = [spec.schema.find_field(name) for name in _sources(spec.card)]
    schema = Schema(*(field.model_copy(update={"required": False}) for field in fields))
    rows = cast(pa.Table.from_struct_array(columns), schema, schema_to_pyarrow(schema), {})
    number = "_".join(["_", *rows.column_names])  # no column has such a name
    rows = rows.append_column(number, pa.array(range(rows.num_rows), pa.int64()))
    parts = list(spec.splitter.split(rows))
    if not parts:
        return pa.array([], pa.string())
    places = pa.concat_arrays([part.rows.column(number).combine_chunks() for part in parts])
    folders = pa.concat_arrays([pa.repeat(part.path, part.rows.num_rows) for part in parts])
    return folders.take(pc.sort_indices(places))
