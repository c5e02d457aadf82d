"""
What a tick finds pending: by listing, or by the names that were hinted since the last listing.

Listing stays the truth: the first tick lists, one in every few does, and whenever the discovery cannot tell. What is
remembered between two listings only saves listing. A hinted name is read at once; one that is not there (foreign,
late, double) is passed over: that says only that it is not there now.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.discover.discovery import LOOK, Discovery
from bookkeeper.errors import Missing, StorageUnavailable, Unfit

#: reads names that no listing has shown: what is there of each, or why it was not read
ReadUnlisted = Callable[[Sequence[TxlogName]], Mapping[TxlogName, Found | Missing | Unfit | StorageUnavailable]]


class PendingIndex:
    """
    The pending txlogs of one folder, as far as they are known.

    Of the last call of `found`: whether it `listed`, and the `misnamed` keys that its listing showed.
    """

    def __init__(self, discovery: Discovery, look_every: int) -> None:
        self.discovery = discovery
        self.look_every = look_every
        self.listed = False
        self.misnamed: list[str] = []
        #: ticks since the last listing
        self._ticks = look_every
        self._known: dict[TxlogName, Found] = {}
        #: hinted since the last listing, and the storage has not answered whether they are there
        self._unanswered: set[TxlogName] = set()

    def found(self, folder: Folder, read: ReadUnlisted) -> list[Found]:
        """Pending txlogs, ordered by writer, incarnation, sequence; raises StorageUnavailable."""
        hints = self.discovery.hints()
        self.misnamed = []
        self.listed = hints == LOOK or self._ticks + 1 >= self.look_every or not self._read(hints, read)
        if self.listed:
            # Until this listing has succeeded, only another one will do.
            self._ticks = self.look_every
            found, self.misnamed = folder.look()
            self._known = {item.name: item for item in found}
            self.discovery.after(list(self._known))
            self._unanswered.clear()
            self._ticks = 0
        else:
            self._ticks += 1
        return sorted(self._known.values())

    def _read(self, hints: Collection[TxlogName], read: ReadUnlisted) -> bool:
        """Reads what is hinted and what may follow it; False when something is there that only a listing can tell."""
        new = [name for name in self._unanswered | {*hints} if name not in self._known]
        self._unanswered = set(new)
        while new:
            answers = read(new)
            # Too large for what is read unlisted, or no file: its size must be known before it is read or refused.
            if any(isinstance(answer, Unfit) for answer in answers.values()):
                return False
            there = {name: answer for name, answer in answers.items() if isinstance(answer, Found)}
            self._known |= there
            self._unanswered.difference_update(new)
            self._unanswered.update(name for name in new if isinstance(answers[name], StorageUnavailable))
            new = [name for name in self.discovery.after(list(there), new) if name not in self._known]
        return True

    def forget(self, names: Iterable[TxlogName]) -> None:
        """Forgets txlogs that were consumed or rejected."""
        for name in names:
            self._known.pop(name, None)
