"""
The metrics of a writer for Prometheus: served at an address, or as a text file for node_exporter's textfile collector.

Only what is published counts: until then no reader can see it.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from bookkeeper.console.exposition import replace_file, text
from bookkeeper.errors import NotPossible
from bookkeeper.format.entries import DataFile

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)


@dataclass
class WriterMetrics:
    """The metrics of one incarnation of a writer; after each publish they are written to the file `path`, if any."""

    writer: str
    path: str | None = None
    txlogs: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    unpublished: int = 0
    pending: int = 0
    last: datetime | None = None
    waiting: bool = False
    waited: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def published(self, files: Iterable[DataFile], now: datetime) -> None:
        """Counts one more txlog."""
        named = list(files)
        self.txlogs, self.files, self.last, self.unpublished = self.txlogs + 1, self.files + len(named), now, 0
        self.rows += sum(file.record_count for file in named)
        self.bytes += sum(file.size_bytes for file in named)
        self._try_to_write()

    def waits(self, pending: int, seconds: float = 0.0) -> None:
        """The table is at its pending limit: the writer has waited `seconds` more for it."""
        fresh = not self.waiting
        self.pending, self.waiting, self.waited = pending, True, self.waited + seconds
        if fresh:
            self._try_to_write()

    def goes_on(self, pending: int) -> None:
        """There is room for one more txlog."""
        self.pending, self.waiting = pending, False

    def _try_to_write(self) -> None:
        try:
            self.write()
        except NotPossible as error:
            # The rows are published: a metrics file that cannot be written must not undo that.
            log.warning("metrics not written", extra={"action": "metrics", "cause": str(error)})

    def write(self) -> None:
        """Writes the file, if one is wanted; raises NotPossible."""
        if self.path is not None:
            with self._lock:
                replace_file(self.path, self.text())

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        return text(self.collect())

    def collect(self) -> "Iterator[Metric]":
        """All metrics, as a collector of prometheus_client gives them."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        counters = (
            ("txlogs_published", "txlogs published", self.txlogs),
            ("files_published", "data files published", self.files),
            ("rows_published", "rows published", self.rows),
            ("bytes_published", "bytes of data files published", self.bytes),
            ("waited_seconds", "time waited for the bookkeeper at the table's pending limit", self.waited),
        )
        gauges = (
            ("unpublished_rows", "rows written since the last publish", self.unpublished),
            ("txlogs_pending", "pending txlogs of the table when this writer last looked", self.pending),
            ("waiting", "1 while it waits at the table's pending limit", self.waiting),
            ("last_publish_timestamp_seconds", "when it last published; 0: not yet", _seconds(self.last)),
        )
        for kind, those in ((CounterMetricFamily, counters), (GaugeMetricFamily, gauges)):
            for name, about, value in those:
                family = kind(f"writer_{name}", about, labels=["writer"])
                family.add_metric([self.writer], value)
                yield family


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0
