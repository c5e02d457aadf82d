"""
Changes how many slots a source has: one commit of marks moves the offset of each channel to its slot of then.

Each slot gets a position that no run has: a run from before, wherever it stands, is fenced at its next publish, and
reads again from the offsets of its slot of then. So the offsets are right also where a txlog of a slot was published
meanwhile: it is rejected. That nothing is pending only keeps rows from being read twice.

Verdicts on dead letters are claimed after the commit, so that no run from before puts another message aside: a slot
that is no more has no run of then that would claim them.

A writer that is only named like a slot (`writer lines --name orders-07`) keeps its position: it has no offsets, and its
position is not one that slots have.

A crash before the commit leaves everything; after it marks.json is mended by the next load, and until then a slot that
starts is fenced. The command may be given again: where all is as it should be, it commits nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bookkeeper.contract.marks import Marks, WriterMarks
from bookkeeper.contract.names import check_writer, new_incarnation
from bookkeeper.contract.offsets import Offsets, is_slot, slot_name, slot_of
from bookkeeper.contract.txlog_folder import PENDING, REJECTED, Folder
from bookkeeper.contract.verdicts import claim
from bookkeeper.errors import NotPossible

#: of a slot: the name of its last txlog, or what this command has given it
_OF_SLOT = re.compile(rb"(?:rehash\.)?[0-9a-f-]{36}(?:\.[0-9]{10})?")


@dataclass(frozen=True, slots=True)
class Rehash:
    """The marks with `moved` channels in other slots; None where each is in its slot already."""

    marks: Marks | None
    channels: int
    moved: int


def rehash(
    marks: Marks, folder: Folder, source: str, slots: int, most_writers: int, now_ms: int, random: bytes
) -> Rehash:
    """
    `marks` with the offsets of the source in so many slots. `random`: 10 bytes.

    `marks` are read before the folder: what is committed in between makes the commit a conflict. Raises NotPossible
    while a txlog of a slot is pending or rejected, StorageUnavailable.
    """
    check_writer(slot_name(source, slots - 1))
    names = [writer for writer, known in marks.writers.items() if is_slot(source, writer) and _may_be_slot(known)]
    before = {channel: writer for writer in names for channel in marks.writer(writer).offsets}
    if not before:
        raise NotPossible(f"{source} has no slot with offsets", hint="`bookkeeper writers` lists all writers.")
    after = {channel: slot_of(source, channel, slots) for channel in before}
    moved = sum(after[channel] != before[channel] for channel in before)
    if not moved:
        return Rehash(None, len(before), 0)
    for slot in sorted({*after.values()} & marks.writers.keys() - {*names}):
        hint = f"Take another number of slots; or, where it has ended for good, `bookkeeper forget {slot}`."
        raise NotPossible(f"{slot} would be a slot of {source}, and has another source", hint=hint)
    _check_folder(folder, source)
    offsets = dict[str, dict[str, str]]()
    for channel, writer in before.items():
        offsets.setdefault(after[channel], {})[channel] = marks.writer(writer).offsets[channel]
    position = f"rehash.{new_incarnation(now_ms, random)}".encode()
    found = _moved(marks, names, offsets, position, now_ms)
    if len(found.writers) > max(most_writers, len(marks.writers)):
        more = f"the table would have {len(found.writers)} writers, it has room for {most_writers} (max-writers)"
        raise NotPossible(more, hint="Forget writers that will not come back, or raise max-writers.")
    return Rehash(found, len(before), moved)


def _may_be_slot(known: WriterMarks) -> bool:
    """Not a writer of another source: its position counts."""
    return bool(known.offsets) or known.position is None or _OF_SLOT.fullmatch(known.position) is not None


def _check_folder(folder: Folder, source: str) -> None:
    for place, listed in ((PENDING, folder.pending()), (REJECTED, folder.rejected())):
        for name in [item.name for item in listed if is_slot(source, item.name.writer)]:
            if place == REJECTED and folder.reason(name).get("error") == "PositionTaken":
                continue  # the run that was not rejected has its rows
            hint = "Stop all instances and let their txlogs drain; replay what is rejected, or delete it there."
            raise NotPossible(f"nothing is moved: {place}{name} is there", hint=hint)


def _moved(marks: Marks, names: Sequence[str], offsets: Mapping[str, Offsets], position: bytes, now_ms: int) -> Marks:
    """
    Each slot with offsets gets the mark of the newest run of all: on a keyed table its next run comes behind that one.
    """
    left = marks.forgotten(names, now_ms)
    runs = {key: mark for writer in names for key, mark in left.writer(writer).incarnations.items()}
    newest = {key: runs[key] for key in [max(runs)]} if runs else {}
    writers = dict(left.writers)
    for slot, reached in offsets.items():
        incarnations = newest | {**left.writer(slot).incarnations}
        writers[slot] = WriterMarks(position, incarnations, 0 if incarnations else now_ms, reached)
    return replace(left, writers=writers)


def claim_letters(folder: Folder, source: str, now_ms: int, random: bytes) -> None:
    """
    To be called behind the commit, and where there was nothing to move: a crash in between leaves verdicts to runs from
    before. `random`: 10 bytes. Raises NotPossible, StorageUnavailable.
    """
    claim(folder.store, source, f"rehash.{new_incarnation(now_ms, random)}")
