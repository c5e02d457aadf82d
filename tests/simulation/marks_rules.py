"""
What must hold of the marks, of their copy, and of the card: marks say what is in, no position is passed over,
marks.json says what a commit has said and never goes back, and the card tells writers of the table as it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation import folder_files
from tests.simulation.decoder import Wrong
from tests.simulation.disk import Disk
from tests.simulation.folder_files import Marks, Name, Txlog
from tests.simulation.table_state import MARKS, Snapshot, TableState


@dataclass
class MarksRules:
    """Follows the txlogs of one folder, from their publication to their end."""

    disk: Disk
    folder: str
    keyed: bool
    acting: Callable[[], str]
    #: published txlogs that are not in, by name, and those that are
    waiting: dict[str, Txlog] = field(default_factory=dict)
    done: dict[str, Txlog] = field(default_factory=dict)
    #: the marks of each commit, by its snapshot: the property, and the table's last numbers from which on they were it
    said: dict[int | None, tuple[str, int]] = field(default_factory=dict)
    #: and the number of the commit that moved them on
    _until: dict[int | None, int] = field(default_factory=dict)
    copy: folder_files.MarksCopy | None = None
    _newest: int | None = None
    #: of a keyed table the last txlog of each writer that is in
    _last: dict[str, Name] = field(default_factory=dict)

    def published(self, text: str, data: bytes) -> Txlog | None:
        """A txlog was put; None for one that is known."""
        if text in self.waiting or text in self.done:
            return None
        txlog = folder_files.txlog(data)
        if txlog.name != folder_files.name_of(text):
            raise Wrong(f"{text} says that it is {txlog.name}")
        self.waiting[text] = txlog
        return txlog

    def give_up(self, text: str) -> None:
        """It is about to be discarded, or swept: marks may say that it is in."""
        if (txlog := self.waiting.pop(text, None)) is not None:
            self.done[text] = txlog

    def committed(
        self, before: TableState, after: TableState, new: Sequence[Snapshot], added: set[str]
    ) -> Iterator[tuple[str, Txlog]]:
        """The txlogs that a commit brought in, in order; `added` are the data files that appends have added ever."""
        text = after.properties.get(MARKS)
        if text is None or text == before.properties.get(MARKS):
            return
        marks = folder_files.marks(text)
        self._until[self._newest] = after.last_number
        self._newest = marks.snapshot
        self.said[marks.snapshot] = text, after.last_number
        if after.head is None or marks.snapshot != after.head.id:
            raise Wrong(f"the marks name snapshot {marks.snapshot}, and main is {after.head and after.head.id}")
        came = [(name, txlog) for name, txlog in self._in(marks, added)]
        came.sort(key=lambda item: item[1].name)
        if MARKS in before.properties:
            self._positions(folder_files.marks(before.properties[MARKS]), marks, [txlog for _, txlog in came])
        self._summaries(new, [txlog.name for _, txlog in came])
        for name, txlog in came:
            self.done[name] = self.waiting.pop(name)
            if self.keyed and (last := self._last.get(txlog.name.writer)) and last.rank > txlog.name.rank:
                raise Wrong(f"{name} comes in after a later one of its writer, {last}")
            self._last[txlog.name.writer] = txlog.name
            yield name, txlog

    def _in(self, marks: Marks, added: set[str]) -> Iterator[tuple[str, Txlog]]:
        for text, txlog in self.waiting.items():
            there, inside = [path in added for path in txlog.files], marks.has(txlog.name)
            if inside and not all(there):
                raise Wrong(f"the marks say that {text} is in, and its files are not")
            if not inside and any(there):
                raise Wrong(f"files of {text} are in, and the marks do not say so")
            if inside:
                yield text, txlog

    def _positions(self, before: Marks, after: Marks, came: Iterable[Txlog]) -> None:
        """The position of a writer and its offsets move from txlog to txlog, and never otherwise."""
        reached, left = dict(before.positions), [txlog for txlog in came if txlog.position is not None]
        offsets = {writer: dict(known) for writer, known in before.offsets.items()}
        while txlog := next((item for item in left if item.previous == reached.get(item.name.writer)), None):
            assert txlog.position is not None
            reached[txlog.name.writer] = txlog.position
            if txlog.offsets:
                offsets.setdefault(txlog.name.writer, {}).update(txlog.offsets)
            left.remove(txlog)
        if left:
            raise Wrong(f"{left[0].name} goes on from {left[0].previous!r}, and {reached} was committed")
        if after.positions != reached:
            raise Wrong(f"the marks have the positions {after.positions}, and the txlogs reach {reached}")
        if after.offsets != offsets:
            raise Wrong(f"the marks have the offsets {after.offsets}, and the txlogs reach {offsets}")

    def _summaries(self, new: Sequence[Snapshot], came: Sequence[Name]) -> None:
        """The snapshots of a commit name the txlogs that it holds, and each other."""
        told = [snapshot.said for snapshot in new if "bookkeeper.txlogs" in snapshot.said]
        runs = dict[tuple[str, str], list[int]]()
        for name in came:
            runs.setdefault((name.writer, name.incarnation), []).append(name.sequence)
        text = " ".join(
            f"{writer}.{incarnation}:{min(of)}-{max(of)}" for (writer, incarnation), of in sorted(runs.items())
        )
        wanted = [{"bookkeeper.txlogs": text, "bookkeeper.txlog-count": str(len(came))}] if came else []
        if [{key: said[key] for key in wanted[0]} if wanted else said for said in told] != wanted:
            raise Wrong(f"a commit of {text!r} says that it holds {told}")
        ids = {str(snapshot.id) for snapshot in new if snapshot.operation == "append"}
        for snapshot in new:
            if "bookkeeper.append" in snapshot.said and snapshot.said["bookkeeper.append"] not in ids:
                raise Wrong(f"{snapshot.about} says that it belongs with {snapshot.said['bookkeeper.append']}")

    # -- the copy, and the card

    def copied(self, data: bytes, table: TableState) -> None:
        """marks.json was put."""
        copy, before = folder_files.marks_copy(data), self.copy
        # Before the first commit the property is what `init` has set.
        text, since = self.said.get(copy.marks.snapshot, (table.properties[MARKS], 0))
        until = self._until.get(copy.marks.snapshot, copy.number + 1)
        is_right = folder_files.text_of(copy.raw) == folder_files.text(text)
        if not is_right or copy.table != table.uuid or not since <= copy.number < until:
            raise Wrong(f"marks.json says {copy.number}, {copy.raw}; the table said {since} to {until}, {text}")
        if before is not None and copy.number < before.number and self.acting() != "operator":
            raise Wrong(f"marks.json goes back from {before.number} to {copy.number}")
        self.copy = copy

    def told(self, data: bytes, table: TableState) -> None:
        """card.json was put."""
        card: Mapping[str, Any] = folder_files.card(data)
        schemas = [folder_files.text_of(item) for item in map(_columns, table.raw["schemas"])]
        if card["table-uuid"] != table.uuid or folder_files.text_of(_columns(card["schema"])) not in schemas:
            raise Wrong(f"the card is of table {card['table-uuid']} with {card['schema']}, which it never had")


def _columns(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What matters of a schema: its id, its columns and its keys."""
    fields = [{key: column[key] for key in ("id", "name", "type", "required")} for column in schema["fields"]]
    return {"id": schema["schema-id"], "fields": fields, "keys": [*schema.get("identifier-field-ids", ())]}
