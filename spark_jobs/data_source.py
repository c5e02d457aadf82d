"""
Batches through txlogs: `df.write.format("bookkeeper").mode("append").option("name", ...).save(folder)`, once the
session knows it by `spark.dataSource.register(BookkeeperSource)`.

Spark makes the writer in a process of the driver, pickles it, calls `write` in the tasks and `commit` or `abort` in
another process of the driver. Streams go by `sink.into`: of a query Spark tells a data source neither id nor run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from bookkeeper.config.units import duration
from bookkeeper.errors import BookkeeperError, ConfigInvalid, NotPossible
from bookkeeper.stores.locations import absolute
from bookkeeper.stores.open import stores_with
from spark_jobs.batch_write import BatchJob, Target, begin, is_done
from writers.runtime import Runtime
from writers.timing import Clock, Wait, pause, utc_now

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

    from bookkeeper.stores.store import Store

_KEYS = ("s3.", "adls.", "gcs.", "client.")
#: of `spark_jobs.sink.write`
_OF_WRITE = ("mode", "order_by", "deletes", "distribution")
_WRITE = "spark_jobs.sink.write(rows, folder, ...) takes it, in the driver."
_CATALOG = (
    "Keys that a catalog hands out are taken by spark_jobs.sink.write(rows, folder, runtime=Runtime(Reach(settings))), "
    "of writers.runtime and writers.reach: docs/stores.md."
)
_OPTIONS = ("path", "name", "position", "patience")


class BookkeeperSource(DataSource):
    """
    The format `bookkeeper`, for writing batches. Options: `path` (the txlog folder), `name`, `position`, `patience`
    (5m), and how storage is reached, by the keys of docs/stores.md.
    """

    #: for subclasses: where the storage is reached through, and what tells the time
    stores: ClassVar[Callable[[str], Store] | None] = None
    clock: ClassVar[Clock] = staticmethod(utc_now)
    wait: ClassVar[Wait] = staticmethod(pause)

    @classmethod
    def name(cls) -> str:
        """What `format` knows it by."""
        return "bookkeeper"

    def writer(self, schema: StructType, overwrite: bool) -> JobWriter:
        """The writer of one run of a job; raises ConfigInvalid, and like `batch_write.begin`."""
        with _with_hints():
            if overwrite:
                raise NotPossible("rows are only appended", hint='Take mode("append").')
            return JobWriter(begin(self._target(), to_arrow_schema(schema)))

    def is_done(self) -> bool:
        """
        Whether an earlier run of the job has written its rows: they are in the table then.

        Spark computes the rows of a job that it is given; ask this before, with the same options. Raises ConfigInvalid,
        and like `batch_write.is_done`.
        """
        return is_done(self._target())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raises NotPossible."""
        with _with_hints():
            raise NotPossible("streams are written by foreachBatch", hint="Give it what spark_jobs.sink.into makes.")

    def _target(self) -> Target:
        given = {key.lower(): value for key, value in self.options.items()}
        unknown = [key for key in given if key not in _OPTIONS and not key.startswith(_KEYS)]
        if unknown and unknown[0] in _OF_WRITE:
            raise ConfigInvalid(f"option {unknown[0]}: a data source cannot move rows between tasks", hint=_WRITE)
        if "credentials" in unknown:
            raise ConfigInvalid("option credentials: a data source opens no catalog", hint=_CATALOG)
        if unknown:
            raise ConfigInvalid(f"option {unknown[0]}: {', '.join(_OPTIONS)} and keys of storage are expected")
        if not given.get("path"):
            raise ConfigInvalid("no txlog folder is given", hint="save(folder), which `bookkeeper init` printed.")
        try:
            patience = duration(given.get("patience", "5m"))
        except ValueError as exc:
            raise ConfigInvalid(f"option patience={given['patience']}: {exc} is expected") from exc
        stores = type(self).stores or stores_with({key: given[key] for key in given if key.startswith(_KEYS)})
        name, position = given.get("name"), given.get("position")
        runtime = Runtime(stores, type(self).clock, type(self).wait, patience)
        return Target(absolute(given["path"]), runtime, name, position)


@contextmanager
def _with_hints() -> Iterator[None]:
    """Of an error in a process of its own Spark tells what a traceback says: without a note, no hint."""
    try:
        yield
    except BookkeeperError as exc:
        exc.add_note(exc.hint)
        raise


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    result: bytes


class JobWriter(DataSourceArrowWriter):
    """Hands each call of Spark to the job."""

    def __init__(self, job: BatchJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        with _with_hints():
            return Written(self._job.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver; raises like `BatchJob.commit`."""
        with _with_hints():
            self._job.commit(_results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, behind a failed task or a failed commit."""
        with _with_hints():
            self._job.abort(_results(messages))


def _results(messages: list[WriterCommitMessage | None]) -> list[bytes | None]:
    return [message.result if isinstance(message, Written) else None for message in messages]
