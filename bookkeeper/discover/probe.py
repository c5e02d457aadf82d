"""
Probing: asks for the next txlogs of each writer that was seen lately, instead of listing all.

Sequences have no gaps, so the next names are known. New writers, and those that were idle for long, are found by the
listings in between. A request per writer and tick: cheaper than a listing only while there are few writers, so while
there are many, it lists.
"""

from collections.abc import Collection
from itertools import groupby, takewhile

from bookkeeper.contract.names import IncarnationKey, TxlogName
from bookkeeper.discover.discovery import LOOK, Hints

#: probes in a row that found nothing until an incarnation counts as idle
_PATIENCE = 100
#: more live incarnations than this are better listed, all of them: to ask for some only would leave the others waiting
_MOST = 200
#: names of one incarnation that are asked for at once
_AHEAD = 16


class Probe:
    """
    Remembers the last txlog of each incarnation; what it forgets is found by listing.

    Of a writer that goes on as before one request too many shows that there are no more: none waits for its answer.
    """

    def __init__(self) -> None:
        self._last: dict[IncarnationKey, TxlogName] = {}
        self._misses: dict[IncarnationKey, int] = {}
        #: how many of each were found by asking since the last hints
        self._gained: dict[IncarnationKey, int] = {}

    def hints(self) -> Hints:
        for key in [key for key, misses in self._misses.items() if misses >= _PATIENCE]:
            del self._last[key], self._misses[key]
        for key in self._misses:
            self._misses[key] += 1
        gained, self._gained = self._gained, {}
        if len(self._last) > _MOST:
            return LOOK
        return frozenset(name for key in self._last for name in self._next(key, gained.get(key, 0) + 1))

    def after(self, found: Collection[TxlogName], asked: Collection[TxlogName] = ()) -> frozenset[TxlogName]:
        """The names that follow those which were asked for and found, all of an incarnation."""
        if not asked:
            for name in found:
                self._seen(name)
            return frozenset()
        there, more = frozenset(found), list[TxlogName]()
        for key, names in groupby(sorted(asked), lambda name: name.incarnation_key):
            wanted = list(names)
            # The answers are not of one moment: one that is missing is asked for again, whatever follows it.
            new = list(takewhile(there.__contains__, wanted))
            if new:
                self._seen(new[-1])
                self._gained[key] = self._gained.get(key, 0) + len(new)
            if len(new) == len(wanted):
                more += self._next(key, 2 * len(new))
        return frozenset(more)

    def _seen(self, name: TxlogName) -> None:
        key = name.incarnation_key
        if key not in self._last or self._last[key].sequence < name.sequence:
            self._last[key] = name
        self._misses[key] = 0

    def _next(self, key: IncarnationKey, many: int) -> list[TxlogName]:
        last = self._last[key]
        return [last.at(last.sequence + number) for number in range(1, min(many, _AHEAD) + 1)]

    def hinted(self) -> bool:
        return False

    def wakes(self) -> Collection[int]:
        return ()

    def close(self) -> None:
        self._last.clear()
        self._misses.clear()
        self._gained.clear()
