"""
How long it took: percentiles over rows and txlogs. Pure; milliseconds in, timedeltas out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from demo.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 99th percentile of `count` measurements."""

    count: int
    p50: timedelta
    p99: timedelta


def percentiles(measured: Iterable[int]) -> Percentiles | None:
    """
    The percentiles of durations in milliseconds; None when there are none.
    """
    ordered = sorted(measured)
    return Percentiles(len(ordered), percentile(ordered, 50), percentile(ordered, 99)) if ordered else None


def percentile(ordered: Sequence[int], percent: int) -> timedelta:
    """
    The smallest of the ordered milliseconds that `percent` of them do not exceed.
    """
    rank = -(-len(ordered) * percent // 100)
    return timedelta(milliseconds=ordered[max(rank, 1) - 1])


def visible(evidence: Evidence) -> Percentiles | None:
    """
    Data file closed -> seen by Spark, over rows.
    """
    closed = {key: item.closed_ms for item in evidence.published for key in item.keys}
    return percentiles(
        batch.seen_ms - closed[key] for batch in evidence.consumed for key in batch.keys if key in closed
    )


def committed(evidence: Evidence) -> Percentiles | None:
    """
    Txlog published -> in a snapshot, over txlogs.
    """
    published = {item.txlog: item.published_ms for item in evidence.published}
    return percentiles(
        snapshot.at_ms - published[txlog]
        for snapshot in evidence.committed
        for txlog in snapshot.txlogs
        if txlog in published
    )
