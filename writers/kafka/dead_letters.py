"""
Dead letters: messages that are no rows, as rows of the table NAME__rejected.

Order, for each stretch that is published: the verdict (verdicts.py), the letters, once these are committed the rows
with their offsets. What a crash leaves: a verdict without a letter, which the next run makes good, for it reads that
message again; letters without the rows around them, which it writes again under the same key.

A run puts nothing aside before a txlog of its own is committed: until then an earlier run may still publish the message
as a row. Letters have positions, and their writer is opened before the verdicts are claimed: letters of an earlier run
that stood still get in only until those of this run do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.config.dead_letters import SCHEMA, check_keys
from bookkeeper.contract.offsets import is_slot
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.contract.verdicts import slots_with_verdicts
from bookkeeper.errors import NotPossible, SchemaRefused
from writers.kafka.messages import PARTS, Message
from writers.kafka.verdicts import Verdicts
from writers.timing import Clock, Wait
from writers.writer import Writer

#: so many letters are published together
MOST = 10_000
_REASON = 1000
_MOST_MILLIS = (2**63 - 1) // 1000
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_COLUMNS = pa.schema([(str(column["name"]), _TYPES[str(column["type"])]) for column in SCHEMA])


@dataclass
class Letters:
    """
    Those of one run of a slot; to be used by one thread. Its methods raise what a writer raises.
    """

    source: str
    writer: Writer
    verdicts: Verdicts
    clock: Clock
    #: rows whose verdict is not put yet
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _count: int = 0

    def judged(self, channel: str, offset: int) -> bool:
        """Whether a message was put aside, by this run or an earlier one."""
        return self.verdicts.has(channel, offset)

    def add(self, channel: str, message: Message, reason: str) -> int:
        """Takes a message that is no row; the bytes that it holds in memory until it is published."""
        value, key = message.value(), message.key()
        parts = {part: PARTS[part](message) for part in ("topic", "partition", "offset", "headers")}
        row = {"source": self.source, "channel": channel, **parts, "key": key, "value": value}
        kind, millis = message.timestamp()
        # Producers give any number: as a datetime one after the year 9999 would be none.
        row["timestamp"] = millis * 1000 if kind and abs(millis) <= _MOST_MILLIS else None
        self._rows.append({**row, "reason": reason[:_REASON], "rejected_at": self.clock()})
        return len(value or b"") + len(key or b"") + len(parts["headers"] or "") + _REASON

    @property
    def waiting(self) -> bool:
        """Whether there are letters that are not known to be committed."""
        return bool(self._rows) or self.writer.unpublished_rows > 0 or not self.writer.all_committed

    @property
    def full(self) -> bool:
        """Whether it is time to publish."""
        return len(self._rows) >= MOST

    def send(self, passed: Mapping[str, int]) -> bool:
        """
        Publishes what there is; True once it is committed. `passed` are the offsets of channels in the rows' table.
        """
        if self._rows:
            new = dict[str, list[int]]()
            for row in self._rows:
                new.setdefault(row["channel"], []).append(row["offset"])
            self.verdicts.add(new, passed)
            try:
                self.writer.upsert(pa.Table.from_pylist(self._rows, _COLUMNS))
            except SchemaRefused as exc:
                what = f"{self.writer.card.table} takes no dead letters: {exc}"
                raise NotPossible(what, hint=f"Give it its columns back. {exc.hint}".strip()) from exc
            self._rows = []
        if self.writer.unpublished_rows:
            self._count += 1
            self.writer.publish(position=f"{self.writer.incarnation}.{self._count:010d}".encode())
        self.writer.look()
        return self.writer.all_committed

    def close(self) -> None:
        """Ends it; what is not published is read again."""
        self.writer.close()


def opened(source: str, slot: str, writer: Writer, rows_folder: Folder, clock: Clock, wait: Wait) -> Letters:
    """
    The letters of a new run of `slot`, with a `writer` to their table that was opened for it; raises like Verdicts.
    """
    check_keys(writer.card.table, writer.keys)
    others = [name for name in slots_with_verdicts(rows_folder.store) if name != slot and is_slot(source, name)]
    return Letters(source, writer, Verdicts(rows_folder.store, slot, others, writer.incarnation, wait), clock)


def check_without(folder: Folder, source: str) -> None:
    """
    Raises NotPossible where this source has put messages aside before, and would do it no longer.
    """
    if any(is_slot(source, name) for name in slots_with_verdicts(folder.store)):
        what = f"{source} has dead letters, and is started without"
        raise NotPossible(what, hint="Give --dead-letters as before, or --table with its dead-letters = true.")


def check_same(letters: Folder, rows: Folder, source: str) -> None:
    """
    Raises NotPossible where these are the letters of another table, such as one of this name that was dropped: what has
    a letter there may become a row here, and a second one by a replay. A slot that has letters has verdicts beside its
    rows, or their table knows it.
    """
    there, here = letters.marks(), rows.marks()
    known = {*slots_with_verdicts(rows.store), *(() if here is None else here.marks.writers)}
    for name, marks in () if there is None else there.marks.writers.items():
        if is_slot(source, name) and marks.position is not None and name not in known:
            what = f"{source} has dead letters of another table: {name} has written them, and nothing into this one"
            raise NotPossible(what, hint="`bookkeeper drop` the table of the letters, too, or give another --name.")
