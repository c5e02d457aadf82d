"""
/healthz and /readyz: whether every table's loop runs, and whether rows get in.

A catalog or storage that is down must not get the daemon killed: it tries again, and a new process could do no better.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from bookkeeper.config.settings import Daemon
from bookkeeper.config.units import format_rough
from bookkeeper.observe.metrics.table_metrics import TableMetrics
from bookkeeper.serve.health import STANDBY, health
from bookkeeper.serve.loop import TableLoop

Tables = Sequence[tuple[TableLoop, TableMetrics]]
#: beyond the longest pause between two ticks
_GRACE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether rows get into a table soon enough; if not, why, and what to do."""

    table: str
    ready: bool
    state: str
    why: str = ""
    hint: str = ""


def stopped(tables: Tables, settings: Daemon, monotonic: float) -> dict[str, float]:
    """
    The tables whose loop has stopped, and for how many seconds; a tick under way counts as running.
    """
    most = (settings.backoff_most + settings.every + _GRACE).total_seconds()
    still = {loop.table: monotonic - metrics.last_tick for loop, metrics in tables if loop.ticking_since is None}
    return {table: seconds for table, seconds in still.items() if seconds > most}


def readiness(loop: TableLoop, metrics: TableMetrics, settings: Daemon, now: datetime) -> Readiness:
    """
    Ready while its ticks succeed and its oldest pending txlog is young enough.
    """
    found, age = health(loop, settings, now), timedelta(seconds=metrics.age(now))
    if not found.ready:
        return Readiness(loop.table, False, found.state, found.why, found.hint)
    if found.state != STANDBY and age > settings.not_ready_age + metrics.window:
        why = f"the oldest txlog has been pending for {format_rough(age)}"
        why += f": {found.postponed}" if found.postponed else ""
        do = f"See `bookkeeper pending --table {found.table}`, and `bookkeeper show TXLOG` for its oldest one."
        return Readiness(loop.table, False, found.state, why, do)
    return Readiness(loop.table, True, found.state, found.why or found.postponed)


def healthz(tables: Tables, settings: Daemon, monotonic: float) -> tuple[bool, dict[str, Any]]:
    """
    Whether every table's loop still ticks, and the body of the answer.
    """
    dead = stopped(tables, settings, monotonic)
    silent = {table: f"no tick for {seconds:.0f} s" for table, seconds in sorted(dead.items())}
    return not dead, {"healthy": not dead, "tables": len(tables), "dead": silent}


def readyz(tables: Tables, settings: Daemon, now: datetime) -> tuple[bool, dict[str, Any]]:
    """
    Whether every table is ready, and for each that is not, why and what to do.
    """
    found = [asdict(readiness(loop, metrics, settings, now)) for loop, metrics in tables]
    ready = all(item["ready"] for item in found)
    shown = {item.pop("table"): {key: value for key, value in item.items() if value != ""} for item in found}
    return ready, {"ready": ready, "tables": shown}
