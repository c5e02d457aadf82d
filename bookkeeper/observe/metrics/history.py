"""
The last hour of a table in steps of ten seconds, for the page's plots; 18 KiB per table.
"""

import math
from array import array
from collections.abc import Mapping
from datetime import datetime

from bookkeeper.tick.result import Commit

STEP_SECONDS = 10
LENGTH = 360
#: what a step keeps of its ticks: the last value, the largest, or the sum
LAST = ("pending", "snapshots", "files", "manifests", "rejected", "lag", "unfolded")
MOST = ("age", "commit", "visible")
SUMS = ("rows", "bytes", "commits")
_OF_COMMITS = ("commit", "visible")
_UNKNOWN = math.nan


class History:
    """Ring buffers, one per series; one thread writes, any thread may read."""

    def __init__(self) -> None:
        self._step = 0
        self._rings = {name: array("f", [_UNKNOWN]) * LENGTH for name in (*LAST, *MOST, *SUMS)}

    @property
    def size(self) -> int:
        """The memory that the rings take, bytes."""
        return sum(ring.itemsize * len(ring) for ring in self._rings.values())

    def note(self, last: Mapping[str, float | None], age: float, commit: Commit | None, now: datetime) -> None:
        """Adds a tick: the values now (of LAST), the age of the oldest txlog, and the commit if there was one."""
        self._move(_step_of(now))
        for name, value in last.items():
            self._put(name, value)
        self._most("age", age)
        for name, value in zip(SUMS, (commit.rows, commit.bytes, 1) if commit else (0, 0, 0), strict=True):
            self._put(name, self._at(name, 0.0) + value)
        if commit is not None:
            self._most("commit", commit.took.total_seconds())
            self._most("visible", max((age.total_seconds() for age in commit.visible_after), default=0.0))

    def _move(self, step: int) -> None:
        """Goes on to this step; the steps in between had no tick. A clock that is set back erases nothing."""
        for passed in range(max(self._step + 1, step - LENGTH + 1), step + 1):
            for ring in self._rings.values():
                ring[passed % LENGTH] = _UNKNOWN
        # Set back by an hour or more: the steps from then on would never be written.
        far_back = step < self._step - LENGTH
        self._step = step if far_back else max(step, self._step)

    def _at(self, name: str, default: float) -> float:
        value = self._rings[name][self._step % LENGTH]
        return default if math.isnan(value) else value

    def _put(self, name: str, value: float | None) -> None:
        self._rings[name][self._step % LENGTH] = _UNKNOWN if value is None else value

    def _most(self, name: str, value: float) -> None:
        self._put(name, max(value, self._at(name, 0.0)))

    def read(self, now: datetime, length: int = LENGTH, pause: int = 1) -> Mapping[str, list[float | None]]:
        """
        The last `length` steps of each series, oldest first; None where nothing is known.

        Up to `pause` steps without a tick repeat the step before them: ticks may be that far apart.
        """
        end = _step_of(now)
        steps = range(end - length + 1, end + 1)
        series = {name: [self._known(ring, step) for step in steps] for name, ring in self._rings.items()}
        return {
            name: values if name in _OF_COMMITS else _bridged(values, pause, name) for name, values in series.items()
        }

    def growth(self, name: str, now: datetime, steps: int) -> float:
        """How much more a series of LAST shows than `steps` ago, or than at the first step since; 0 when unknown."""
        end = _step_of(now)
        seen = (self._known(self._rings[name], step) for step in range(end - steps, end + 1))
        known = [value for value in seen if value is not None]
        return known[-1] - known[0] if known else 0.0

    def _known(self, ring: "array[float]", step: int) -> float | None:
        value = ring[step % LENGTH] if self._step - LENGTH < step <= self._step else _UNKNOWN
        return None if math.isnan(value) else round(value, 4)


def _bridged(values: list[float | None], pause: int, name: str) -> list[float | None]:
    last, empty = None, 0
    for place, value in enumerate(values):
        last, empty = (value, 0) if value is not None else (last, empty + 1)
        if value is None and last is not None and empty <= pause:
            values[place] = 0.0 if name in SUMS else last
    return values


def _step_of(now: datetime) -> int:
    return int(now.timestamp() // STEP_SECONDS)
