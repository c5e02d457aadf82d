"""
The metrics of a writer for Prometheus: served at an address, or as a text file for node_exporter's textfile collector.

Only what is published counts: until then no reader can see it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bookkeeper.console.exposition import replace_file, text
from bookkeeper.console.families import COUNTER, GAUGE, Family, exposed
from bookkeeper.errors import NotPossible
from bookkeeper.format.entries import DataFile

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)


@dataclass
class WriterMetrics:
    """The metrics of one incarnation of a writer; after each publish they are written to the file `path`, if any."""

    writer: str
    #: the table's identifier
    table: str
    path: str | None = None
    txlogs: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    unpublished: int = 0
    last: datetime | None = None
    waiting: bool = False
    waited: float = 0.0
    #: of a writer that reads Kafka: by topic and partition
    lag: Mapping[tuple[str, str], float] = field(default_factory=dict)
    behind: Mapping[tuple[str, str], float | None] = field(default_factory=dict)
    #: when both were measured
    looked: datetime | None = None
    stopped: Mapping[tuple[str, str], float] = field(default_factory=dict)
    bad: int = 0
    #: whether it reads Kafka
    kafka: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def published(self, files: Iterable[DataFile], now: datetime) -> None:
        """Counts one more txlog."""
        named = list(files)
        self.txlogs, self.files, self.last, self.unpublished = self.txlogs + 1, self.files + len(named), now, 0
        self.rows += sum(file.record_count for file in named)
        self.bytes += sum(file.size_bytes for file in named)
        self._try_to_write()

    def continues(self, before: "WriterMetrics") -> None:
        """Counts on from what an earlier run of this process has counted; gauges stay until they are measured anew."""
        self.txlogs, self.files = self.txlogs + before.txlogs, self.files + before.files
        self.rows, self.bytes = self.rows + before.rows, self.bytes + before.bytes
        self.bad, self.waited = self.bad + before.bad, self.waited + before.waited
        self.lag, self.behind, self.looked = before.lag, before.behind, before.looked

    def waits(self, seconds: float = 0.0) -> None:
        """The table is at its pending limit: the writer has waited `seconds` more for it."""
        fresh = not self.waiting
        self.waiting, self.waited = True, self.waited + seconds
        if fresh:
            self._try_to_write()

    def goes_on(self) -> None:
        """There is room for one more txlog."""
        self.waiting = False

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

    @property
    def labels(self) -> tuple[str, ...]:
        """The writer's name and its table."""
        return (self.writer, self.table)

    def collect(self) -> "Iterator[Metric]":
        """All metrics, as a collector of prometheus_client gives them."""
        return exposed(FAMILIES, [self])


def _family(
    name: str, kind: str, about: str, source: Callable[[WriterMetrics], Any], labels: tuple[str, ...] = ()
) -> Family[WriterMetrics]:
    return Family(f"writer_{name}", kind, about, ("writer", "table", *labels), source)


_PARTITION = ("topic", "partition")


FAMILIES = (
    _family("txlogs_published_total", COUNTER, "txlogs published", lambda it: it.txlogs),
    _family("files_published_total", COUNTER, "data files published", lambda it: it.files),
    _family("rows_published_total", COUNTER, "rows published", lambda it: it.rows),
    _family("bytes_published_total", COUNTER, "bytes of data files published", lambda it: it.bytes),
    _family(
        "waited_seconds_total",
        COUNTER,
        "time waited for the bookkeeper at the table's pending limit",
        lambda it: it.waited,
    ),
    _family("unpublished_rows", GAUGE, "rows written since the last publish", lambda it: it.unpublished),
    _family("waiting", GAUGE, "1 while it waits at the table's pending limit", lambda it: it.waiting),
    _family(
        "last_publish_timestamp_seconds",
        GAUGE,
        "when it last published; 0: not yet",
        lambda it: it.last.timestamp() if it.last else 0,
    ),
    _family("kafka_lag_messages", GAUGE, "messages that were not read", lambda it: it.lag, _PARTITION),
    _family(
        "kafka_behind_seconds",
        GAUGE,
        "age of the oldest message that is not in the table, by the message's time; 0: all are in; where it was not "
        "measured for 2 minutes, because Kafka does not answer or the slot cannot begin, at least the time since then",
        lambda it: it.behind,
        _PARTITION,
    ),
    _family("kafka_stopped", GAUGE, "1: the partition is read no further", lambda it: it.stopped, _PARTITION),
    _family("kafka_bad_messages_total", COUNTER, "messages that were no rows", lambda it: it.bad if it.kafka else None),
)
