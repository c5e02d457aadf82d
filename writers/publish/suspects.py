"""
Which channels of a slot are published together: after a txlog of some was rejected, each of these alone, so that the
one with the bad rows stops and the others go on.

A process that ends forgets it: the next one publishes all together, and learns it by the next reject; or, where it
ends before a reject can be seen, by `rejected_offsets`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from bookkeeper.contract.card import Card
from bookkeeper.contract.offsets import MOST_IN_TXLOG, Offsets
from bookkeeper.contract.txlog_folder import REJECTED, Folder
from bookkeeper.errors import Fenced
from writers.publish.publisher import with_positions
from writers.publish.rests import Rests
from writers.timing import Clock, utc_now

#: so many rejected txlogs of a writer are read, the newest
_MOST_REJECTED = 100
#: what says nothing about a channel: another run got there first
OF_RUNS = ("", "PositionTaken", "OutOfOrder")


@dataclass
class _Suspect:
    """`reached`: its committed offset when it was first asked for; past that it is none."""

    asked: bool = False
    reached: str | None = None


class Suspects:
    """
    Kept by a source for one slot, from run to run of its writer.
    """

    def __init__(self, clock: Clock = utc_now) -> None:
        self._rests, self._known = Rests(clock), dict[str, _Suspect]()

    def fenced(self, error: Fenced) -> None:
        """
        A run was fenced: where a txlog of it was rejected for what is in it, its channels are published alone from now
        on. One that was alone already rests.
        """
        if error.rejected in OF_RUNS:
            return
        self.add(error.channels)
        if len(error.channels) == 1:
            self._rests.add(*error.channels)

    def add(self, channels: Iterable[str]) -> None:
        """Each of these is published alone from now on."""
        for channel in channels:
            self._known.setdefault(channel, _Suspect())

    def groups(self, channels: Iterable[str], committed: Offsets) -> list[list[str]]:
        """
        These channels, each group for a txlog of its own; channels that rest are left out.

        `committed` are the writer's committed offsets: a channel that has moved since it was suspected is so no more.
        """
        resting, together, alone = self._rests.now(), list[str](), list[list[str]]()
        for channel in channels:
            if not self._still(channel, committed.get(channel)):
                together.append(channel)
            elif channel not in resting:
                alone.append([channel])
        parts = [together[at : at + MOST_IN_TXLOG] for at in range(0, len(together), MOST_IN_TXLOG)]
        return [*parts, *alone]

    def is_suspect(self, channel: str) -> bool:
        """Whether it is published alone."""
        return channel in self._known

    def clear(self, channel: str) -> None:
        """Nothing is against it: its rows were committed, or there is none left. It is published with the others."""
        self._known.pop(channel, None)
        self._rests.clear(channel)

    def resting(self) -> dict[str, datetime]:
        """Channels that rest, and until when."""
        return self._rests.now()

    def _still(self, channel: str, committed: str | None) -> bool:
        suspect = self._known.get(channel)
        if suspect is None:
            return False
        if not suspect.asked:
            suspect.asked, suspect.reached = True, committed
        if suspect.reached != committed:
            self.clear(channel)
            return False
        return True


def rejected_offsets(folder: Folder, card: Card, writer: str) -> dict[str, set[str]]:
    """
    By channel the offsets in rejected txlogs of this writer, but not in those that another run got ahead of; raises
    StorageUnavailable.
    """
    listed = sorted((item.modified, item.name, item.size) for item in folder.rejected() if item.name.writer == writer)
    sizes = {name: size for _, name, size in listed[-_MOST_REJECTED:]}
    found = dict[str, set[str]]()
    for item in with_positions(folder, card, sizes, REJECTED):
        if folder.reason(item.name).get("error", "") not in OF_RUNS:
            for channel, offset in item.offsets.items():
                found.setdefault(channel, set()).add(offset)
    return found
