"""
How long what was rejected rests before it is tried again: a minute, and twice as long each time, at most an hour.
"""

from datetime import datetime, timedelta

from writers.timing import Clock

REST, MOST_REST = timedelta(minutes=1), timedelta(hours=1)


class Rests:
    """
    By key, such as a channel or an object; to be used by one thread, and forgotten when the process ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: until when, and for how long the next time
        self._known = dict[str, tuple[datetime, timedelta]]()

    def add(self, key: str) -> None:
        """It was rejected, alone."""
        rest = self._known[key][1] if key in self._known else REST
        self._known[key] = self._clock() + rest, min(2 * rest, MOST_REST)

    def clear(self, key: str) -> None:
        """Nothing is against it."""
        self._known.pop(key, None)

    def known(self) -> list[str]:
        """What was rejected, the first first."""
        return [*self._known]

    def now(self) -> dict[str, datetime]:
        """What rests, and until when; a clock that was put back makes no rest longer than the longest."""
        now = self._clock()
        return {key: until for key, (until, _) in self._known.items() if now < until <= now + MOST_REST}
