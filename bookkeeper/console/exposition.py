"""
Figures in Prometheus' text format: families of samples, histograms, one text for a scraper or a text file.

Knows no client library, so a writer needs none.
"""

import errno
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.errors import NotPossible

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NOT_ALLOWED = "Its folder must be there, and this user must be allowed to write to it."
_UNREAD = "It is a pipe that nobody reads, or not quickly enough: name a file, or start its reader first."

Labels = Mapping[str, str]


@dataclass
class Family:
    """One metric: its name (a counter's ends in _total), kind, help, and samples (suffix, labels, value)."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """One more value."""
        self.samples.append(("", labels, float(value)))

    def add_histogram(self, histogram: "Histogram", **labels: str) -> None:
        """The buckets, sum and count of a histogram."""
        for bound, count in histogram.cumulated():
            self.samples.append(("_bucket", {**labels, "le": bound}, float(count)))
        self.samples.append(("_sum", labels, histogram.sum))
        self.samples.append(("_count", labels, float(histogram.count)))


class Histogram:
    """Counts observations by the bound they stay below; one thread observes, any may read."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(map(float, bounds))
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """One more observation."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self._counts)

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """For each bound how many observations were at most that."""
        # A copy: while it is read, another thread may count on.
        total, counts = 0, self._counts[:]
        for bound, count in zip((*self.bounds, float("inf")), counts, strict=True):
            total += count
            yield ("+Inf" if bound == float("inf") else _number(bound)), total


def text(families: Iterable[Family]) -> str:
    """
    The families in Prometheus' text format, those without samples left out.
    """
    return "".join(_family(family) for family in families if family.samples)


def _family(family: Family) -> str:
    head = f"# HELP {family.name} {_escaped(family.help)}\n# TYPE {family.name} {family.kind}\n"
    lines = (f"{family.name}{suffix}{_labels(labels)} {_number(value)}\n" for suffix, labels, value in family.samples)
    return head + "".join(lines)


def _labels(labels: Labels) -> str:
    pairs = (f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}" if labels else ""


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def replace_file(path: str, content: str) -> None:
    """
    Writes `content` there in one go, so that a scraper never sees half of it; raises NotPossible.

    What is there and no file, such as /dev/null or a pipe, is written to and stays what it is; a pipe that nobody
    reads is not waited for. A link stays one, too: what it names is replaced.
    """
    path = _named(path)
    fresh = f"{path}.{os.getpid()}.tmp"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            fresh = path
        with open(fresh, "w", encoding="utf-8", opener=_at_once) as file:
            file.write(content)
        if fresh != path:
            os.replace(fresh, path)
    except OSError as exc:
        hint = _UNREAD if exc.errno in (errno.ENXIO, errno.EAGAIN) else _NOT_ALLOWED
        raise NotPossible(f"the metrics file {path} cannot be written: {exc.strerror}", hint=hint) from exc


def _named(path: str) -> str:
    # As root, /dev/stdout itself would be replaced while stdout is a file.
    return os.path.realpath(path) if os.path.islink(path) and os.path.isfile(path) else path


def _at_once(path: str, flags: int) -> int:
    # Whoever opens a pipe waits for its reader otherwise, for ever if there is none.
    return os.open(path, flags | os.O_NONBLOCK, 0o666)
