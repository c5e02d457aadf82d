"""
What a tick finds pending: by listing, or by the names that were hinted since the last listing.

Listing stays the truth: the first tick lists, one in every few does, and whenever the discovery cannot tell. What is
remembered between two listings only saves listing; a name that is not there (foreign, late, double) is passed over.
"""

from collections.abc import Iterable
from datetime import datetime

from bookkeeper.core.folder import Folder, Found
from bookkeeper.core.names import TxlogName
from bookkeeper.discover.discovery import LOOK, Discovery


class PendingIndex:
    """The pending txlogs of one folder, as far as they are known; `misnamed` are keys that the last listing showed."""

    def __init__(self, discovery: Discovery, look_every: int) -> None:
        self.discovery = discovery
        self.look_every = look_every
        self.misnamed: list[str] = []
        #: ticks since the last listing
        self._ticks = look_every
        self._known: dict[TxlogName, Found] = {}

    def found(self, folder: Folder, now: datetime) -> list[Found]:
        """Pending txlogs, ordered by writer, incarnation, sequence; raises StorageUnavailable."""
        hints = self.discovery.hints()
        self.misnamed = []
        if hints == LOOK or self._ticks + 1 >= self.look_every:
            # Until this listing has succeeded, only another one will do.
            self._ticks = self.look_every
            found, self.misnamed = folder.look()
            self._known = {item.name: item for item in found}
            self.discovery.after(list(self._known))
            self._ticks = 0
        else:
            self._ticks += 1
            new = [name for name in hints if name not in self._known]
            while new:
                there = {item.name: item for item in folder.found(new, now)}
                self._known |= there
                new = [name for name in self.discovery.after(list(there)) if name not in self._known]
        return sorted(self._known.values())

    def forget(self, names: Iterable[TxlogName]) -> None:
        """Forgets txlogs that were consumed or rejected."""
        for name in names:
            self._known.pop(name, None)
