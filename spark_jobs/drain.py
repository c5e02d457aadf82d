"""
Drains a table as a stream: reads everything that was committed when it began, and ends.

Spark's own trigger available-now does not: it reads nothing past 2^31 - 1 rows since the query's first offset, and ends
as if it had read all (docs/spark.md). A query whose trigger has no pause knows no such limit. It is stopped when its
offset has reached what was there at the beginning, and a drain that read less ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import NotPossible
from spark_jobs import query
from spark_jobs.hadoop import HadoopPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bookkeeper.streams.checkpoint import Offset

#: starts the query with a trigger
Start = Callable[[str], "StreamingQuery"]

NO_PAUSE = "0s"
#: times that the query is seen without anything to read before it counts as one that reads no further
_IDLE = 10


@dataclass(frozen=True, slots=True)
class Step:
    """
    A snapshot of main: when it was committed, the files a stream reads of it, and all files of the table then.
    """

    snapshot: int
    committed_ms: int
    added: int
    total: int


class Target:
    """
    What was on main, oldest first, when a drain began; a query without a place reads it from `since_ms` on.
    """

    def __init__(self, steps: Sequence[Step], since_ms: int = 0) -> None:
        self._steps, self._since_ms = steps, since_ms
        self._place = {step.snapshot: index for index, step in enumerate(steps)}

    def unread(self, offset: Offset | None) -> int | None:
        """
        How many snapshots a query at `offset` (None: a new one) has files to read of; None when it is not on main.
        """
        if offset is None or offset.snapshot is None:
            return sum(step.added > 0 and step.committed_ms >= self._since_ms for step in self._steps)
        place = self._place.get(offset.snapshot)
        if place is None:
            return None
        here = self._steps[place]
        rest = offset.position < (here.total if offset.whole else here.added)
        return rest + sum(step.added > 0 for step in self._steps[place + 1 :])


def main_of(spark: SparkSession, table: str) -> list[Step]:
    """
    The snapshots of main, oldest first, as far back as they are still there.
    """
    # The head before the snapshots: what is committed in between is newer than the head and left out. Not from
    # `.history`: that names only the last snapshot of a commit, and a merge is committed together with its append.
    head = spark.table(f"{table}.refs").where("name = 'main'").first()
    rows = spark.sql(
        "SELECT snapshot_id, parent_id, unix_millis(committed_at) AS at, operation, "
        f"summary['added-data-files'] AS added, summary['total-data-files'] AS total FROM {table}.snapshots"
    ).collect()
    known = {row.snapshot_id: row for row in rows}
    steps, current = [], head.snapshot_id if head else None
    while current in known:
        row = known[current]
        added = int(row.added or 0) if row.operation == "append" else 0
        steps.append(Step(current, row.at, added, int(row.total or 0)))
        current = row.parent_id
    return steps[::-1]


def drain(
    spark: SparkSession,
    table: str,
    checkpoint: str,
    start: Start,
    *,
    since: datetime | None = None,
    stopped: Callable[[], bool] = lambda: False,
    report: query.Report = lambda progress: None,
) -> None:
    """
    Run the query that `start` starts until it has read what `table` (catalog.namespace.name) holds now.

    Nothing is started when nothing is unread, except for a new checkpoint. Raises NotPossible when the query failed
    or was stopped before, CheckpointUnreadable and StorageUnavailable when nobody can tell where it is.
    """
    from bookkeeper.streams.checkpoint import Checkpoint, read

    place = HadoopPlace(spark, checkpoint)
    # The checkpoint before the table: a snapshot that the table then does not have is expired, not new.
    before = read(place)
    target = Target(main_of(spark, table), 0 if since is None else int(since.timestamp() * 1000))
    left = target.unread(before.committed or before.initial)
    if left == 0 and before == Checkpoint():
        # An empty table: Spark's own trigger writes down where the query begins, and makes the sink.
        query.follow(start(query.AVAILABLE_NOW), stopped, report)
    elif left != 0 or before.planned is not None:
        # A place that is not on main is expired or rolled back: the query starts, and says so itself.
        _follow(start(NO_PAUSE), target, stopped, report)
        after = read(place).committed
        _check(table, None if after is None and left is None else target.unread(after), left, stopped())


def _check(table: str, left: int | None, before: int | None, was_stopped: bool) -> None:
    # Not on main is where a query stands that read what came meanwhile, unless it stood there at the beginning.
    if left == 0 or (left is None and before is not None):
        return
    unread = "nobody knows how many" if left is None else left
    if was_stopped:
        hint = "Run it again with the same --checkpoint: it goes on where it is."
        raise NotPossible(f"the query was stopped with {unread} snapshots of {table} unread", hint=hint)
    hint = "Run it again. If it ends here again, compare `bookkeeper lag` with Spark's log above."
    raise NotPossible(f"the query reads no further, with {unread} snapshots of {table} unread", hint=hint)


def _follow(started: StreamingQuery, target: Target, stopped: Callable[[], bool], report: query.Report) -> None:
    reached, idle = False, 0

    def note(progress: query.Progress) -> None:
        nonlocal reached
        # A snapshot that was not there at the beginning is newer than all that were.
        reached = reached or not target.unread(_offset(progress["end"]))
        report(progress)

    def over() -> bool:
        nonlocal idle
        idle += started.status["message"] == "Waiting for data to arrive"
        return reached or idle >= _IDLE or stopped()

    query.follow(started, over, note)


def _offset(end: Any) -> Offset | None:
    from bookkeeper.streams.checkpoint import Offset

    if end is None:
        return None
    snapshot = None if end["snapshot_id"] == -1 else end["snapshot_id"]
    return Offset(snapshot, max(end["position"], 0), end["scan_all_files"])
