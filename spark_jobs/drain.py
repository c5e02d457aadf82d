"""
Drains a table as a stream: reads everything that was committed when it began, and ends.

Spark's own trigger available-now does not: it reads nothing past 2^31 - 1 rows since the query's first offset, and ends
as if it had read all (docs/spark.md). A query whose trigger has no pause knows no such limit. It is stopped when its
offset has reached what was there at the beginning, and a drain that read less ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import NotPossible
from spark_jobs import query
from spark_jobs.begin_plan import has_begun
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.start_option import left_out, load
from spark_jobs.table import Snapshot, main_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bookkeeper.history.checkpoint import Offset

#: starts the query with a trigger
Start = Callable[[str], "StreamingQuery"]

NO_PAUSE = "0s"
#: times that the query is seen without anything to read before it counts as one that reads no further
_IDLE = 10


class Target:
    """
    The snapshots that were on main, newest first, when a drain began.
    """

    def __init__(self, main: Sequence[Snapshot]) -> None:
        self._main = main
        self._newer = {snapshot.snapshot_id: number for number, snapshot in enumerate(main)}

    def unread(self, offset: Offset | None) -> int | None:
        """
        How many snapshots a query at `offset` (None: a new one) has files to read of; None when it is not on main.
        """
        if offset is None or offset.snapshot is None:
            return sum(snapshot.added > 0 for snapshot in self._main)
        newer = self._newer.get(offset.snapshot)
        if newer is None:
            return None
        here = self._main[newer]
        rest = offset.position < (here.total if offset.whole else here.added)
        return rest + sum(snapshot.added > 0 for snapshot in self._main[:newer])


def drain(
    spark: SparkSession,
    table: str,
    checkpoint: str,
    start: Start,
    *,
    stopped: Callable[[], bool] = lambda: False,
    report: query.Report = lambda progress: None,
) -> None:
    """
    Run the query that `start` starts until it has read what `table` (catalog.namespace.name) holds now.

    Nothing is started when nothing is unread, except for a new checkpoint. Raises NotPossible when the query failed
    or was stopped before, and for a new checkpoint from which the query would leave out rows of the table (then
    `begin.begin` comes first); CheckpointUnreadable and StorageUnavailable when its place cannot be read.
    """
    from bookkeeper.history.checkpoint import Checkpoint, read

    store = HadoopCheckpointStore(spark, checkpoint)
    # The checkpoint before the table: a snapshot that the table then does not have is expired, not new.
    before = read(store)
    if not has_begun(store):
        _check_complete(spark, table)
    target = Target(main_history(spark, table))
    left = target.unread(before.committed or before.initial)
    if left == 0 and before == Checkpoint():
        # An empty table: Spark's own trigger writes down where the query begins, and makes the sink.
        query.follow(start(query.AVAILABLE_NOW), stopped, report)
    elif left != 0 or before.planned is not None:
        # A place that is not on main is expired or rolled back: the query starts, and says so itself.
        _follow(start(NO_PAUSE), target, stopped, report)
        after = read(store).committed
        _check(table, None if after is None and left is None else target.unread(after), left, stopped())


def _check_complete(spark: SparkSession, table: str) -> None:
    gone, rewritten = left_out(spark, load(spark, table))
    if gone or rewritten:
        raise NotPossible(
            f"a new stream leaves out up to {gone + rewritten:,} rows that {table} holds: it begins at the oldest "
            "snapshot that is kept",
            hint="Call spark_jobs.begin.begin before: it gives these rows, or begins elsewhere (docs/spark.md).",
        )


def _check(table: str, left: int | None, before: int | None, was_stopped: bool) -> None:
    # A query whose offset is on none of the target's snapshots has read newer ones, unless it began like that.
    if left == 0 or (left is None and before is not None):
        return
    unread = "an unknown number of" if left is None else left
    if was_stopped:
        hint = "Run it again with the same --checkpoint: it goes on where it is."
        raise NotPossible(f"the query was stopped with {unread} snapshots of {table} unread", hint=hint)
    hint = "Run it again. If it ends here again, compare `bookkeeper lag` with Spark's log above."
    raise NotPossible(f"the query reads no further, with {unread} snapshots of {table} unread", hint=hint)


def _follow(started: StreamingQuery, target: Target, stopped: Callable[[], bool], report: query.Report) -> None:
    reached, idle = False, 0

    def on_progress(progress: query.Progress) -> None:
        nonlocal reached
        # None is unread too on a snapshot that was not there at the beginning: it is newer than all of the target.
        reached = reached or not target.unread(_offset(progress["end"]))
        report(progress)

    def ended() -> bool:
        nonlocal idle
        idle += started.status["message"] == "Waiting for data to arrive"
        return reached or idle >= _IDLE or stopped()

    query.follow(started, ended, on_progress)


def _offset(end: Any) -> Offset | None:
    from bookkeeper.history.checkpoint import Offset

    if end is None:
        return None
    snapshot = None if end["snapshot_id"] == -1 else end["snapshot_id"]
    return Offset(snapshot, max(end["position"], 0), end["scan_all_files"])
