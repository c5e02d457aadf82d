"""
The room in the marks, which every commit writes again: names of writers, their positions and the offsets of slots stay
until they are forgotten.
"""

from collections.abc import Callable, Mapping

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import TooManyWriters

#: bytes of a position for which each writer has room; longer ones share what that makes for all
SHARE = 128


class WriterRoom:
    """
    What the txlogs of one batch may add to `marks`, as the table has them: at most `most` names of writers.

    A writer that is known always gets in, unless its position grows long while there is no room for that, or it has
    channels that are new.
    """

    def __init__(self, marks: Marks, most: int, without_idle: Callable[[], Marks]) -> None:
        self.marks, self.most, self.without_idle = marks, most, without_idle
        self.known = len(marks.writers)
        #: whether writers that the next commit drops from the marks are counted no more
        self.pruned = False
        #: of writers in the batch, the bytes of the position that they reach
        self.reached: dict[str, int] = {}
        self.fresh, self.bytes = 0, sum(len(known.position or b"") for known in marks.writers.values())
        #: channels of the batch that `marks` do not know, each with its slot
        self.new_channels: Mapping[str, str] = {}

    def take(self, txlog: Txlog) -> None:
        """
        Takes room for this txlog; raises TooManyWriters, TooManyChannels, ChannelTaken, and then takes nothing.
        """
        channels = self.marks.with_channels(txlog.name.writer, txlog.offsets, self.new_channels)
        self._take_writer(txlog)
        self.new_channels = channels

    def _take_writer(self, txlog: Txlog) -> None:
        writer = txlog.name.writer
        if txlog.position is None and writer in self.reached:  # it adds neither a name nor a position
            return
        fresh = writer not in self.marks.writers and writer not in self.reached
        if fresh and self._is_full() and self._is_full_without_idle():
            raise TooManyWriters(f"{writer} would be one more than {self.most} writers (max-writers) of the table")
        before = self.reached.get(writer, len(self.marks.writer(writer).position or b""))
        after = before if txlog.position is None else len(txlog.position)
        if after > max(before, SHARE) and self.bytes + after - before > self.most * SHARE:
            raise TooManyWriters(
                f"with its position of {after} bytes, the positions of all writers would take more than "
                f"{self.most * SHARE} bytes (max-writers x {SHARE})"
            )
        self.reached[writer] = after
        self.bytes += after - before
        self.fresh += fresh

    def _is_full(self) -> bool:
        return self.known + self.fresh >= self.most

    def _is_full_without_idle(self) -> bool:
        """Asked only where there is no room: it lists the folder."""
        if not self.pruned:
            # One of the batch that is idle until now stays: it counts as one that is known.
            left = {*self.without_idle().writers, *(self.reached.keys() & self.marks.writers.keys())}
            self.pruned, self.known = True, len(left)
        return self._is_full()
