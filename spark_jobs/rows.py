"""
The rows of a batch: refused before its tasks run where the table does not take them, and written in the tasks; no Spark
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from bookkeeper.errors import NotPossible
from spark_jobs.sink_upserts import Arranged, Upserts, written

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from writers.tasks.task import TaskWriter
    from writers.writer import Writer

_KEYED = "Upsert them: sink.into(..., mode='upsert') for a stream, sink.write(rows, ..., mode='upsert') for a batch."
_NOT_KEYED = "Append them, or make a keyed table: `bookkeeper init --key`."


def check(writer: Writer, columns: pa.Schema, changes: Upserts | None, helpers: Collection[str]) -> None:
    """
    Asks for columns that the table lacks; raises SchemaRefused for rows that the tasks would refuse, and NotPossible
    where the table takes rows the other way. `changes` and `helpers` are as of `BatchPublisher`.
    """
    table, keys = writer.card.table, ", ".join(writer.keys)
    if keys and changes is None:
        raise NotPossible(f"{table} is keyed by {keys}: rows are not appended", hint=_KEYED)
    if not keys and changes is not None:
        raise NotPossible(f"{table} has no key: rows are not upserted", hint=_NOT_KEYED)
    if changes is None:
        writer.write(columns.empty_table())
    else:
        writer.upsert(written(columns, writer.card, helpers).empty_table())


def result_of(
    batches: Iterable[pa.RecordBatch], opened: Callable[[], TaskWriter], where: Arranged | None = None
) -> bytes:
    """
    In a task: the result of its rows, empty where it has none; with `where` they are upserted. Raises SchemaRefused,
    NotPossible and StorageUnavailable.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return b""
    with opened() as files:
        if where is not None:
            where.write(chain([first], filled), files)
        else:
            for batch in chain([first], filled):
                files.write(batch)
    return files.result
