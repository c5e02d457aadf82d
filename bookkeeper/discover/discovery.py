"""
The interface between a source of hints and the tick: names of new txlogs, and what the loop may sleep on.

A hint is never believed: lost, late, double and foreign hints change how soon a txlog is found, nothing else.
Listing stays the truth. A further way to notice (a queue, a probe) is one more class with these methods.
"""

from collections.abc import Collection
from typing import Literal, Protocol

from bookkeeper.contract.names import TxlogName

LOOK: Literal["look"] = "look"
Hints = frozenset[TxlogName] | Literal["look"]


class Discovery(Protocol):
    """
    One table's source of hints. Never blocks; trouble of its source is answered by LOOK, not by an error.
    """

    def hints(self) -> Hints:
        """Names hinted since the last call (maybe none), or LOOK when only a listing can tell."""

    def after(self, found: Collection[TxlogName], asked: Collection[TxlogName] = ()) -> Collection[TxlogName]:
        """
        Takes what was found pending of the names `asked` for, or by a listing; returns names that may be there too, to
        be asked for at once.
        """

    def hinted(self) -> bool:
        """Whether a tick would learn something new now; takes nothing away."""

    def wakes(self) -> Collection[int]:
        """File descriptors that become readable when `hinted` may have changed; one that is closed is not in it."""

    def close(self) -> None:
        """Releases what it holds; afterwards it answers LOOK."""


class Listing:
    """Gives no hints, so every tick lists the folder."""

    def hints(self) -> Hints:
        return LOOK

    def after(self, found: Collection[TxlogName], asked: Collection[TxlogName] = ()) -> Collection[TxlogName]:
        return ()

    def hinted(self) -> bool:
        return False

    def wakes(self) -> Collection[int]:
        return ()

    def close(self) -> None:
        return None
