"""
The metrics of a watched prefix for Prometheus, beside those of its writer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from bookkeeper.console.families import COUNTER, GAUGE, Family
from writers.timing import Clock

LOADED, EMPTY, REJECTED = "loaded", "empty", "rejected"


@dataclass
class WatchFigures:
    """Of one writer: its objects by what became of them, and those that wait. Written by the watcher's thread."""

    writer: str
    table: str
    clock: Clock
    objects: dict[tuple[str, ...], int] = field(default_factory=lambda: {(LOADED,): 0, (EMPTY,): 0, (REJECTED,): 0})
    waiting: int = 0
    left: int = 0
    #: when the oldest object that waits was written
    oldest: datetime | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The writer's name and its table."""
        return self.writer, self.table

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest object has waited; 0: none waits."""
        return 0.0 if self.oldest is None else max(0.0, (self.clock() - self.oldest).total_seconds())

    def away(self) -> None:
        """Another instance works here: of what waits, that one tells."""
        self.waiting, self.left, self.oldest = 0, 0, None

    def count(self, result: str, number: int = 1) -> None:
        """Counts objects with this result."""
        self.objects[result,] += number


def _family(
    name: str, kind: str, about: str, source: Callable[[WatchFigures], object], *labels: str
) -> Family[WatchFigures]:
    return Family(f"writer_watch_{name}", kind, about, ("writer", "table", *labels), source)


FAMILIES = (
    _family(
        "objects_total",
        COUNTER,
        "objects by what became of them: loaded (their rows are in the table), empty, or rejected",
        lambda it: dict(it.objects),
        "result",
    ),
    _family("waiting_objects", GAUGE, "objects of the last listing that are not in the table", lambda it: it.waiting),
    _family(
        "oldest_seconds",
        GAUGE,
        "age of the oldest object that waits, by the storage's time; 0: none waits",
        lambda it: it.oldest_seconds,
    ),
    _family(
        "left_objects", GAUGE, "objects that are not taken now: too large, a bad name, or resting", lambda it: it.left
    ),
)
