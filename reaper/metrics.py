"""
The metrics of the reaper and of consumers at risk, for Prometheus: served at an address, or as a text file for
node_exporter's textfile collector.

The file is replaced as a whole after each run; a scraper never sees half of one.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from bookkeeper.console.exposition import replace_file, text
from reaper.result import Reaped

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from reaper.compaction.compactor import Compacted

_KINDS = {"data": "data_files", "manifest": "manifests", "metadata": "metadata_files", "orphan": "orphans"}

#: name, help, and the field of a round
_COMPACTION_NOW = (
    ("live_files", "live data files of the table, when compaction last looked", "live_files"),
    ("live_bytes", "bytes of those", "live_bytes"),
    ("backlog_bytes", "bytes of files that are to be rewritten, and that the last round left", "backlog_bytes"),
    ("pending_rewrites", "rewrites that wait for the bookkeeper", "pending"),
    (
        "oldest_pending_seconds",
        "age of the oldest rewrite that waits for the bookkeeper; 0: none waits",
        "oldest_pending_seconds",
    ),
)
_COMPACTION_TOTALS = {
    "rewrites": "rewrites published since the start",
    "read_bytes": "bytes of data files read for rewrites since the start",
    "written_bytes": "bytes of data files written by rewrites since the start",
    "failed": "groups of files that could not be rewritten since the start",
}


@dataclass
class Ran:
    """The runs over one table so far."""

    done: Reaped = field(default_factory=Reaped)
    ended: datetime | None = None
    failures: int = 0
    runs: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass
class CompactedSoFar:
    """The rounds of compaction over one table so far; the last one, and since when there was always work left."""

    last: "Compacted"
    rewrites: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    failed: int = 0
    behind_since: datetime | None = None
    at: datetime | None = None

    def plus(self, done: "Compacted", now: datetime) -> "CompactedSoFar":
        """After another round, which ended now."""
        return CompactedSoFar(
            done,
            self.rewrites + done.rewrites,
            self.read_bytes + done.read_bytes,
            self.written_bytes + done.written_bytes,
            self.failed + done.failed,
            (self.behind_since or now) if done.backlog_bytes else None,
            now,
        )

    @property
    def behind_seconds(self) -> float:
        """For how long every round has left something to rewrite."""
        return (self.at - self.behind_since).total_seconds() if self.at and self.behind_since else 0.0


@dataclass
class Metrics:
    """The metrics of all tables, written to the file `path` after each run if there is one."""

    path: str | None = None
    tables: dict[str, Ran] = field(default_factory=dict)
    compacted: dict[str, CompactedSoFar] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, table: str) -> None:
        """Makes the series of a table before its first run."""
        self._change(table, lambda ran: None)

    def note(self, table: str, done: Reaped, now: datetime, seconds: float = 0.0) -> None:
        """Counts a run that ended; raises NotPossible when the file cannot be written."""

        def ended(ran: Ran) -> None:
            # Consumers are as this run saw them, the rest adds up.
            ran.done = ran.done.without_consumers() + done
            ran.ended, ran.failures, ran.runs, ran.seconds = now, 0, ran.runs + 1, ran.seconds + seconds

        self._change(table, ended)

    def failed(self, table: str) -> None:
        """Counts a run that failed; raises NotPossible when the file cannot be written."""

        def again(ran: Ran) -> None:
            ran.failures, ran.failed = ran.failures + 1, ran.failed + 1

        self._change(table, again)

    def run(self, table: str, act: Callable[[datetime], Reaped], now: datetime, clock: Callable[[], datetime]) -> None:
        """One run over this table, noted however it ends."""
        try:
            done = act(now)
        except Exception:
            self.failed(table)
            raise
        ended = clock()
        self.note(table, done, ended, (ended - now).total_seconds())

    def note_compacted(self, table: str, done: "Compacted", now: datetime) -> None:
        """Counts a round of compaction that saw the table; raises NotPossible when the file cannot be written."""
        if not done.saw_table:
            return
        with self._lock:
            self.compacted[table] = self.compacted.get(table, CompactedSoFar(done)).plus(done, now)
            self._write()

    def _change(self, table: str, change: Callable[[Ran], None]) -> None:
        with self._lock:
            change(self.tables.setdefault(table, Ran()))
            self._write()

    def _write(self) -> None:
        if self.path is not None:
            replace_file(self.path, text(self._families()))

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        with self._lock:
            return text(self._families())

    def _families(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily as Counters
        from prometheus_client.metrics_core import GaugeMetricFamily as Gauges

        one = ["table"]
        ended = Gauges(
            "reaper_last_success_timestamp_seconds",
            "when a run over the table last succeeded; 0: never",
            labels=one,
        )
        failures = Gauges("reaper_consecutive_failures", "runs in a row that could not go on", labels=one)
        runs = Counters("reaper_runs", "runs by outcome", labels=["table", "outcome"])
        seconds = Counters("reaper_run_seconds", "time that runs took which came to their end", labels=one)
        snapshots = Counters("reaper_snapshots_expired", "snapshots expired since the start", labels=one)
        files = Counters("reaper_files_deleted", "files deleted since the start, by kind", labels=["table", "kind"])
        kept = Counters(
            "reaper_files_kept", "data files not deleted since the start: the table lists them twice", labels=one
        )
        size = Counters("reaper_bytes_deleted", "bytes deleted since the start", labels=one)
        used = Gauges(
            "reaper_consumer_max_hold_used_ratio",
            "share of max-hold that a consumer uses; at 1 it is cut off",
            labels=["table", "consumer", "state"],
        )
        for table, ran in sorted(self.tables.items()):
            ended.add_metric([table], ran.ended.timestamp() if ran.ended else 0)
            failures.add_metric([table], ran.failures)
            runs.add_metric([table, "done"], ran.runs)
            runs.add_metric([table, "failed"], ran.failed)
            seconds.add_metric([table], ran.seconds)
            snapshots.add_metric([table], ran.done.snapshots)
            size.add_metric([table], ran.done.bytes)
            kept.add_metric([table], ran.done.kept)
            for kind, name in _KINDS.items():
                files.add_metric([table, kind], getattr(ran.done, name))
            for consumer, state, share in ran.done.consumers:
                used.add_metric([table, consumer, state], round(share, 4))
        yield from (ended, failures, runs, seconds, snapshots, files, kept, size, used)
        if self.compacted:
            yield from self._compaction()

    def _compaction(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily as Counters
        from prometheus_client.metrics_core import GaugeMetricFamily as Gauges

        one, last = ["table"], {name: found.last for name, found in sorted(self.compacted.items())}
        for name, about, of in _COMPACTION_NOW:
            gauge = Gauges(f"reaper_compaction_{name}", about, labels=one)
            for table, done in last.items():
                gauge.add_metric([table], getattr(done, of))
            yield gauge
        behind = Gauges(
            "reaper_compaction_behind_seconds",
            "for how long every round has left something to rewrite; 0: the last one did not",
            labels=one,
        )
        alone = Gauges(
            "reaper_compaction_left_alone",
            "small files that are not rewritten now, by reason",
            labels=["table", "reason"],
        )
        for table, found in sorted(self.compacted.items()):
            behind.add_metric([table], found.behind_seconds)
            for reason, count in found.last.left_alone.items():
                alone.add_metric([table, reason], count)
        yield from (behind, alone)
        for name, about in _COMPACTION_TOTALS.items():
            counter = Counters(f"reaper_compaction_{name}", about, labels=one)
            for table, found in sorted(self.compacted.items()):
                counter.add_metric([table], getattr(found, name))
            yield counter
