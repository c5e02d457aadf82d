"""
The seam between whatever tells of new txlogs and the tick: hints, and what the loop may sleep on.

A hint is never believed: lost, late, double and foreign ones change how soon a txlog is noticed, nothing else.
Listing stays the truth. A further way to notice (a queue, a probe) is one more class with these methods.
"""

from collections.abc import Collection
from typing import Literal, Protocol

from bookkeeper.core.names import TxlogName

LOOK: Literal["look"] = "look"
Hints = frozenset[TxlogName] | Literal["look"]


class Discovery(Protocol):
    """
    One table's way to notice txlogs. Never blocks and never raises for trouble of its source: it answers LOOK then.
    """

    def hints(self) -> Hints:
        """Names noticed since it was asked last (maybe none), or LOOK when only a listing can tell."""

    def after(self, found: Collection[TxlogName]) -> Collection[TxlogName]:
        """Told what was found pending: names that may be there too, to be looked for at once."""

    def hinted(self) -> bool:
        """Whether a tick would learn something new now; takes nothing away."""

    def wakes(self) -> Collection[int]:
        """File descriptors that become readable when `hinted` may have changed; one that is closed is not in it."""

    def close(self) -> None:
        """Gives back what it holds; afterwards it answers LOOK."""


class Listing:
    """Knows nothing, so every tick lists the folder."""

    def hints(self) -> Hints:
        return LOOK

    def after(self, found: Collection[TxlogName]) -> Collection[TxlogName]:
        return ()

    def hinted(self) -> bool:
        return False

    def wakes(self) -> Collection[int]:
        return ()

    def close(self) -> None:
        return None
