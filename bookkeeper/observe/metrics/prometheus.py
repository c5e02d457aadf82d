"""
Every metric of the daemon: its name, its help, and where its value comes from.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bookkeeper.config.settings import Daemon
from bookkeeper.console.families import COUNTER, GAUGE, HISTOGRAM, Family, buckets_and_sum, exposed
from bookkeeper.observe.metrics.fold_metrics import FOLD_OUTCOMES
from bookkeeper.observe.metrics.inspection import ConsumerReport
from bookkeeper.observe.metrics.table_metrics import COMMITTED, FAILED, IDLE, STANDBY, TableMetrics, TableStats
from bookkeeper.serve.health import HALTED, Health, health
from bookkeeper.serve.loop import TableLoop

Tables = Sequence[tuple[TableLoop, TableMetrics]]
ByLabel = Mapping[tuple[str, ...], float | None]


@dataclass(frozen=True, slots=True)
class Process:
    """The daemon itself."""

    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scraped:
    """One table at the moment a scraper asks."""

    loop: TableLoop
    metrics: TableMetrics
    health: Health
    settings: Daemon
    now: datetime

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its series: its name."""
        return (self.loop.table,)

    @property
    def stats(self) -> TableStats:
        """What its metadata says; of a table that was never loaded nothing, and then there are no series of it."""
        return self.metrics.stats or TableStats()

    def by_consumer(self, value: Callable[[ConsumerReport], float | None]) -> ByLabel:
        """The value of each consumer."""
        return {(item.name,): value(item) for item in self.metrics.inspection.consumers}


def _working(it: Scraped) -> bool:
    """Only the bookkeeper that works on the table: what a standby knows would be old."""
    return not it.loop.standby


def _loaded(it: Scraped) -> bool:
    return _working(it) and it.metrics.stats is not None


def _keyed(it: Scraped) -> bool:
    return _loaded(it) and it.stats.keyed


def _by_catalog(it: Scraped) -> bool:
    return _working(it) and it.metrics.files_last is not None


def _everywhere(it: Scraped) -> bool:
    return True


def _counter(
    name: str,
    about: str,
    source: Callable[[Scraped], float | ByLabel],
    *labels: str,
    of: Callable[[Scraped], bool] = _everywhere,
) -> Family[Scraped]:
    return Family(f"bookkeeper_{name}", COUNTER, about, ("table", *labels), source, of)


def _gauge(
    name: str,
    about: str,
    source: Callable[[Scraped], float | ByLabel | None],
    *labels: str,
    of: Callable[[Scraped], bool] = _working,
) -> Family[Scraped]:
    return Family(f"bookkeeper_{name}", GAUGE, about, ("table", *labels), source, of)


def _histogram(name: str, about: str) -> Family[Scraped]:
    labels = ("table",)
    return Family(f"bookkeeper_{name}", HISTOGRAM, about, labels, lambda it: buckets_and_sum(getattr(it.metrics, name)))


def _by(counted: Mapping[str, int]) -> ByLabel:
    return {(label,): count for label, count in sorted(counted.items())}


def _of(counted: Mapping[str, int], labels: Iterable[str]) -> ByLabel:
    return {(label,): counted[label] for label in labels}


