"""
The changes of a micro-batch by key: of each key its newest row is written, in whatever order Spark reads them.

Spark moves all rows of a key into one task and sorts them there, by key and order. So a task holds two batches of Arrow
and the step that it writes, however many rows it has, and no two tasks write one key: their results need no order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import ConfigInvalid, NotPossible, SchemaRefused
from bookkeeper.format.csv_json_types import UUID_TEXT

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

    from bookkeeper.contract.card import Card
    from writers.tasks.task import TaskWriter

_SHOWN = 100


@dataclass(frozen=True)
class Upserts:
    """
    What tells of the rows of a key which is the newest, and whether that deletes: names of columns, or expressions.
    """

    order_by: tuple[str, ...] = ()
    deletes: str | None = None


def written(columns: pa.Schema, card: Card, helpers: Collection[str]) -> pa.Schema:
    """
    The columns of rows that are written; raises SchemaRefused where a key column is missing.

    Without those `helpers` that the table lacks or a writer fills; a text that is an integer key of the table is one.
    """
    import pyarrow as pa

    from writers.files.write_spec import WriteSpec

    spec = WriteSpec.of(card)
    keyed, ids = spec.keyed, spec.ids
    assert keyed is not None
    if missing := [name for name in keyed.names if name not in columns.names]:
        raise SchemaRefused(f"key column {missing[0]!r} is missing", hint="Every change needs the whole key.")
    unwritten = {name for name in helpers if name not in ids or ids[name] in keyed.filled}
    kept = []
    for field in columns:
        wanted = keyed.arrow.field(field.name).type if field.name in keyed.names else field.type
        if field.name not in unwritten:
            kept.append(field.with_type(wanted) if _is_text(field) and pa.types.is_integer(wanted) else field)
    return pa.schema(kept)


def _is_text(field: pa.Field) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type))


def helpers_of(rows: DataFrame, changes: Upserts | None) -> frozenset[str]:
    """The columns that `order_by` and `deletes` refer to."""
    texts = [] if changes is None else [*changes.order_by, *filter(None, [changes.deletes])]
    if not texts:
        return frozenset()
    selected: Any = rows.select(*(_expression(rows, text) for text in texts))._jdf
    found = selected.queryExecution().analyzed().references().toSeq()
    return frozenset(str(found.apply(number).name()) for number in range(found.size()))


@dataclass(frozen=True)
class Arranged:
    """Where in arranged rows what is; it goes to the tasks."""

    #: how many columns are written: the first ones
    width: int
    keys: tuple[str, ...]
    orders: tuple[str, ...]
    deleted: str | None
    order_by: tuple[str, ...]

    def write(self, batches: Iterable[pa.RecordBatch], files: TaskWriter) -> None:
        """The newest row of each key; raises NotPossible where that is not one row, and SchemaRefused."""
        for rows in self._newest(batches):
            if self.deleted is None:
                files.upsert(rows.select(range(self.width)))
            else:
                files.change(rows.select(range(self.width)), rows.column(self.deleted).combine_chunks())

    def _newest(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The last two rows of a key that may go on in the next batch are held, for two tell of a tie."""
        import pyarrow as pa

        held: list[pa.Table] = []
        for batch in batches:
            table = pa.concat_tables([*held, pa.Table.from_batches([batch])]).combine_chunks()
            same = _same(table, self.keys).to_pylist()
            begin = next((at for at in range(len(same), 0, -1) if not same[at - 1]), 0)
            if begin:
                yield self._last(table.slice(0, begin))
            held = [table.slice(max(begin, table.num_rows - 2))]
        for table in held:
            yield self._last(table)

    def _last(self, table: pa.Table) -> pa.Table:
        """The last row of each key; all of the keys' last two rows are here."""
        import pyarrow as pa
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        same, no = _same(table, self.keys), pa.array([False])
        last = pc.invert(pa.concat_arrays([same, no]))
        ties = pc.and_(pa.concat_arrays([no, pc.and_(same, _same(table, self.orders, nulls=True))]), last)
        if pc.any(ties).as_py():
            row = table.filter(ties).select(self.keys).slice(0, 1).to_pylist()[0]
            raise NotPossible(self._tie(", ".join(f"{name}={value!r:.{_SHOWN}}" for name, value in row.items())))
        return table.filter(last)

    def _tie(self, key: str) -> str:
        if not self.order_by:
            return f"the key {key} has more than one row in a batch: order_by= must say which is the newest"
        return (
            f"the key {key} has more than one row that is the newest by order_by={', '.join(self.order_by)}: add a "
            "column that tells them apart, or dropDuplicates() where rows are given twice"
        )


