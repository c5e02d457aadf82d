"""
Families of metrics. Each program has one list of them: its exporter and docs/metrics.md are made of it, and the tests
check alert rules and dashboard against it.

prometheus_client takes 20 to 90 ms to import (by what is loaded already): only the first scrape imports it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from prometheus_client import Histogram
    from prometheus_client.metrics_core import Metric

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Labelled(Protocol):
    """What is measured: a table, a writer or the process; `labels` are the values of the first labels of its series."""

    @property
    def labels(self) -> tuple[str, ...]:
        """One value for each of the labels that all its families have."""
        ...


Row = TypeVar("Row", bound=Labelled)


@dataclass(frozen=True, slots=True)
class Family(Generic[Row]):
    """
    A family of series, by its name as it is scraped: what it counts, its labels, and where its values come from.

    `source` gives the value of a row, None where it is unknown; with labels beyond the row's a value by each of them.
    `of` says of which rows there are series.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    source: Callable[[Row], Any]
    of: Callable[[Row], bool] = lambda row: True


def exposed(families: Sequence[Family[Row]], rows: Iterable[Row]) -> "Iterator[Metric]":
    """
    The families that have a series now, as prometheus_client takes them.
    """
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    made = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily}
    measured = list(rows)
    for family in families:
        metric = made[family.kind](family.name, family.help, labels=family.labels)
        for row in filter(family.of, measured):
            for labels, value in _series(family.source(row)):
                metric.add_metric([*row.labels, *labels], *(value if family.kind == HISTOGRAM else [value]))
        if metric.samples:
            yield metric


def _series(found: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(found, Mapping):
        yield from ((labels, value) for labels, value in found.items() if value is not None)
    elif found is not None:
        yield (), found


def buckets_and_sum(histogram: "Histogram") -> tuple[list[tuple[str, float]], float]:
    """
    For each bound how many observations were at most that, and the sum of all: the value of a histogram.

    The library writes the bound 1 as `le="1.0"`; ours stays `le="1"`, or every stored series would change its name.
    """
    (metric,) = histogram.collect()
    buckets = [(item.labels["le"].removesuffix(".0"), item.value) for item in metric.samples if "le" in item.labels]
    return buckets, next(item.value for item in metric.samples if item.name.endswith("_sum"))
