"""
Every metric of the daemon: its name, its help, and its value from the figures.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import version

from bookkeeper.config.settings import Daemon
from bookkeeper.console.exposition import COUNTER, GAUGE, HISTOGRAM, Family
from bookkeeper.metrics.inspection import Reads
from bookkeeper.metrics.table_metrics import COMMITTED, FAILED, IDLE, STANDBY, TableMetrics
from bookkeeper.serve.health import HALTED, health
from bookkeeper.serve.loop import TableLoop

Tables = Sequence[tuple[TableLoop, TableMetrics]]
Value = Callable[[TableMetrics], float | None]

_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("txlogs_committed_total", "txlogs committed", lambda it: it.added["txlogs"]),
    ("files_committed_total", "data files committed", lambda it: it.added["files"]),
    ("rows_committed_total", "rows committed", lambda it: it.added["rows"]),
    ("bytes_committed_total", "bytes of data files committed", lambda it: it.added["bytes"]),
    ("holes_total", "published txlogs that were gone before they were committed", lambda it: it.holes),
    ("files_dropped_total", "data files dropped by retention", lambda it: it.dropped_files),
)
#: told only by the one who works on the table: of others they would be old
_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("txlogs_pending", "txlogs published and not committed yet", lambda it: it.pending),
    ("txlogs_held", "txlogs left pending until somebody acts", lambda it: it.held),
    ("rejected_txlogs", "txlogs in rejected/", lambda it: it.looked.rejected),
    (
        "retention_held_back",
        "1 while retention drops nothing, because it would drop too much",
        lambda it: bool(it.brake),
    ),
    ("snapshots", "snapshots in the table's metadata", lambda it: it.stand and it.stand.snapshots),
    (
        "metadata_bytes",
        "size of metadata.json, which every commit writes and every reader loads",
        lambda it: it.looked.metadata_bytes,
    ),
    ("manifests", "manifests of the current snapshot", lambda it: it.stand and it.stand.manifests),
    ("data_files", "live data files", lambda it: it.stand and it.stand.files),
    ("rows", "live rows", lambda it: it.stand and it.stand.rows),
    ("data_bytes", "bytes of live data files", lambda it: it.stand and it.stand.bytes),
    ("writers", "writers with a mark or a position", lambda it: it.stand and it.stand.writers),
    ("marks", "runs of writers that have a mark", lambda it: it.stand and it.stand.marks),
    (
        "marks_bytes",
        "bytes of the marks, which are in every metadata.json",
        lambda it: it.stand and it.stand.marks_bytes,
    ),
    ("disk_free_bytes", "room on the local disk of folder or table, whichever has less", lambda it: it.looked.free),
    ("disk_size_bytes", "size of that disk", lambda it: it.looked.size),
    (
        "looked_timestamp_seconds",
        "when consumers, rejected/ and disk were last looked at",
        lambda it: _time(it.looked.at),
    ),
    ("consumers_omitted", "consumers beyond the 50 that have figures of their own", lambda it: it.looked.omitted),
)
_HISTOGRAMS = (
    ("tick_seconds", "time a tick takes"),
    ("commit_seconds", "time a commit takes, from the batch to the catalog's answer"),
    ("visibility_seconds", "age of a txlog when its rows became visible"),
)
_LAG = ("snapshots", "files", "rows", "bytes")


def families(tables: Tables, settings: Daemon, now: datetime) -> Iterator[Family]:
    """
    All metrics at `now`.
    """
    built = Family("bookkeeper_build_info", GAUGE, "what runs here")
    built.add(1, version=version("iceberg-bookkeeper"), python=platform.python_version())
    yield built
    yield from _states(tables, settings, now)
    yield from _counted(tables)
    working = [(slot, figures) for slot, figures in tables if not slot.standby]
    for name, text, value in _GAUGES:
        yield _valued(f"bookkeeper_{name}", GAUGE, text, working, value)
    age = Family("bookkeeper_oldest_txlog_age_seconds", GAUGE, "age of the oldest pending txlog, 0 when none is")
    limit = Family("bookkeeper_pending_limit", GAUGE, "writers wait while so many txlogs are pending")
    late = Family("bookkeeper_oldest_txlog_age_limit_seconds", GAUGE, "an older one makes the table not ready")
    for slot, figures in working:
        if figures.pending is not None:
            age.add(figures.age(now), table=slot.table)
        late.add((settings.not_ready_age + figures.window).total_seconds(), table=slot.table)
        if figures.pending_limit is not None:
            limit.add(figures.pending_limit, table=slot.table)
    yield from (age, late, limit)
    yield from _consumers(working)


def _states(tables: Tables, settings: Daemon, now: datetime) -> Iterator[Family]:
    ready = Family("bookkeeper_table_ready", GAUGE, "1 while its ticks succeed, or a few failed")
    halted = Family("bookkeeper_table_halted", GAUGE, "1 while it waits for a person's decision")
    standby = Family("bookkeeper_table_standby", GAUGE, "1 while another bookkeeper works on it")
    failures = Family("bookkeeper_consecutive_failures", GAUGE, "failed ticks in a row")
    success = Family(
        "bookkeeper_last_success_timestamp_seconds", GAUGE, "when a tick last succeeded; 0: not since the start"
    )
    commit = Family("bookkeeper_last_commit_timestamp_seconds", GAUGE, "when rows were last committed")
    for slot, figures in tables:
        found = health(slot, settings, now)
        ready.add(found.ready, table=slot.table)
        halted.add(found.state == HALTED, table=slot.table)
        standby.add(slot.standby, table=slot.table)
        failures.add(slot.failures, table=slot.table)
        success.add(_time(slot.last_success) or 0, table=slot.table)
        if figures.last_commit is not None:
            commit.add(figures.last_commit.timestamp(), table=slot.table)
    yield from (ready, halted, standby, failures, success, commit)


def _counted(tables: Tables) -> Iterator[Family]:
    for name, text, value in _COUNTERS:
        yield _valued(f"bookkeeper_{name}", COUNTER, text, tables, value)
    commits = Family("bookkeeper_commits_total", COUNTER, "commits by outcome; refused: tried again in the same tick")
    ticks = Family("bookkeeper_ticks_total", COUNTER, "ticks by outcome")
    rejections = Family("bookkeeper_rejections_total", COUNTER, "txlogs moved to rejected/, by error")
    for slot, figures in tables:
        for outcome in ("committed", "refused"):
            commits.add(figures.commits[outcome], table=slot.table, outcome=outcome)
        for outcome in (COMMITTED, IDLE, STANDBY, FAILED):
            ticks.add(figures.ticks[outcome], table=slot.table, outcome=outcome)
        for error, count in sorted(figures.rejections.copy().items()):
            rejections.add(count, table=slot.table, error=error)
    yield from (commits, ticks, rejections)
    for name, text in _HISTOGRAMS:
        family = Family(f"bookkeeper_{name}", HISTOGRAM, text)
        for slot, figures in tables:
            family.add_histogram(getattr(figures, name), table=slot.table)
        yield family


def _valued(name: str, kind: str, text: str, tables: Tables, value: Value) -> Family:
    family = Family(name, kind, text)
    for slot, figures in tables:
        found = value(figures)
        if found is not None:
            family.add(found, table=slot.table)
    return family


def _consumers(tables: Tables) -> Iterator[Family]:
    lags = {what: Family(f"bookkeeper_consumer_lag_{what}", GAUGE, f"{what} a consumer has not read") for what in _LAG}
    seconds = Family("bookkeeper_consumer_lag_seconds", GAUGE, "age of the oldest snapshot a consumer has not read")
    used = Family(
        "bookkeeper_consumer_max_hold_used_ratio", GAUGE, "share of max-hold a consumer uses; at 1 it is cut off"
    )
    state = Family("bookkeeper_consumer_state", GAUGE, "1 for the state a consumer is in")
    for slot, figures in tables:
        for item in figures.looked.consumers:
            who = {"table": slot.table, "consumer": item.name}
            used.add(item.used, **who)
            state.add(1, **who, state=item.state)
            _lag(item, who, lags, seconds)
    yield from (*lags.values(), seconds, used, state)


def _lag(item: Reads, who: dict[str, str], lags: dict[str, Family], seconds: Family) -> None:
    if item.lag is None:
        return
    for what, family in lags.items():
        family.add(getattr(item.lag, what), **who)
    seconds.add(item.lag.behind.total_seconds(), **who)


def _time(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