_BUILT: Family[Process] = Family(
    "bookkeeper_build_info",
    GAUGE,
    "versions of the bookkeeper and of Python",
    ("version", "python"),
    lambda it: {(version("iceberg-bookkeeper"), platform.python_version()): 1},
)
_STATE = (
    _gauge("table_ready", "1 while its ticks succeed, or a few failed", lambda it: it.health.ready, of=_everywhere),
    _gauge(
        "table_halted", "1 while it waits for a person's decision", lambda it: it.health.state == HALTED, of=_everywhere
    ),
    _gauge("table_standby", "1 while another bookkeeper works on it", lambda it: it.loop.standby, of=_everywhere),
    _gauge("consecutive_failures", "failed ticks in a row", lambda it: it.loop.failures, of=_everywhere),
    _gauge(
        "last_success_timestamp_seconds",
        "when a tick last succeeded; 0: not since the start",
        lambda it: _time(it.loop.last_success) or 0,
        of=_everywhere,
    ),
    _gauge(
        "last_commit_timestamp_seconds",
        "when rows were last committed",
        lambda it: _time(it.metrics.last_commit),
        of=_everywhere,
    ),
)
_COUNTED = (
    _counter("txlogs_committed_total", "txlogs committed", lambda it: it.metrics.added["txlogs"]),
    _counter("files_committed_total", "data files committed", lambda it: it.metrics.added["files"]),
    _counter("rows_committed_total", "rows committed", lambda it: it.metrics.added["rows"]),
    _counter("bytes_committed_total", "bytes of data files committed", lambda it: it.metrics.added["bytes"]),
    _counter(
        "loose_names_total",
        "txlogs committed with data files that are not called after them",
        lambda it: it.metrics.added["loose_names"],
    ),
    _counter(
        "holes_total", "published txlogs found missing: deleted before they were committed", lambda it: it.metrics.holes
    ),
    _counter("files_dropped_total", "data files dropped by retention", lambda it: it.metrics.dropped_files),
    _counter(
        "commits_total",
        "commits by outcome; refused: tried again in the same tick",
        lambda it: _of(it.metrics.commits, ("committed", "refused")),
        "outcome",
    ),
    _counter(
        "ticks_total",
        "ticks by outcome",
        lambda it: _of(it.metrics.ticks, (COMMITTED, IDLE, STANDBY, FAILED)),
        "outcome",
    ),
    _counter(
        "rejections_total",
        "txlogs moved to rejected/, by error",
        lambda it: _by(it.metrics.rejections.copy()),
        "error",
    ),
    _counter(
        "column_requests_total",
        "writers' requests for columns, by outcome",
        lambda it: _of(it.metrics.columns, ("added", "widened", "refused")),
        "outcome",
    ),
    _histogram("tick_seconds", "time a tick takes"),
    _histogram("commit_seconds", "time a commit takes, from the batch to the catalog's answer"),
    _histogram("visibility_seconds", "age of a txlog when its rows became visible"),
)
_PENDING = (
    _gauge("txlogs_pending", "txlogs published and not committed yet", lambda it: it.metrics.pending),
    _gauge("pending_limit", "writers wait while so many txlogs are pending", lambda it: it.metrics.pending_limit),
    _gauge(
        "oldest_txlog_age_seconds",
        "age of the oldest pending txlog, 0 when none is",
        lambda it: None if it.metrics.pending is None else it.metrics.age(it.now),
    ),
    _gauge(
        "oldest_txlog_age_limit_seconds",
        "an older one makes the table not ready",
        lambda it: (it.settings.not_ready_age + it.metrics.window).total_seconds(),
    ),
    _gauge("txlogs_held", "txlogs left pending until a person acts", lambda it: it.metrics.held),
    _gauge("rejected_txlogs", "txlogs in rejected/", lambda it: it.metrics.inspection.rejected),
    _gauge(
        "waiting_age_share",
        "age of the oldest pending or rejected txlog, as a share of the age at which the catalog deletes its files",
        lambda it: it.metrics.waiting_share(it.now),
        of=_by_catalog,
    ),
)
_GROWS = (
    _gauge(
        "retention_held_back",
        "1 while retention drops nothing, because it would drop too much",
        lambda it: bool(it.metrics.brake),
    ),
    _gauge("snapshots", "snapshots in the table's metadata", lambda it: it.stats.snapshots, of=_loaded),
    _gauge(
        "metadata_bytes",
        "size of metadata.json, which every commit writes and every reader loads",
        lambda it: it.metrics.inspection.metadata_bytes,
    ),
    _gauge("manifests", "manifests of the current snapshot", lambda it: it.stats.manifests, of=_loaded),
    _gauge("data_files", "live data files", lambda it: it.stats.files, of=_loaded),
    _gauge("rows", "rows of live data files; delete files may hide some of them", lambda it: it.stats.rows, of=_loaded),
    _gauge("data_bytes", "bytes of live data files", lambda it: it.stats.bytes, of=_loaded),
    _gauge("writers", "writers with a mark or a position", lambda it: it.stats.writers, of=_loaded),
    _gauge(
        "marks_bytes",
        "bytes of the marks, which are in every metadata.json",
        lambda it: it.stats.marks_bytes,
        of=_loaded,
    ),
    _gauge(
        "disk_free_bytes",
        "room on the local disk of folder or table, whichever has less",
        lambda it: it.metrics.inspection.free,
    ),
    _gauge("disk_size_bytes", "size of that disk", lambda it: it.metrics.inspection.size),
    _gauge(
        "looked_timestamp_seconds",
        "when consumers, rejected/ and disk were last looked at",
        lambda it: _time(it.metrics.inspection.at),
    ),
)
_REWRITES = (
    _counter("rewrites_committed_total", "rewrites committed", lambda it: it.metrics.rewritten["committed"]),
    _counter(
        "rewrites_rejected_total",
        "rewrites moved to rejected/, by error",
        lambda it: _by(it.metrics.rewrite_rejections.copy()),
        "error",
    ),
    _counter(
        "rewrite_files_replaced_total",
        "data files that rewrites took out",
        lambda it: it.metrics.rewritten["replaced_files"],
    ),
    _counter(
        "rewrite_files_added_total",
        "data files that rewrites put in their place",
        lambda it: it.metrics.rewritten["added_files"],
    ),
    _counter("rewrite_bytes_total", "bytes of the new files of rewrites", lambda it: it.metrics.rewritten["bytes"]),
    _gauge(
        "rewrites_pending",
        "rewrites published, and neither committed nor rejected yet",
        lambda it: it.metrics.rewrites_pending,
    ),
    _gauge(
        "oldest_rewrite_age_seconds",
        "age of the oldest pending rewrite, 0 when none is",
        lambda it: it.metrics.rewrite_age(it.now),
    ),
)
_DELETES = (
    _counter(
        "deletes_committed_total",
        "keys in equality delete files committed: each was upserted or deleted",
        lambda it: it.metrics.added["deletes"],
        of=_keyed,
    ),
    _gauge(
        "delete_files",
        "live delete files by kind; equality: not folded yet",
        lambda it: _by(it.metrics.delete_files()),
        "kind",
        of=_keyed,
    ),
    _gauge(
        "deletes",
        "keys (equality) and rows (position) in live delete files",
        lambda it: _by(it.metrics.deletes()),
        "kind",
        of=_keyed,
    ),
    _counter(
        "folds_total",
        "folds by outcome; outdated: planned anew, the table went on",
        lambda it: _of(it.metrics.folds.outcomes, FOLD_OUTCOMES),
        "outcome",
        of=_keyed,
    ),
    _counter(
        "folds_refused_total",
        "folds that left deletes as they are, by reason",
        lambda it: _by(it.metrics.folds.refusals.copy()),
        "reason",
        of=_keyed,
    ),
    _counter(
        "fold_files_removed_total",
        "files that folds took out: equality delete files, and data files without a row left",
        lambda it: {
            ("equality",): it.metrics.folds.folded["delete_files"],
            ("data",): it.metrics.folds.folded["data_files"],
        },
        "kind",
        of=_keyed,
    ),
    _counter(
        "fold_rows_deleted_total",
        "rows that folds marked as deleted, or took out",
        lambda it: it.metrics.folds.folded["rows"],
        of=_keyed,
    ),
    _gauge(
        "oldest_unfolded_delete_age_seconds",
        "age of the oldest equality delete file that is not folded, 0 when none is",
        lambda it: it.metrics.folds.age(it.now),
        of=_keyed,
    ),
    _gauge(
        "oldest_unfolded_delete_age_limit_seconds",
        "an older one means that folds are behind",
        lambda it: it.metrics.folds.limit.total_seconds(),
        of=_keyed,
    ),
    _gauge(
        "last_fold_seconds",
        "time the last fold took, from its start to its commit",
        lambda it: it.metrics.folds.last_seconds,
        of=_keyed,
    ),
)
_LAG = ("snapshots", "files", "rows", "bytes")


