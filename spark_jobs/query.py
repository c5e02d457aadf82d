"""
Starts appending queries, and follows a started one until it ends or a stop is requested.

Reports every progress once, lets a running micro-batch finish, and turns the error that ended a query into a hint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from bookkeeper.config.units import duration, millis
from bookkeeper.errors import BookkeeperError, ConfigInvalid, NotPossible

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Progress = Mapping[str, Any]
Report = Callable[[Progress], None]

AVAILABLE_NOW = "available-now"
_PAUSE_SECONDS = 0.2
_POLLS_TO_FINISH = 150
_START_ANEW = (
    "Start with a new --checkpoint and a new output: it begins with all rows that the table holds. Let the reaper keep "
    "more, and register the query."
)
_EXPIRED = (
    "Its place was expired. A drained query of your own with Spark's trigger available-now can be mended "
    f"(docs/spark.md). Else: {_START_ANEW}"
)
#: a job of ours ends its query by an error with these words
CHANGED = "have changed since the stream began"
# Words of the errors in a failed query, and the hint for each.
_HINTS = (
    ("Cannot load current offset at snapshot", _EXPIRED),
    ("Snapshot.parentId()", f"Snapshots after the stream's offset were expired. {_START_ANEW}"),
    (
        "Cannot process delete snapshot",
        "Leave streaming-skip-delete-snapshots on: retention makes such snapshots.",
    ),
    (
        "Cannot process overwrite snapshot",
        "Rows were rewritten. Skipping it would lose the rows it adds. Start with a new --checkpoint and a new output: "
        "it begins with all rows that the table holds.",
    ),
    (CHANGED, "The table's columns have changed. Start the job again with the same --checkpoint."),
)


def trigger(text: str) -> dict[str, Any]:
    """
    The keyword for `DataStreamWriter.trigger` from `1s` or `available-now`; raises ConfigInvalid.
    """
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        return {"processingTime": f"{millis(duration(text))} milliseconds"}
    except ValueError as exc:
        raise ConfigInvalid(f"--trigger {text}: available-now, or {exc}, is allowed") from exc


def append_to(writer: DataStreamWriter, table: str) -> StreamingQuery:
    """
    Start the query as appends to `table`.
    """
    # Spark calls every column it computes nullable; Iceberg would refuse those for required ones.
    # Fanout keeps a file open per partition instead of asking for sorted rows.
    checked = writer.format("iceberg").outputMode("append").option("check-nullability", "false")
    return checked.option("fanout-enabled", "true").toTable(table)


def follow(query: StreamingQuery, stopped: Callable[[], bool], report: Report = lambda progress: None) -> None:
    """
    Return when the query has ended or `stopped` is true; raises NotPossible with the error that ended it.
    """
    seen = -1
    try:
        while not query.awaitTermination(_PAUSE_SECONDS) and not stopped():  # type: ignore[arg-type]
            seen = _report(query, seen, report)
        _finish_batch(query)
    except Exception as exc:
        raise _explained(exc) from exc
    finally:
        query.stop()
    _report(query, seen, report)


def _report(query: StreamingQuery, seen: int, report: Report) -> int:
    # lastProgress first: fetching all hundred of them five times a second would cost more than the query itself.
    last = query.lastProgress
    if last is None or last["batchId"] <= seen:
        return seen
    for progress in query.recentProgress:
        if progress["batchId"] > seen:
            seen = progress["batchId"]
            report(summary(json.loads(progress.json)))
    return seen


def _finish_batch(query: StreamingQuery) -> None:
    batch = _batch(query)
    for _ in range(_POLLS_TO_FINISH):
        if not query.isActive or not query.status["isTriggerActive"] or _batch(query) != batch:
            return
        query.awaitTermination(_PAUSE_SECONDS)  # type: ignore[arg-type]


def _batch(query: StreamingQuery) -> int:
    return query.lastProgress["batchId"] if query.lastProgress else -1


def summary(progress: Progress) -> dict[str, Any]:
    """
    The record of a progress: batch, rows, when it began and was seen, and the stream's offset.
    """
    began = datetime.fromisoformat(progress["timestamp"])
    took = progress["durationMs"]
    source = progress["sources"][0] if progress["sources"] else {}
    return {
        "query": progress["id"],
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "began": began.isoformat(timespec="milliseconds"),
        "seen": (began + timedelta(milliseconds=took.get("triggerExecution", 0))).isoformat(timespec="milliseconds"),
        "end": source.get("endOffset"),
        "durations_ms": took,
    }


def first_batch(name: str, rows: int, began: datetime, ended: datetime) -> dict[str, Any]:
    """
    The record of the batch that a query begins with, in the form of `summary`.
    """
    return {
        "query": name,
        "batch": -1,
        "rows": rows,
        "began": began.isoformat(timespec="milliseconds"),
        "seen": ended.isoformat(timespec="milliseconds"),
        "end": None,
        "durations_ms": {"triggerExecution": millis(ended - began)},
    }


def _explained(exc: Exception) -> BookkeeperError:
    text = str(exc)
    hint = next((hint for words, hint in _HINTS if words in text), "The stack trace is in Spark's log above.")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:")]
    root = (causes[-1:] or lines or ["no message"])[0]
    return NotPossible(f"the stream ended: {root}", hint=hint)
