"""
Files by many processes, published by one: a `Task` goes to other processes, their results come back to the writer.

What a crash leaves at each step, and what cleans it up:

    task()       nothing is stored
    TaskWriter   data files that no txlog names, the last one torn: the orphan sweep, by their age
    result lost  the same
    take()       nothing is stored: the same
    discard()    some of the files are deleted, the others are swept
    publish()    as of every writer: before the txlog's create data files without a txlog, after it a pending txlog
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from types import TracebackType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.contract import card as cards
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import NotPossible
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from writers.files.last_of_each_key import DELETE, INSERT, UPSERT
from writers.files.operations import booleans
from writers.files.rolling_writer import StoredFiles
from writers.files.upsert_steps import NO_DELETES, NO_ROOM, files_of
from writers.files.write_spec import WriteSpec
from writers.one_at_a_time import one_at_a_time
from writers.publish.run_state import RunState
from writers.tasks.results import Attempt, encode
from writers.timing import AtOnce, Clock, Wait, at_once, millis, pause, utc_now
from writers.values.given import as_table


@dataclass(frozen=True)
class Task:
    """
    What another process needs to write files of one txlog of a writer; small, and can be pickled. `Writer.task` makes
    it.

    It may be given to any number of processes, and opened any number of times: each opening has file names of its own.
    """

    #: card.json's bytes: the table as the writer sees it
    card: bytes
    writer: str
    incarnation: str
    sequence: int
    reservation: int
    keep: str
    #: the first number of the order-column, within the txlog
    orders: int

    @property
    def txlog(self) -> TxlogName:
        """The txlog that is to name the files."""
        return TxlogName(self.writer, self.incarnation, self.sequence)

    def open(
        self,
        *,
        stores: Callable[[str], Store] = open_store,
        clock: Clock = utc_now,
        wait: Wait = pause,
        random: Callable[[int], bytes] = os.urandom,
        at_once: AtOnce = at_once,
    ) -> "TaskWriter":
        """
        Begin to write: `with task.open() as files: files.write(rows)`, then give `files.result` to the writer.

        Reads no card and lists nothing. Raises WrongFolder (the card was made by a newer version).
        """
        return TaskWriter(self, stores=stores, clock=clock, wait=wait, random=random, at_once=at_once)


class TaskWriter:
    """
    Writes the data files of one opening of a task: durable when the `with` block has ended, in the table once the
    writer has taken the result and published. Left by an exception it has no result.

    Threads may share it. A file that nothing names is swept by the reaper: this never deletes one.
    """

    def __init__(
        self,
        task: Task,
        *,
        stores: Callable[[str], Store],
        clock: Clock,
        wait: Wait,
        random: Callable[[int], bytes],
        at_once: AtOnce,
    ) -> None:
        self._task, self._clock = task, clock
        card = cards.loads(task.card)
        self._spec = WriteSpec.of(card)
        self._store = of_table(stores(card.data_path), card.location)
        attempt = str(Attempt(task.reservation, random(8)))
        given = (task.writer, task.incarnation, task.keep, clock, wait, at_once)
        self._files = files_of(self._spec, *given, attempt, task.orders)
        self._state = RunState(f"task writer of {task.txlog}", hint="Open the task again, and write all of its rows.")
        self._process, self._lock = os.getpid(), RLock()
        self._result: bytes | None = None

    @one_at_a_time
    def write(self, rows: Any) -> None:
        """
        Take rows, as `Writer.write` does; columns that the table lacks are refused, whatever its schema grows by.

        Raises SchemaRefused, and then has taken none of the rows, and StorageUnavailable.
        """
        self._take(INSERT, rows)

    @one_at_a_time
    def upsert(self, rows: Any) -> None:
        """Take rows of a keyed table, as `Writer.upsert` does: one task has all rows of a key."""
        self._take(UPSERT, rows)

    @one_at_a_time
    def delete(self, keys: Any) -> None:
        """Take keys whose rows go, as `Writer.delete` does."""
        self._take(DELETE, keys)

    @one_at_a_time
    def change(self, rows: Any, deleted: pa.Array | Sequence[bool]) -> None:
        """Take upserts and deletes, as `Writer.change` does."""
        self._take(UPSERT, rows, booleans(deleted))

    @property
    def result(self) -> bytes:
        """The files for `Writer.take` or `Writer.discard`. Raises NotPossible before the `with` block has ended."""
        if self._result is None:
            raise NotPossible(
                "the task has no result", hint="Ask for it behind the `with` block, where that succeeded."
            )
        return self._result

    def _take(self, kind: int, rows: Any, deleted: pa.Array | None = None) -> None:
        self._state.check()
        table = as_table(rows, self._spec.schema)
        self._files.store(self._store)  # files that an outage left in memory must not pile up there
        self._check_kind(kind, table.num_rows)
        fitted = self._files.fit(table, self._spec, kind, deleted)
        with self._state.broken_by_errors():
            finished = self._files.add(fitted, self._spec, self._task.sequence)
            if finished:
                self._files.store(self._store)

    def _check_kind(self, kind: int, count: int) -> None:
        """Raises NotPossible where the table, or a txlog, does not take so many operations of this kind."""
        self._files.check_kind(kind, self._spec.card.table)
        with self._state.broken_by_errors():
            has_room = self._files.has_room(count, self._spec, self._task.sequence)
        if not has_room:
            raise NotPossible(NO_ROOM, hint="Give each task fewer rows, and publish after fewer tasks.")
        if not self._files.deletes_fit(kind, self._spec):
            hint = "discard() the results, publish, and make a new task() once the card has changed."
            raise NotPossible(NO_DELETES, hint=hint)

    def __enter__(self) -> "TaskWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._state.close()

    @one_at_a_time
    def _finish(self) -> None:
        self._state.check()
        with self._state.broken_by_errors():
            operations = self._files.rows()
            self._files.finish(self._spec, self._task.sequence)
            self._files.store(self._store)
        written = StoredFiles(self._files.named(), operations, self._files.orders())
        self._result = encode(self._task.txlog, self._spec, written, millis(self._clock()))

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            hint = "Open the task in every process."
            raise NotPossible(f"this task was opened by process {self._process}", hint=hint)
