"""
Files that a rewrite failed on, or that a rejected rewrite named: left alone for a while, longer after each failure.

A file that cannot be read stays out for an hour at first and a day at most, the others of its group for a minute. Kept
in memory only: a restarted reaper tries again. Files that fail together a second time do not come back together.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

FIRST, LONGEST = timedelta(minutes=1), timedelta(days=1)
#: failures that one of the file that it was about counts for: 64 minutes at first
CULPRIT = 7
#: files that are remembered; about 300 bytes each
MOST = 100_000


class Failure(NamedTuple):
    """How often a file failed, until when it is left alone, and why."""

    times: int
    until: datetime
    reason: str


class SetAside:
    """The failures of one table's files, by location."""

    def __init__(self) -> None:
        self._failures: dict[str, Failure] = {}

    def add(self, paths: Iterable[str], reason: str, now: datetime, culprit: str | None = None) -> None:
        """
        Leaves these files alone from now on, twice as long as the last time.

        The `culprit` stays out for an hour at first: the others are rewritten without it. Where none is known, the
        first half of files that fail again comes back in half the time: without the file that fails it gets through.
        """
        paths = list(paths)
        for index, path in enumerate(paths):
            times = self._failures.pop(path, Failure(0, now, "")).times + (CULPRIT if path == culprit else 1)
            span = min(FIRST * 2 ** min(times - 1, 20), LONGEST)
            if culprit is None and times > 1 and index < len(paths) // 2:
                span /= 2
            self._failures[path] = Failure(times, now + span, reason[:300])
        while len(self._failures) > MOST:
            self._failures.pop(next(iter(self._failures)))

    def active(self, now: datetime) -> Mapping[str, str]:
        """The reason of each file that is left alone now."""
        return {path: failure.reason for path, failure in self._failures.items() if now < failure.until}

    def keep_only(self, live: Collection[str]) -> None:
        """Forgets files that are not live any more."""
        for path in self._failures.keys() - live:
            del self._failures[path]

    def __bool__(self) -> bool:
        return bool(self._failures)

    def paths(self) -> Collection[str]:
        """The files that failed at least once."""
        return self._failures.keys()