def arranged(rows: DataFrame, card: Card, changes: Upserts) -> tuple[DataFrame, Arranged]:
    """
    The rows with all of a key in one task, sorted by key and order; raises SchemaRefused and ConfigInvalid.

    Keys are compared as the table has them: the texts "01" and "1" are one integer, and a UUID has many spellings.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import ArrayType, BooleanType, MapType, StructType

    from writers.files.write_spec import WriteSpec

    keyed = WriteSpec.of(card).keyed
    assert keyed is not None
    given = to_arrow_schema(rows.schema)
    fields = written(given, card, helpers_of(rows, changes))
    texts = {field.name: field.type for field in keyed.arrow if _is_text(given.field(field.name))}
    columns = [_written(rows, field.name, texts.get(field.name)) for field in fields]
    prefix = "_" * (1 + max(map(len, rows.columns)))  # no column has such a name
    orders = tuple(f"{prefix}{number}" for number in range(len(changes.order_by)))
    helpers = [_expression(rows, text).alias(name) for text, name in zip(changes.order_by, orders, strict=True)]
    deleted = None if changes.deletes is None else f"{prefix}deleted"
    if changes.deletes is not None and deleted is not None:
        helpers.append(_expression(rows, changes.deletes).alias(deleted))
    frame = rows.select(*columns, *helpers)
    for text, name in zip(changes.order_by, orders, strict=True):
        if isinstance(frame.schema[name].dataType, ArrayType | MapType | StructType):
            raise ConfigInvalid(f"order_by={text!r} is {frame.schema[name].dataType.simpleString()[:_SHOWN]}")
    if deleted is not None and frame.schema[deleted].dataType != BooleanType():
        raise ConfigInvalid(f"deletes={changes.deletes!r} is {frame.schema[deleted].dataType.simpleString()[:_SHOWN]}")
    keys = [_comparable(frame, name) for name in keyed.names]
    moved = frame.repartition(tasks_at_once(rows), *keys)
    moved = moved.sortWithinPartitions(*keys, *(_comparable(frame, name) for name in orders))
    return moved, Arranged(len(columns), tuple(keyed.names), orders, deleted, changes.order_by)


def tasks_at_once(rows: DataFrame) -> int:
    """How many tasks move rows: each writes files of its own, so no more than run at once."""
    spark = rows.sparkSession
    return max(min(spark.sparkContext.defaultParallelism, int(str(spark.conf.get("spark.sql.shuffle.partitions")))), 1)


def column_of(rows: DataFrame, name: str) -> Column:
    """The column of this name, whatever characters that has."""
    return rows["`" + name.replace("`", "``") + "`"]


def _expression(rows: DataFrame, text: str) -> Column:
    from pyspark.sql import functions

    return column_of(rows, text) if text in rows.columns else functions.expr(text)


def _comparable(rows: DataFrame, name: str) -> Column:
    """Of a text with a collation its bytes, which are what the table compares."""
    from pyspark.sql.types import StringType

    column = column_of(rows, name)
    return column.cast("string") if isinstance(rows.schema[name].dataType, StringType) else column


def _written(rows: DataFrame, name: str, key: pa.DataType | None) -> Column:
    """
    The column; texts of a `key` of such a type as integers, or in one spelling of UUIDs: an error where one is none,
    whatever the session's ANSI mode.
    """
    import pyarrow as pa
    from pyspark.sql import functions

    column = column_of(rows, name)
    if isinstance(key, pa.UuidType):
        text = column.cast("string")  # without a collation
        digits = functions.lower(functions.regexp_replace(text, "(?i)urn:uuid:|[-{}]", ""))
        return _checked(text, "uuid", functions.when(text.rlike(f"(?i)\\A{UUID_TEXT}\\z"), digits), name)
    if key is None or not pa.types.is_integer(key):
        return column
    kind = "int" if key.bit_width == 32 else "bigint"
    return _checked(column, kind, column.try_cast(kind), name)


def _checked(text: Column, kind: str, value: Column, name: str) -> Column:
    """The value; an error where the text has none."""
    from pyspark.sql import functions

    said = functions.concat(functions.lit(f"key column {name!r} is {kind}: "), functions.substring(text, 1, _SHOWN))
    is_one = text.isNull() | value.isNotNull()
    return functions.when(is_one, value).otherwise(functions.raise_error(said)).alias(name)


def _same(table: pa.Table, names: Sequence[str], *, nulls: bool = False) -> pa.Array:
    """Whether each row but the first has the values of the one before; with `nulls` nulls are the same, and NaN is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = table.num_rows - 1
    same = pa.repeat(pa.scalar(True), count)
    for name in names:
        column: Any = table.column(name)
        one, two = (column.slice(start, count).combine_chunks() for start in (0, 1))
        equal = pc.fill_null(pc.equal(one, two), False)
        if nulls:
            none = pc.and_(pc.is_null(one, nan_is_null=True), pc.is_null(two, nan_is_null=True))
            equal = pc.or_(equal, pc.and_(none, pc.equal(pc.is_valid(one), pc.is_valid(two))))
        same = pc.and_(same, equal)
    return same