def _lag(what: str) -> Family[Scraped]:
    def of_all(it: Scraped) -> ByLabel:
        return it.by_consumer(lambda item: None if item.lag is None else getattr(item.lag, what))

    return _gauge(f"consumer_lag_{what}", f"{what} a consumer has not read", of_all, "consumer")


_CONSUMERS = (
    *map(_lag, _LAG),
    _gauge(
        "consumer_lag_seconds",
        "age of the oldest snapshot a consumer has not read",
        lambda it: it.by_consumer(lambda item: None if item.lag is None else item.lag.behind.total_seconds()),
        "consumer",
    ),
    _gauge(
        "consumer_max_hold_used_ratio",
        "share of max-hold a consumer uses; at 1 it is cut off",
        lambda it: it.by_consumer(lambda item: item.used),
        "consumer",
    ),
    _gauge(
        "consumer_state",
        "1 for the state a consumer is in",
        lambda it: {(item.name, item.state): 1 for item in it.metrics.inspection.consumers},
        "consumer",
        "state",
    ),
    _gauge(
        "consumers_omitted",
        "consumers beyond the 50 that have series of their own",
        lambda it: it.metrics.inspection.omitted,
    ),
)
TABLE_FAMILIES = (*_STATE, *_COUNTED, *_PENDING, *_GROWS, *_REWRITES, *_DELETES, *_CONSUMERS)
FAMILIES: tuple[Family[Process] | Family[Scraped], ...] = (_BUILT, *TABLE_FAMILIES)


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
        settings, now = self.settings(), self.clock()
        found = [Scraped(loop, metrics, health(loop, settings, now), settings, now) for loop, metrics in self.tables()]
        yield from exposed([_BUILT], [Process()])
        yield from exposed(TABLE_FAMILIES, found)


def _time(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
