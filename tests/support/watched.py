"""
A daemon without its loop: tables of small lakes, turned by the test, and what a scraper or a browser is told of them.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bookkeeper.config.settings import Daemon
from bookkeeper.leases.lease import Lease
from bookkeeper.observe.http.site import Site
from bookkeeper.observe.metrics.inspector import Inspector
from bookkeeper.observe.metrics.table_metrics import AllMetrics, TableMetrics
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.tick.tick import Bookkeeper
from tests.support.faults import Faults
from tests.support.lake import Clock, Lake

#: (name, labels) -> value
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
_LABEL = re.compile(r'(\w+)="([^"]*)"')
SETTINGS = Daemon(every=timedelta(seconds=1), backoff_most=timedelta(seconds=8), not_ready_after=3)


class Taken:
    """A lease that another bookkeeper has."""

    offering = False
    lasting = None

    def hold(self, now: Any) -> bool:
        return False

    def release(self) -> None:
        pass


def _at_once(act: Callable[[], None], name: str) -> bool:
    """Folds within the tick: tests wait for no thread."""
    act()
    return True


@dataclass
class Watched:
    """Tables and the site that tells of them; one clock for all."""

    clock: Clock = field(default_factory=Clock)
    settings: Daemon = SETTINGS
    slots: list[TableLoop] = field(default_factory=list)
    lakes: dict[str, Lake] = field(default_factory=dict)
    faults: dict[str, Faults] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.clock.now
        self.metrics = AllMetrics(lambda: self.slots, self.clock, self.monotonic)
        self.site = Site(self.metrics, lambda: self.settings, self.clock, self.monotonic)
        self.inspector = Inspector(self.metrics, self.clock)

    def monotonic(self) -> float:
        return (self.clock.now - self.began).total_seconds()

    def add(
        self, root: Path, table: str = "events", lease: Lease | None = None, reload: float = 10, **settings: Any
    ) -> Lake:
        """A table on a lake of its own, not partitioned, loaded again after `reload` seconds."""
        # Not by day: what is rewritten together is of one partition, and the minutes may go past midnight.
        lake = Lake(root / table, self.clock, name=table, **{"partition_by": (), **settings})
        faults = Faults()

        def opened() -> Bookkeeper:
            book = lake.book(faults)
            book.lease, book.loaded.reload = lease or book.lease, timedelta(seconds=reload)
            book.duties.folds.spawn = _at_once
            return book

        self.lakes[table], self.faults[table] = lake, faults
        self.slots.append(TableLoop(table, opened, on_result=self.metrics.on_tick))
        return lake

    def turn(self, times: int = 1, **move: float) -> None:
        """Every table's turn, so many times, a second (or `move`) apart."""
        for _ in range(times):
            self.clock.move(**(move or {"seconds": 1}))
            for slot in self.slots:
                tick_once(slot, self.settings, self.clock.now, self.clock)

    def look(self) -> None:
        """What the daemon does every half minute."""
        for slot, figures in self.metrics.now():
            self.inspector.inspect(slot, figures)

    def of(self, table: str = "events") -> TableMetrics:
        return self.metrics.of(table)

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """Status and what is answered, decoded where it is JSON."""
        answer = self.site.routes()[path](query)
        text = answer.body.decode()
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    def samples(self) -> Samples:
        """What a scrape finds."""
        return samples(self.ask("/metrics")[1])

    def value(self, name: str, **labels: str) -> float | None:
        """One sample; the table is `events` unless said otherwise."""
        wanted = {"table": "events", **labels}
        return self.samples().get((name, frozenset(wanted.items())))

    def troubles(self) -> list[Mapping[str, Any]]:
        """What the page says is wrong."""
        found: list[Mapping[str, Any]] = self.ask("/status.json")[1]["troubles"]
        return found


def quick_samples(text: str) -> Samples:
    """
    The same of an exposition of ours, ten times as fast.
    """
    found: Samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            name, _, labels = key.partition("{")
            found[name, frozenset(_LABEL.findall(labels))] = float(value)
    return found


def samples(text: str) -> Samples:
    """
    The samples of an exposition, as a real parser reads them.
    """
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}
