"""
The figures for prometheus_client: a collector for whichever registry is handed in.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from bookkeeper.console.exposition import Family


class Figured:
    """A collector of whatever families are there when it is asked."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Every family as prometheus_client has them."""
        for family in self._families():
            name = family.name.removesuffix("_total")
            metric = Metric(name, family.help, family.kind)
            for suffix, labels, value in family.samples:
                metric.add_sample(f"{family.name}{suffix}", dict(labels), value)
            if metric.samples:
                yield metric

    def describe(self) -> Iterable[Metric]:
        """Nothing: names need not be asked for before there is a table."""
        return ()


def register(registry: CollectorRegistry, families: Callable[[], Iterable[Family]]) -> None:
    """
    Adds the families, and what the process itself uses, to `registry`.
    """
    registry.register(Figured(families))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
