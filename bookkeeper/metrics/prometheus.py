"""
Every metric of the daemon: its name, its help, and where its value comes from.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

from prometheus_client import Histogram
from prometheus_client.metrics_core import CounterMetricFamily as Counters
from prometheus_client.metrics_core import GaugeMetricFamily as Gauges
from prometheus_client.metrics_core import HistogramMetricFamily as Histograms
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bookkeeper.config.settings import Daemon
from bookkeeper.metrics.fold_metrics import FOLD_OUTCOMES
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
    (
        "loose_names_total",
        "txlogs committed with data files that are not called after them",
        lambda it: it.added["loose_names"],
    ),
    ("holes_total", "published txlogs found missing: deleted before they were committed", lambda it: it.holes),
    ("files_dropped_total", "data files dropped by retention", lambda it: it.dropped_files),
    ("rewrites_committed_total", "rewrites committed", lambda it: it.rewritten["committed"]),
    ("rewrite_files_replaced_total", "data files that rewrites took out", lambda it: it.rewritten["replaced_files"]),
    (
        "rewrite_files_added_total",
        "data files that rewrites put in their place",
        lambda it: it.rewritten["added_files"],
    ),
    ("rewrite_rows_total", "rows in the new files of rewrites", lambda it: it.rewritten["rows"]),
    ("rewrite_bytes_total", "bytes of the new files of rewrites", lambda it: it.rewritten["bytes"]),
    ("columns_added_total", "columns added on request of writers", lambda it: it.columns["added"]),
    ("columns_widened_total", "columns widened on request of writers", lambda it: it.columns["widened"]),
    ("column_requests_refused_total", "requests for columns refused", lambda it: it.columns["refused"]),
)
#: of keyed tables only
_KEYED_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("delete_files_committed_total", "equality delete files committed", lambda it: it.added["delete_files"]),
    ("deletes_committed_total", "keys in them: each was upserted or deleted", lambda it: it.added["deletes"]),
    (
        "fold_delete_files_removed_total",
        "equality delete files that folds took out",
        lambda it: it.folds.folded["delete_files"],
    ),
    (
        "fold_files_removed_total",
        "data files without a row left that folds took out",
        lambda it: it.folds.folded["data_files"],
    ),
    ("fold_rows_deleted_total", "rows that folds marked as deleted, or took out", lambda it: it.folds.folded["rows"]),
)
#: served only by the bookkeeper that works on the table: those of a standby would be old
_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("txlogs_pending", "txlogs published and not committed yet", lambda it: it.pending),
    ("txlogs_held", "txlogs left pending until a person acts", lambda it: it.held),
    ("rejected_txlogs", "txlogs in rejected/", lambda it: it.inspection.rejected),
    ("rewrites_pending", "rewrites published, and neither committed nor rejected yet", lambda it: it.rewrites_pending),
    (
        "retention_held_back",
        "1 while retention drops nothing, because it would drop too much",
        lambda it: bool(it.brake),
    ),
    ("snapshots", "snapshots in the table's metadata", lambda it: it.stats.snapshots if it.stats else None),
    (
        "metadata_bytes",
        "size of metadata.json, which every commit writes and every reader loads",
        lambda it: it.inspection.metadata_bytes,
    ),
    ("manifests", "manifests of the current snapshot", lambda it: it.stats.manifests if it.stats else None),
    ("data_files", "live data files", lambda it: it.stats.files if it.stats else None),
    (
        "rows",
        "rows of live data files; delete files may hide some of them",
        lambda it: it.stats.rows if it.stats else None,
    ),
    ("data_bytes", "bytes of live data files", lambda it: it.stats.bytes if it.stats else None),
    ("writers", "writers with a mark or a position", lambda it: it.stats.writers if it.stats else None),
    ("marks", "runs of writers that have a mark", lambda it: it.stats.marks if it.stats else None),
    (
        "marks_bytes",
        "bytes of the marks, which are in every metadata.json",
        lambda it: it.stats.marks_bytes if it.stats else None,
    ),
    ("disk_free_bytes", "room on the local disk of folder or table, whichever has less", lambda it: it.inspection.free),
    ("disk_size_bytes", "size of that disk", lambda it: it.inspection.size),
    (
        "looked_timestamp_seconds",
        "when consumers, rejected/ and disk were last looked at",
        lambda it: _time(it.inspection.at),
    ),
    ("consumers_omitted", "consumers beyond the 50 that have series of their own", lambda it: it.inspection.omitted),
)
#: the same, of keyed tables only
_KEYED_GAUGES: tuple[tuple[str, str, Callable[[TableMetrics, datetime], float | None]], ...] = (
    (
        "oldest_unfolded_delete_age_seconds",
        "age of the oldest equality delete file that is not folded, 0 when none is",
        lambda it, now: it.folds.age(now),
    ),
    (
        "oldest_unfolded_delete_age_limit_seconds",
        "an older one means that folds are behind",
        lambda it, now: it.folds.limit.total_seconds(),
    ),
    (
        "last_fold_seconds",
        "time the last fold took, from its start to its commit",
        lambda it, now: it.folds.last_seconds,
    ),
)
_HISTOGRAMS = (
    ("tick_seconds", "time a tick takes"),
    ("commit_seconds", "time a commit takes, from the batch to the catalog's answer"),
    ("visibility_seconds", "age of a txlog when its rows became visible"),
)
_LAG = ("snapshots", "files", "rows", "bytes")


@dataclass(eq=False)
class DaemonCollector(Collector):
    """
    Every metric of the daemon at the moment a scraper asks.
    """

    tables: Callable[[], Tables]
    settings: Callable[[], Daemon]
    clock: Callable[[], datetime]

    def collect(self) -> Iterator[Metric]:
        """
        The families that have a series now.
        """
        return (family for family in families(self.tables(), self.settings(), self.clock()) if family.samples)


def families(tables: Tables, settings: Daemon, now: datetime) -> Iterator[Metric]:
    """
    All metrics at `now`.
    """
    working = [(loop, metrics) for loop, metrics in tables if not loop.standby]
    built = Gauges("bookkeeper_build_info", "versions of the bookkeeper and of Python", labels=["version", "python"])
    built.add_metric([version("iceberg-bookkeeper"), platform.python_version()], 1)
    yield built
    yield from _states(tables, settings, now)
    yield from _counted(tables)
    yield from _working(working, settings, now)
    yield from _keyed(working, now)
    yield from _consumers(working)


def _states(tables: Tables, settings: Daemon, now: datetime) -> Iterator[Metric]:
    ready = _gauges("table_ready", "1 while its ticks succeed, or a few failed")
    halted = _gauges("table_halted", "1 while it waits for a person's decision")
    standby = _gauges("table_standby", "1 while another bookkeeper works on it")
    failures = _gauges("consecutive_failures", "failed ticks in a row")
    success = _gauges("last_success_timestamp_seconds", "when a tick last succeeded; 0: not since the start")
    commit = _gauges("last_commit_timestamp_seconds", "when rows were last committed")
    for loop, metrics in tables:
        found, label = health(loop, settings, now), [loop.table]
        ready.add_metric(label, found.ready)
        halted.add_metric(label, found.state == HALTED)
        standby.add_metric(label, loop.standby)
        failures.add_metric(label, loop.failures)
        success.add_metric(label, _time(loop.last_success) or 0)
        if metrics.last_commit is not None:
            commit.add_metric(label, metrics.last_commit.timestamp())
    yield from (ready, halted, standby, failures, success, commit)


def _counted(tables: Tables) -> Iterator[Metric]:
    for name, text, value in _COUNTERS:
        yield _valued(Counters(f"bookkeeper_{name}", text, labels=["table"]), tables, value)
    labels = ["table", "outcome"]
    commits = Counters("bookkeeper_commits", "commits by outcome; refused: tried again in the same tick", labels=labels)
    ticks = Counters("bookkeeper_ticks", "ticks by outcome", labels=labels)
    by_error = ["table", "error"]
    rejections = Counters("bookkeeper_rejections", "txlogs moved to rejected/, by error", labels=by_error)
    refused = Counters("bookkeeper_rewrites_rejected", "rewrites moved to rejected/, by error", labels=by_error)
    for loop, metrics in tables:
        for outcome in ("committed", "refused"):
            commits.add_metric([loop.table, outcome], metrics.commits[outcome])
        for outcome in (COMMITTED, IDLE, STANDBY, FAILED):
            ticks.add_metric([loop.table, outcome], metrics.ticks[outcome])
        for error, count in sorted(metrics.rejections.copy().items()):
            rejections.add_metric([loop.table, error], count)
        for error, count in sorted(metrics.rewrite_rejections.copy().items()):
            refused.add_metric([loop.table, error], count)
    yield from (commits, ticks, rejections, refused)
    for name, text in _HISTOGRAMS:
        family = Histograms(f"bookkeeper_{name}", text, labels=["table"])
        for loop, metrics in tables:
            family.add_metric([loop.table], *buckets_and_sum(getattr(metrics, name)))
        yield family


def buckets_and_sum(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """
    For each bound how many observations were at most that, and the sum of all.

    The library writes the bound 1 as `le="1.0"`; ours stays `le="1"`, or every stored series would change its name.
    """
    (metric,) = histogram.collect()
    buckets = [(item.labels["le"].removesuffix(".0"), item.value) for item in metric.samples if "le" in item.labels]
    return buckets, next(item.value for item in metric.samples if item.name.endswith("_sum"))


def _working(tables: Tables, settings: Daemon, now: datetime) -> Iterator[Metric]:
    for name, text, value in _GAUGES:
        yield _valued(_gauges(name, text), tables, value)
    age = _gauges("oldest_txlog_age_seconds", "age of the oldest pending txlog, 0 when none is")
    yield _valued(age, tables, lambda it: None if it.pending is None else it.age(now))
    waits = _gauges("oldest_rewrite_age_seconds", "age of the oldest pending rewrite, 0 when none is")
    yield _valued(waits, tables, lambda it: it.rewrite_age(now))
    late = _gauges("oldest_txlog_age_limit_seconds", "an older one makes the table not ready")
    yield _valued(late, tables, lambda it: (settings.not_ready_age + it.window).total_seconds())
    limit = _gauges("pending_limit", "writers wait while so many txlogs are pending")
    yield _valued(limit, tables, lambda it: it.pending_limit)


def _keyed(tables: Tables, now: datetime) -> Iterator[Metric]:
    """Deletes and folds, of keyed tables only."""
    keyed = [(loop, metrics) for loop, metrics in tables if metrics.stats is not None and metrics.stats.keyed]
    for name, text, value in _KEYED_COUNTERS:
        yield _valued(Counters(f"bookkeeper_{name}", text, labels=["table"]), keyed, value)
    labels = ["table", "outcome"]
    folds = Counters("bookkeeper_folds", "folds by outcome; outdated: planned anew, the table went on", labels=labels)
    labels = ["table", "reason"]
    refused = Counters("bookkeeper_folds_refused", "folds that left deletes as they are, by reason", labels=labels)
    labels = ["table", "kind"]
    files = Gauges("bookkeeper_delete_files", "live delete files by kind; equality: not folded yet", labels=labels)
    deletes = Gauges("bookkeeper_deletes", "keys (equality) and rows (position) in live delete files", labels=labels)
    for loop, metrics in keyed:
        for outcome in FOLD_OUTCOMES:
            folds.add_metric([loop.table, outcome], metrics.folds.outcomes[outcome])
        for reason, count in sorted(metrics.folds.refusals.copy().items()):
            refused.add_metric([loop.table, reason], count)
        for kind, count in metrics.delete_files().items():
            files.add_metric([loop.table, kind], count)
        for kind, count in metrics.deletes().items():
            deletes.add_metric([loop.table, kind], count)
    yield from (folds, refused, files, deletes)
    for name, text, timed in _KEYED_GAUGES:
        family = _gauges(name, text)
        for loop, metrics in keyed:
            if (found := timed(metrics, now)) is not None:
                family.add_metric([loop.table], found)
        yield family


def _gauges(name: str, text: str) -> Gauges:
    return Gauges(f"bookkeeper_{name}", text, labels=["table"])


def _valued(family: Gauges | Counters, tables: Tables, value: Value) -> Metric:
    for loop, metrics in tables:
        if (found := value(metrics)) is not None:
            family.add_metric([loop.table], found)
    return family


def _consumers(tables: Tables) -> Iterator[Metric]:
    def gauges(name: str, text: str, *labels: str) -> Gauges:
        return Gauges(f"bookkeeper_consumer_{name}", text, labels=["table", "consumer", *labels])

    lags = {what: gauges(f"lag_{what}", f"{what} a consumer has not read") for what in _LAG}
    seconds = gauges("lag_seconds", "age of the oldest snapshot a consumer has not read")
    used = gauges("max_hold_used_ratio", "share of max-hold a consumer uses; at 1 it is cut off")
    state = gauges("state", "1 for the state a consumer is in", "state")
    for loop, metrics in tables:
        for item in metrics.inspection.consumers:
            label = [loop.table, item.name]
            used.add_metric(label, item.used)
            state.add_metric([*label, item.state], 1)
            if item.lag is not None:
                seconds.add_metric(label, item.lag.behind.total_seconds())
                for what, family in lags.items():
                    family.add_metric(label, getattr(item.lag, what))
    yield from (*lags.values(), seconds, used, state)


def _time(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
