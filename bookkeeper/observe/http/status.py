"""
/status.json and /history.json: what the page shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any

from bookkeeper.config.settings import Daemon
from bookkeeper.folds.stats import COMMITTED
from bookkeeper.observe.http.probes import readiness
from bookkeeper.observe.http.problems import SEVERITIES, Problem, problems
from bookkeeper.observe.metrics.history import STEP_SECONDS
from bookkeeper.observe.metrics.inspection import Inspection
from bookkeeper.observe.metrics.table_metrics import REWRITTEN, TableMetrics
from bookkeeper.serve.health import health
from bookkeeper.serve.loop import TableLoop

Tables = Sequence[tuple[TableLoop, TableMetrics]]
#: steps of the small plots, ten minutes
_SMALL = 60
_PLOTTED = ("rows", "pending", "lag", "visible", "commit")


def status(tables: Tables, settings: Daemon, now: datetime) -> dict[str, Any]:
    """
    Every table, those with problems first, and all problems, worst first.
    """
    found = [(loop, metrics, problems(loop, metrics, settings, now)) for loop, metrics in tables]
    # The problems of a table are sorted: its first one is the worst.
    rank = [*SEVERITIES, ""].index
    found.sort(key=lambda item: (rank(item[2][0].severity if item[2] else ""), -item[1].age(now), item[0].table))
    every = [problem for _, _, those in found for problem in those]
    return {
        "now": now.isoformat(),
        "version": version("iceberg-bookkeeper"),
        "step": STEP_SECONDS,
        "troubles": [asdict(item) for item in sorted(every, key=lambda item: rank(item.severity))],
        "tables": [_table(loop, metrics, those, settings, now) for loop, metrics, those in found],
    }


def _table(
    loop: TableLoop, metrics: TableMetrics, found: Sequence[Problem], settings: Daemon, now: datetime
) -> dict[str, Any]:
    about, ready, stats = health(loop, settings, now), readiness(loop, metrics, settings, now), metrics.stats
    drawn = metrics.history.read(now, _SMALL, _pause(settings))
    return {
        "table": loop.table,
        "state": about.state,
        "ready": ready.ready,
        "severity": found[0].severity if found else "",
        "why": ready.why,
        "hint": ready.hint,
        "since": _iso(about.since),
        "next_try": _iso(about.next_try),
        "last_success": _iso(about.last_success),
        "last_commit": _iso(metrics.last_commit or metrics.head_at),
        "pending": metrics.pending,
        "held": metrics.held,
        "oldest_age": round(metrics.age(now), 1),
        "rows_per_second": _rate(drawn["rows"]),
        "rewrites": {
            **{name: metrics.rewritten[name] for name in REWRITTEN},
            "pending": metrics.rewrites_pending,
            "oldest_age": round(metrics.rewrite_age(now), 1),
            "rejected": metrics.rewrite_rejections.copy().total(),
        },
        "deletes": _deletes(metrics, now),
        "totals": {**metrics.added, "holes": metrics.holes, "dropped_files": metrics.dropped_files},
        "stand": asdict(stats) if stats else None,
        **_inspected(metrics.inspection),
        "plots": {name: drawn[name] for name in _PLOTTED},
    }


def _deletes(metrics: TableMetrics, now: datetime) -> dict[str, Any] | None:
    """Of a keyed table, what waits to be folded and what was."""
    if metrics.stats is None or not metrics.stats.keyed:
        return None
    folds, age = metrics.folds, metrics.folds.age(now)
    return {
        "unfolded_files": None if folds.unfolded is None else folds.unfolded.files,
        "oldest_age": None if age is None else round(age, 1),
        "left": dict(folds.left),
        "folds": folds.outcomes[COMMITTED],
        "rows_deleted": folds.folded["rows"],
        "last_fold_seconds": round(folds.last_seconds, 3),
    }


def _rate(rows: Sequence[float | None]) -> float:
    """Over the last whole minute of steps; the current step is not over yet."""
    seen = [value for value in rows[-7:-1] if value is not None]
    return round(sum(seen) / (len(seen) * STEP_SECONDS), 1) if seen else 0.0


def _inspected(found: Inspection) -> dict[str, Any]:
    consumers = [
        {
            "name": item.name,
            "state": item.state,
            "used": round(item.used, 4),
            "why": item.why,
            "lag": {**asdict(item.lag), "behind": item.lag.behind.total_seconds()} if item.lag else None,
        }
        for item in found.consumers
    ]
    return {
        "looked": _iso(found.at),
        "behind": found.behind,
        "consumers": consumers,
        "consumers_omitted": found.omitted,
        "rejected": found.rejected,
        "rejections": [{**asdict(item), "at": _iso(item.at)} for item in found.newest],
        "disk": {"free": found.free, "size": found.size} if found.size else None,
    }


def history(tables: Tables, table: str, settings: Daemon, now: datetime) -> Mapping[str, Any] | None:
    """
    The last hour of one table; None when there is no such table.
    """
    for loop, metrics in tables:
        if loop.table == table:
            series = metrics.history.read(now, pause=_pause(settings))
            # Without the time before the first tick.
            known = [any(value is not None for value in values) for values in zip(*series.values(), strict=True)]
            first = known.index(True) if True in known else len(known)
            shown = {name: values[first:] for name, values in series.items()}
            return {"table": table, "now": now.isoformat(), "step": STEP_SECONDS, "series": shown}
    return None


def _pause(settings: Daemon) -> int:
    """The largest number of steps between two ticks of a healthy table."""
    return 1 + int(settings.every.total_seconds() // STEP_SECONDS)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
