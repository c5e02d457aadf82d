"""
What a consumer has to read: the snapshots after its place, and the files of each with the places around them.

Nothing here reads anything: the history comes with the table, the files of a snapshot from `snapshot_files`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyiceberg.table.snapshots import Snapshot

from bookkeeper.consumers.place import Place
from bookkeeper.consumers.place_on_main import ahead
from bookkeeper.consumers.snapshot_files import TableFile
from bookkeeper.errors import Overwritten, PlaceRefused
from bookkeeper.history.main_history import MainHistory, is_append, is_overwrite


class Work(NamedTuple):
    """A snapshot to read, from the place `start` within it to `end`; `whole`: all files that were in the table then."""

    snapshot: Snapshot
    start: Place
    end: Place

    @property
    def whole(self) -> bool:
        """Whether its files are all that were in the table then."""
        return self.start.whole


class Unread(NamedTuple):
    """A file after the place (None: nothing to read), and the places before and after what is unread of it."""

    file: TableFile | None
    start: Place
    end: Place


def refused(snapshot: Snapshot) -> None:
    """
    Raises Overwritten.
    """
    raise Overwritten(f"snapshot {snapshot.snapshot_id} is an overwrite")


def work(history: MainHistory, place: Place, overwritten: Callable[[Snapshot], object] = refused) -> Iterator[Work]:
    """
    The snapshots that are read after `place`, oldest first; `overwritten` is called with each overwrite between them.

    Raises PlaceExpired, RolledBack, and what `overwritten` raises, after what comes before the overwrite.
    """
    for snapshot in ahead(history, place):
        within = place if place.snapshot == snapshot.snapshot_id else None
        whole = within is not None and within.whole
        if whole or is_append(snapshot):
            ancestors = history.ancestors(snapshot.snapshot_id, place.passed)
            end = Place(place.table, snapshot.snapshot_id, at=snapshot.timestamp_ms, ancestors=ancestors)
            files, rows = (within.files or 0, within.rows) if within else (0, 0)
            yield Work(snapshot, replace(end, files=files, rows=rows, whole=whole), end)
        elif is_overwrite(snapshot):
            overwritten(snapshot)


def unread(item: Work, files: Sequence[TableFile], is_ours: Callable[[TableFile], bool]) -> Iterator[Unread]:
    """
    The `files` of a snapshot after its place; what is not `is_ours` only moves the place. Raises PlaceRefused.
    """
    _, start, end = item
    read, rows = start.files or 0, start.rows
    if read > len(files) or (rows and (read == len(files) or rows >= files[read].record_count)):
        raise PlaceRefused(f"the place {start.brief} is past the {len(files)} files of its snapshot")
    for number in range(read, len(files)):
        here = start if number == read else replace(start, files=number, rows=0)
        after = end if number + 1 == len(files) else replace(start, files=number + 1, rows=0)
        yield Unread(files[number] if is_ours(files[number]) else None, here, after)
    if read == len(files):
        yield Unread(None, start, end)
