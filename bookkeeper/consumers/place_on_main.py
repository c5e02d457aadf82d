"""
Where a place stands on main: where a reader may begin, what it has still to read, and where it goes on after a loss.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain

from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.consumers.place import Place
from bookkeeper.errors import PlaceExpired, RolledBack
from bookkeeper.history.main_history import MainHistory, is_append, is_delete, walk

_BEGIN_ELSE = 'Begin at "beginning", which is all that the table holds, or at a later time.'


def beginning(history: MainHistory) -> Place:
    """
    The place before all rows that the oldest kept snapshot holds.
    """
    if not history.snapshots:
        return Place(history.table)
    first = history.snapshots[0]
    # Nothing was there before the table's first one; what another operation put there, a stream would pass over.
    return _at(history, first, 0, whole=not (history.is_whole and (is_append(first) or is_delete(first))))


def oldest(history: MainHistory) -> Place:
    """
    The place before the rows that the oldest kept snapshot added.
    """
    return _at(history, history.snapshots[0], 0) if history.snapshots else Place(history.table)


def end(history: MainHistory) -> Place:
    """
    The place after all rows of the table.
    """
    return _at(history, history.snapshots[-1]) if history.snapshots else Place(history.table)


def since(history: MainHistory, moment: datetime) -> Place:
    """
    Before the first commit at or after `moment`; raises PlaceExpired when that may be expired.
    """
    index = history.first_since(moment)
    if index is None:
        oldest_kept = _when(history.snapshots[0])
        why = f"snapshots before {oldest_kept} are expired: what came since {moment} is unknown"
        raise PlaceExpired(why, hint=_BEGIN_ELSE)
    return oldest(history) if index == 0 else _at(history, history.snapshots[index - 1])


def _at(
    history: MainHistory, snapshot: Snapshot, files: int | None = None, whole: bool = False, known: Iterable[int] = ()
) -> Place:
    """The place in this snapshot of main, before its first file (0) or after all of them (None)."""
    ancestors = history.ancestors(snapshot.snapshot_id, known)
    return Place(history.table, snapshot.snapshot_id, files, whole=whole, at=snapshot.timestamp_ms, ancestors=ancestors)


def _when(snapshot: Snapshot) -> str:
    return from_epoch_ms(snapshot.timestamp_ms).isoformat(timespec="seconds")


def ahead(history: MainHistory, place: Place) -> Sequence[Snapshot]:
    """
    The snapshots of main after the place, oldest first, the one that is read in part included.

    Raises PlaceExpired, RolledBack.
    """
    if place.snapshot in history.index:
        return history.snapshots[history.index[place.snapshot] + (place.files is None) :]
    if place.snapshot in history.by_id or _in_common(history, place) is not None:
        raise RolledBack(f"the place is {place.named}, which is not on main: the table was rolled back")
    if not history.snapshots:
        if place.snapshot is None:
            return []
        raise RolledBack(f"the place is {place.named}, and main has no snapshot")
    first = history.snapshots[0]
    # The snapshot of the place may itself have expired, as long as no later one has.
    if history.begins_behind(place.snapshot) and place.files is None:
        return history.snapshots
    raise PlaceExpired(
        f"the place is {place.named}, and the oldest snapshot that is kept is {first.snapshot_id} of {_when(first)}: "
        "what was committed in between is expired, and its rows are lost to this consumer"
    )


def after_lost(history: MainHistory, place: Place) -> Place:
    """
    The first place after `place` from which a consumer can go on: `place` itself when nothing is lost.

    After a rollback it is the end of the newest snapshot that `place` and main are known to have in common.
    """
    try:
        ahead(history, place)
    except PlaceExpired:
        return oldest(history)
    except RolledBack:
        snapshot = _in_common(history, place)
        if snapshot is None:
            return oldest(history)
        ids = place.ancestors
        older = ids[ids.index(snapshot.snapshot_id) + 1 :] if snapshot.snapshot_id in ids else ()
        return _at(history, snapshot, known=older)
    return place


def _in_common(history: MainHistory, place: Place) -> Snapshot | None:
    """
    The newest snapshot of main that is known to be an ancestor of the place's, which is not on main.

    By ids: numbers begin again when a catalog is restored, and clocks differ. The kept parents of the place's snapshot
    may lead to main; where they are expired, the ancestors in the place do. Main's kept snapshots are a chain: with an
    ancestor of the place on it, and not the place, main cannot descend from the place.
    """
    kept = (item.snapshot_id for item in walk(history.by_id, place.snapshot))
    indexes = (history.index[item] for item in chain(kept, place.ancestors) if item in history.index)
    newest = max(indexes, default=None)
    return None if newest is None else history.snapshots[newest]
