"""
Probing: asks for the next txlog of each writer that was seen lately, instead of listing all.

Sequences have no gaps, so the next name is known. New writers, and those that were idle for long, are found by the
listings in between. A request per writer and tick: cheaper than a listing only while there are few writers, so while
there are many, it lists.
"""

from collections.abc import Collection, Iterable

from bookkeeper.core.names import IncarnationKey, TxlogName
from bookkeeper.discover.discovery import LOOK, Hints

#: probes in a row that found nothing until an incarnation counts as idle
_PATIENCE = 100
#: more live incarnations than this are better listed, all of them: to ask for some only would leave the others waiting
_MOST = 200


class Probe:
    """Remembers the last txlog of each incarnation; what it forgets is found by listing."""

    def __init__(self) -> None:
        self._last: dict[IncarnationKey, TxlogName] = {}
        self._misses: dict[IncarnationKey, int] = {}

    def hints(self) -> Hints:
        for key in [key for key, misses in self._misses.items() if misses >= _PATIENCE]:
            del self._last[key], self._misses[key]
        for key in self._misses:
            self._misses[key] += 1
        if len(self._last) > _MOST:
            return LOOK
        return frozenset(name.at(name.sequence + 1) for name in self._last.values())

    def after(self, found: Iterable[TxlogName]) -> frozenset[TxlogName]:
        """The names that follow those which were found."""
        new = []
        for name in found:
            key = name.incarnation_key
            if key not in self._last or self._last[key].sequence < name.sequence:
                self._last[key] = name
            self._misses[key] = 0
            new.append(key)
        return frozenset(self._last[key].at(self._last[key].sequence + 1) for key in new)

    def hinted(self) -> bool:
        return False

    def wakes(self) -> Collection[int]:
        return ()

    def close(self) -> None:
        self._last.clear()
        self._misses.clear()
