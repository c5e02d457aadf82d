"""
Objects whose txlog was rejected: their plan is tried again in halves, so that a bad object costs only itself.

A process that ends forgets it: the next one publishes all together, and learns it by the next reject.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from writers.publish.suspects import MOST_REST, OF_RUNS, REST
from writers.timing import Clock


class Halves:
    """Groups of keys that are published without others; one key that was rejected alone rests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups = list[list[str]]()
        #: until when a key rests, and for how long the next time
        self._rests = dict[str, tuple[datetime, timedelta]]()

    def rejected(self, error: str, keys: Sequence[str]) -> None:
        """
        The txlog with these objects was rejected for `error`: each half is tried next. One that was alone rests: a
        minute, and twice as long each time, at most an hour.
        """
        if error in OF_RUNS:
            return
        if len(keys) > 1:
            middle = len(keys) // 2
            self._groups += [[*keys[:middle]], [*keys[middle:]]]
            return
        for key in keys:
            rest = self._rests[key][1] if key in self._rests else REST
            self._rests[key] = self._clock() + rest, min(2 * rest, MOST_REST)

    def clear(self, key: str) -> None:
        """Nothing is against it: its rows are in, or it is gone."""
        self._rests.pop(key, None)

    def resting(self) -> set[str]:
        """Keys that rest; a clock that was put back makes no rest longer than the longest."""
        now = self._clock()
        return {key for key, (until, _) in self._rests.items() if now < until <= now + MOST_REST}

    def apart(self) -> set[str]:
        """Keys that are not published with others."""
        return {*self._rests}.union(*self._groups)

    def next(self, listed: Collection[str]) -> list[str]:
        """The next group, as far as its objects are listed; it is one no more. Empty where there is none."""
        while self._groups:
            group = [key for key in self._groups.pop(0) if key in listed]
            if group:
                return group
        resting = self.resting()
        return [key for key in self._rests if key in listed and key not in resting][:1]
