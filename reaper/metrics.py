"""
What the reaper did and which consumers are at risk, for Prometheus: served at an address, or as a text file for
node_exporter's textfile collector.

The file is replaced as a whole after each run; a scraper never sees half of one.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from bookkeeper.console.exposition import COUNTER, GAUGE, Family, replace_file, text
from reaper.result import Reaped

_KINDS = {"data": "data_files", "manifest": "manifests", "metadata": "metadata_files", "orphan": "orphans"}


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
class Metrics:
    """The figures of all tables; `path` is the file they are written to, if one is wanted."""

    path: str | None = None
    tables: dict[str, Ran] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, table: str) -> None:
        """It is to be reaped: until then it was not yet."""
        self._change(table, lambda ran: None)

    def note(self, table: str, done: Reaped, now: datetime, seconds: float = 0.0) -> None:
        """One more run over this table came to its end; raises NotPossible when the file cannot be written."""

        def ended(ran: Ran) -> None:
            # Consumers are as this run saw them, the rest adds up.
            ran.done = ran.done.without_consumers() + done
            ran.ended, ran.failures, ran.runs, ran.seconds = now, 0, ran.runs + 1, ran.seconds + seconds

        self._change(table, ended)

    def failed(self, table: str) -> None:
        """A run over this table could not go on; raises NotPossible when the file cannot be written."""

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

    def _change(self, table: str, change: Callable[[Ran], None]) -> None:
        with self._lock:
            change(self.tables.setdefault(table, Ran()))
            if self.path is not None:
                replace_file(self.path, text(self._families()))

    def text(self) -> str:
        """All figures in Prometheus' text format."""
        with self._lock:
            return text(self._families())

    def _families(self) -> Iterator[Family]:
        ended = Family(
            "reaper_last_success_timestamp_seconds", GAUGE, "when a run over the table last came to its end; 0: never"
        )
        failures = Family("reaper_consecutive_failures", GAUGE, "runs in a row that could not go on")
        runs = Family("reaper_runs_total", COUNTER, "runs by outcome")
        seconds = Family("reaper_run_seconds_total", COUNTER, "time that runs took which came to their end")
        for table, ran in sorted(self.tables.items()):
            ended.add(ran.ended.timestamp() if ran.ended else 0, table=table)
            failures.add(ran.failures, table=table)
            runs.add(ran.runs, table=table, outcome="done")
            runs.add(ran.failed, table=table, outcome="failed")
            seconds.add(ran.seconds, table=table)
        yield from (ended, failures, runs, seconds)
        yield from self._deleted()
        yield from self._consumers()

    def _deleted(self) -> Iterator[Family]:
        snapshots = Family("reaper_snapshots_expired_total", COUNTER, "snapshots expired since the start")
        files = Family("reaper_files_deleted_total", COUNTER, "files deleted since the start, by kind")
        size = Family("reaper_bytes_deleted_total", COUNTER, "bytes deleted since the start")
        for table, ran in sorted(self.tables.items()):
            snapshots.add(ran.done.snapshots, table=table)
            size.add(ran.done.bytes, table=table)
            for kind, name in _KINDS.items():
                files.add(getattr(ran.done, name), table=table, kind=kind)
        yield from (snapshots, files, size)

    def _consumers(self) -> Iterator[Family]:
        used = Family(
            "reaper_consumer_max_hold_used_ratio", GAUGE, "share of max-hold that a consumer uses; at 1 it is cut off"
        )
        for table, ran in sorted(self.tables.items()):
            for consumer, state, share in ran.done.consumers:
                used.add(round(share, 4), table=table, consumer=consumer, state=state)
        yield used
