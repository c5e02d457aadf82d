"""
A batch job that writes one txlog: begun in one process, written in many, committed in a third; no Spark in it.

What a crash leaves at each step, and what cleans it up. Behind each of them the job is run again:

    begin        nothing is stored
    write        data files that no txlog names, the last one torn: the orphan sweep, by their age
    abort        some of the files are deleted, the others are swept
    commit       before the txlog's create as after write; after it a pending txlog, or one that is in. With a position
                 the next run finds it, waits until it is in, and writes nothing; without one it writes the rows again

Spark calls abort also where commit has failed, and then the txlog may be published. Only of a job in which a task has
no result, commit was never called: only then are files deleted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.contract.names import check_writer
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs.arrival import Arrival
from spark_jobs.rows import check, result_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from bookkeeper.contract.txlog_folder import Folder
    from spark_jobs.sink_upserts import Upserts
    from writers.runtime import Runtime
    from writers.tasks.handover import Handover
    from writers.writer import Writer

log = logging.getLogger(__name__)

#: of jobs that have no name of their own
NAME = "spark-batch"
_PREFIX = b"spark-batch/"
_POSITION = re.compile(r"[!-~]{1,100}")
_AGAIN = "Run the job again: it writes the rows again. `bookkeeper rejected` says more."
_BEHIND = (
    "Is the bookkeeper running? It commits the txlog once it is. Run again, a job with a position goes on waiting; one "
    "without would write the rows a second time."
)
_OTHER_NAME = "Give the job a name of its own."


@dataclass(frozen=True)
class Target:
    """
    Where a job writes: the URL of a txlog folder, and the name of its writer.

    `position` names what the job writes, such as the day that it is of; None: a job that is run again writes its rows
    again. It can be pickled where `runtime` can be. Raises ConfigInvalid.
    """

    folder: str
    runtime: Runtime
    name: str | None = None
    position: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_writer(self.name)
        if self.position is None:
            return
        if self.name is None:
            raise ConfigInvalid("position: it is compared with the last one of the name", hint="Give a name, too.")
        if not _POSITION.fullmatch(self.position):
            raise ConfigInvalid(
                f"position={self.position[:120]!r}: 1 to 100 printable characters of ASCII are expected"
            )

    def opened(self) -> Folder:
        """The txlog folder."""
        return self.runtime.folder(self.folder)

    @property
    def encoded(self) -> bytes | None:
        """The writer's position behind the job."""
        return None if self.position is None else _PREFIX + self.position.encode()

    def arrival(self, folder: Folder, writer: Writer) -> Arrival:
        """What waits for txlogs of the writer."""
        return Arrival(folder, writer, self.runtime, behind=_BEHIND, again=_AGAIN)


@dataclass(frozen=True)
class BatchJob:
    """One run of a job, for its tasks and for its end; `handed` is None where an earlier run has written it."""

    target: Target
    handed: Handover | None

    def write(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """In a task: the result of its rows, empty where it has none. Raises SchemaRefused and StorageUnavailable."""
        if self.handed is None:
            return b""
        by = self.target.runtime
        opened = partial(self.handed.task.open, stores=by.stores, clock=by.clock, wait=by.wait, at_once=by.at_once)
        return result_of(batches, opened)

    def commit(self, results: Sequence[bytes | None]) -> int:
        """
        The rows of all results are in the table when it returns; how many, 0 where an earlier run wrote them.

        Raises Backpressure where the bookkeeper is behind, Fenced (the txlog was rejected, or another run of the job
        was faster), UnknownOutcome, NotPossible, StorageUnavailable.
        """
        if None in results:
            raise NotPossible("a task has no result: its rows would be left out", hint=_AGAIN)
        if self.handed is None:
            return 0
        folder = self.target.opened()
        with closing(self._taking_over(folder, self.handed)) as writer:
            rows = writer.take(filter(None, results), position=self.target.encoded)
            name = writer.publish()
            if name is not None:
                self.target.arrival(folder, writer).until_in(name)
        return rows

    def abort(self, results: Sequence[bytes | None]) -> int:
        """
        Delete the files of a job in which a task has no result; how many. Raises NotPossible and StorageUnavailable.

        Where all have one, the txlog may be published: nothing is deleted.
        """
        if self.handed is None or None not in results:
            return 0
        with closing(self._taking_over(self.target.opened(), self.handed)) as writer:
            return writer.discard(filter(None, results))

    def _taking_over(self, folder: Folder, handed: Handover) -> Writer:
        from writers.writer import Writer

        return Writer.taking_over(folder, handed, self.target.runtime)


def is_done(target: Target) -> bool:
    """
    Whether an earlier run of the job has written its rows: they are in the table then, and nothing is to be computed.

    Raises NotPossible (the writer has another source), Backpressure, Fenced and StorageUnavailable.
    """
    folder = target.opened()
    with closing(_writer(target, folder)) as writer:
        return _is_done(target, folder, writer)


def begin(
    target: Target, columns: pa.Schema, changes: Upserts | None = None, helpers: Collection[str] = ()
) -> BatchJob:
    """
    A run of the job, of rows with these columns; without anything to write where `is_done`. Rows are upserted with
    `changes`, as of `BatchPublisher`.

    Raises like that, and NotPossible (a keyed table without `changes`, or the reverse) and SchemaRefused.
    """
    folder = target.opened()
    with closing(_writer(target, folder)) as writer:
        if _is_done(target, folder, writer):
            log.info("job is done", extra={"action": "skip", "writer": writer.name, "position": target.position})
            return BatchJob(target, None)
        check(writer, columns, changes, helpers)
        writer.task()
        return BatchJob(target, writer.hand_over())


def _writer(target: Target, folder: Folder) -> Writer:
    from writers.writer import Writer

    return Writer(folder, target.name or NAME, target.runtime)


def _is_done(target: Target, folder: Folder, writer: Writer) -> bool:
    if target.encoded is None or writer.position is None:
        return False
    if not writer.position.startswith(_PREFIX):
        raise NotPossible(f"the writer {writer.name} has another source than a batch job", hint=_OTHER_NAME)
    # The one before this job, too: were it rejected, the chain of this one's txlog would be broken.
    target.arrival(folder, writer).until_chain_is_in()
    return writer.position == target.encoded
