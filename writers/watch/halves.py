"""
Objects whose txlog was rejected: their plan is tried again in halves, so that a bad object costs only itself.

A process that ends forgets it: the next one publishes all together, and learns it by the next reject.
"""

from collections.abc import Collection, Sequence

from writers.publish.rests import Rests
from writers.publish.suspects import OF_RUNS
from writers.timing import Clock


class Halves:
    """Groups of keys that are published without others; one key that was rejected alone rests."""

    def __init__(self, clock: Clock) -> None:
        self._groups, self._rests = list[list[str]](), Rests(clock)

    def rejected(self, error: str, keys: Sequence[str]) -> None:
        """
        The txlog with these objects was rejected for `error`: each half is tried next. One that was alone rests.
        """
        if error in OF_RUNS:
            return
        if len(keys) > 1:
            middle = len(keys) // 2
            self._groups += [[*keys[:middle]], [*keys[middle:]]]
            return
        for key in keys:
            self._rests.add(key)

    def clear(self, key: str) -> None:
        """Nothing is against it: its rows are in, or it is gone."""
        self._rests.clear(key)

    def resting(self) -> set[str]:
        """Keys that rest."""
        return {*self._rests.now()}

    def apart(self) -> set[str]:
        """Keys that are not published with others."""
        return {*self._rests.known()}.union(*self._groups)

    def next(self, listed: Collection[str]) -> list[str]:
        """The next group, as far as its objects are listed; it is one no more. Empty where there is none."""
        while self._groups:
            group = [key for key in self._groups.pop(0) if key in listed]
            if group:
                return group
        resting = self.resting()
        return [key for key in self._rests.known() if key in listed and key not in resting][:1]
