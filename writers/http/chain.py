"""
What a run of a slot believes of its chain, held against what the folder says.

A run knows by heart what its producers have reached. That is wrong once a person or a bookkeeper has taken some of it
back: a producer was forgotten, the table went back or is another one, or a txlog that an earlier run had published was
rejected. Then the run ends, and the next one reads the chain anew: nothing that is not in the table is taken for a
request that came before.
"""

from bookkeeper.contract.offsets import Offsets, is_slot, slot_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Fenced, NotPossible
from writers.http.lane import Table
from writers.http.requests import PRODUCER
from writers.http.sequences import number_of
from writers.writer import Writer


class OtherSource(NotPossible):
    """The slots of this name have channels that this source would have in other slots, or that are no producers."""


def check_source(folder: Folder, table: Table, name: str, published: Offsets) -> None:
    """
    Raises OtherSource unless each channel of the source's slots is a producer, in the slot where it is looked for;
    `published` are those of the slot `name`. Raises StorageUnavailable.
    """
    copy = folder.marks()
    known = {} if copy is None else {slot: marks.offsets for slot, marks in copy.marks.writers.items()}
    for slot, offsets in {**known, name: published}.items():
        for channel in offsets if is_slot(table.source, slot) else ():
            if not PRODUCER.fullmatch(channel):
                hint = "Give each command that writes this table a --name of its own."
                raise OtherSource(f"{slot} is a slot of another source, it has read {channel}", hint=hint)
            if (wanted := slot_of(table.source, channel, table.slots)) != slot:
                hint = "Start it with the same --slots as before, or change it by `bookkeeper rehash`."
                what = f"{slot} has producer {channel}, and it would be {wanted} now: the number of slots has changed"
                raise OtherSource(what, hint=hint)


class Chain:
    """
    The chain of a run; `committed` and `look` raise Fenced where what the run knows is not so any more, and
    StorageUnavailable.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._committed = writer.committed_offsets()

    @property
    def published(self) -> Offsets:
        """What the producers have reached at the chain's end."""
        return self._writer.offsets

    @property
    def seen(self) -> Offsets:
        """What was committed at the last look."""
        return self._committed

    def committed(self) -> Offsets:
        """The committed offsets, of which none may be less than before, but of those that were forgotten."""
        before, self._committed = self._committed, self._writer.committed_offsets()
        for producer, offset in before.items():
            after = self._committed.get(producer)
            is_less = after is None or (number_of(after) or 0) < (number_of(offset) or 0)
            if is_less and producer in self._writer.offsets:
                raise Fenced(f"the table does not have sequence {offset} of {producer} any more")
        return self._committed

    def look(self, committed: Offsets) -> None:
        """
        Whether a txlog of this run was rejected, or one that an earlier run has published; or given up since: the marks
        pass over it then, so that the writer takes it for committed, and say nothing of its sequences.
        """
        self._writer.look()
        # The marks may have come since `committed`.
        if self._writer.all_committed and self._is_apart(committed) and self._is_apart(self.committed()):
            raise Fenced(f"a txlog of {self._writer.name} that was published is not there any more")

    def _is_apart(self, committed: Offsets) -> bool:
        published = self._writer.offsets
        is_ahead = any(
            (number_of(offset) or 0) > (number_of(committed.get(name)) or 0) for name, offset in published.items()
        )
        return is_ahead or not committed.keys() <= published.keys()
