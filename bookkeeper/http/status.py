"""
/status.json and /history.json: what the page shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any

from bookkeeper.config.settings import Daemon
from bookkeeper.http.probes import readiness
from bookkeeper.http.troubles import SEVERITIES, Trouble, troubles
from bookkeeper.metrics.history import STEP_SECONDS
from bookkeeper.metrics.inspection import Inspection
from bookkeeper.metrics.table_metrics import TableMetrics
from bookkeeper.serve.health import health
from bookkeeper.serve.loop import TableLoop

Tables = Sequence[tuple[TableLoop, TableMetrics]]
#: steps of the small plots, ten minutes
_SMALL = 60
_PLOTTED = ("rows", "pending", "lag", "visible", "commit")


def status(tables: Tables, settings: Daemon, now: datetime) -> dict[str, Any]:
    """
    Every table, those in trouble first, and all troubles, worst first.
    """
    found = [(slot, figures, troubles(slot, figures, settings, now)) for slot, figures in tables]
    found.sort(key=lambda item: (_worst(item[2]), -item[1].age(now), item[0].table))
    every = [trouble for _, _, those in found for trouble in those]
    return {
        "now": now.isoformat(),
        "version": version("iceberg-bookkeeper"),
        "step": STEP_SECONDS,
        "troubles": [asdict(item) for item in sorted(every, key=lambda item: SEVERITIES.index(item.severity))],
        "tables": [_table(slot, figures, those, settings, now) for slot, figures, those in found],
    }


def _worst(found: Sequence[Trouble]) -> int:
    return min((SEVERITIES.index(item.severity) for item in found), default=len(SEVERITIES))


def _table(
    slot: TableLoop, figures: TableMetrics, found: Sequence[Trouble], settings: Daemon, now: datetime
) -> dict[str, Any]:
    about, ready, stand = health(slot, settings, now), readiness(slot, figures, settings, now), figures.stand
    drawn = figures.history.read(now, _SMALL, _pause(settings))
    return {
        "table": slot.table,
        "state": about.state,
        "ready": ready.ready,
        "severity": found[0].severity if found else "",
        "why": ready.why,
        "hint": ready.hint,
        "since": _iso(about.since),
        "next_try": _iso(about.next_try),
        "last_success": _iso(about.last_success),
        "last_commit": _iso(figures.last_commit),
        "pending": figures.pending,
        "held": figures.held,
        "oldest_age": round(figures.age(now), 1),
        "rows_per_second": _rate(drawn["rows"]),
        "totals": {**figures.added, "holes": figures.holes, "dropped_files": figures.dropped_files},
        "stand": asdict(stand) if stand else None,
        **_looked(figures.looked),
        "plots": {name: drawn[name] for name in _PLOTTED},
    }


def _rate(rows: Sequence[float | None]) -> float:
    """Over the last whole minute of steps; the present one is not over yet."""
    seen = [value for value in rows[-7:-1] if value is not None]
    return round(sum(seen) / (len(seen) * STEP_SECONDS), 1) if seen else 0.0


def _looked(found: Inspection) -> dict[str, Any]:
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
    for slot, figures in tables:
        if slot.table == table:
            series = _known(figures.history.read(now, pause=_pause(settings)))
            return {"table": table, "now": now.isoformat(), "step": STEP_SECONDS, "series": series}
    return None


def _pause(settings: Daemon) -> int:
    """How many steps there may be between two turns of a table that is fine."""
    return 1 + int(settings.every.total_seconds() // STEP_SECONDS)


def _known(series: Mapping[str, list[float | None]]) -> Mapping[str, list[float | None]]:
    """Without the time before the first turn."""
    unknown = [all(value is None for value in values) for values in zip(*series.values(), strict=True)]
    first = unknown.index(False) if False in unknown else len(unknown)
    return {name: values[first:] for name, values in series.items()}


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
