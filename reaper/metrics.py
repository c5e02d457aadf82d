"""
The metrics of the reaper for Prometheus: served at an address, or as a text file for node_exporter's collector.

The file is replaced as a whole after each run; a scraper never sees half of one.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from bookkeeper.console.exposition import replace_file, text
from bookkeeper.console.families import COUNTER, GAUGE, Family, exposed
from reaper.result import Reaped

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from reaper.compactor.compactor import Compacted


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
    read_bytes: int = 0
    failed: int = 0
    behind_since: datetime | None = None
    at: datetime | None = None

    def plus(self, done: "Compacted", now: datetime) -> "CompactedSoFar":
        """The sums after another round, which ended now."""
        return CompactedSoFar(
            done,
            self.read_bytes + done.read_bytes,
            self.failed + done.failed,
            (self.behind_since or now) if done.backlog_bytes else None,
            now,
        )

    @property
    def behind_seconds(self) -> float:
        """For how long every round has left something to rewrite."""
        return (self.at - self.behind_since).total_seconds() if self.at and self.behind_since else 0.0


@dataclass(frozen=True, slots=True)
class Scraped:
    """What was done to one table; the compaction of it once a round has seen the table."""

    table: str
    ran: Ran | None
    compacted: CompactedSoFar | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its series: its name."""
        return (self.table,)


def _family(name: str, kind: str, about: str, source: Callable[[Ran], object], *labels: str) -> Family[Scraped]:
    def of_ran(it: Scraped) -> object:
        return None if it.ran is None else source(it.ran)

    return Family(f"reaper_{name}", kind, about, ("table", *labels), of_ran)


def _compaction(
    name: str, kind: str, about: str, source: Callable[[CompactedSoFar], object], *labels: str
) -> Family[Scraped]:
    def of_compacted(it: Scraped) -> object:
        return None if it.compacted is None else source(it.compacted)

    return Family(f"reaper_compaction_{name}", kind, about, ("table", *labels), of_compacted)


FAMILIES = (
    _family(
        "last_success_timestamp_seconds",
        GAUGE,
        "when a run over the table last succeeded; 0: never",
        lambda ran: ran.ended.timestamp() if ran.ended else 0,
    ),
    _family("consecutive_failures", GAUGE, "runs in a row that could not go on", lambda ran: ran.failures),
    _family(
        "runs_total",
        COUNTER,
        "runs by outcome",
        lambda ran: {("done",): ran.runs, ("failed",): ran.failed},
        "outcome",
    ),
    _family("run_seconds_total", COUNTER, "time that runs took which came to their end", lambda ran: ran.seconds),
    _family("snapshots_expired_total", COUNTER, "snapshots expired since the start", lambda ran: ran.done.snapshots),
    _family(
        "files_deleted_total",
        COUNTER,
        "files deleted since the start, by kind",
        lambda ran: {
            ("data",): ran.done.data_files,
            ("manifest",): ran.done.manifests,
            ("metadata",): ran.done.metadata_files,
            ("orphan",): ran.done.orphans,
        },
        "kind",
    ),
    _family(
        "files_kept_total",
        COUNTER,
        "data files not deleted since the start: they were added again, or are listed twice",
        lambda ran: ran.done.kept,
    ),
    _family("bytes_deleted_total", COUNTER, "bytes deleted since the start", lambda ran: ran.done.bytes),
    _compaction(
        "backlog_bytes",
        GAUGE,
        "bytes of files that are to be rewritten, and that the last round left",
        lambda it: it.last.backlog_bytes,
    ),
    _compaction(
        "behind_seconds",
        GAUGE,
        "for how long every round has left something to rewrite; 0: the last one did not",
        lambda it: it.behind_seconds,
    ),
    _compaction(
        "left_alone",
        GAUGE,
        "small files that are not rewritten now, by reason",
        lambda it: {(reason,): count for reason, count in it.last.left_alone.items()},
        "reason",
    ),
    _compaction(
        "read_bytes_total", COUNTER, "bytes of data files read for rewrites since the start", lambda it: it.read_bytes
    ),
    _compaction(
        "failed_total",
        COUNTER,
        "groups of files that could not be rewritten since the start",
        lambda it: it.failed,
    ),
)


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
            ran.done += done
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
        tables = sorted({*self.tables, *self.compacted})
        return exposed(FAMILIES, [Scraped(name, self.tables.get(name), self.compacted.get(name)) for name in tables])
