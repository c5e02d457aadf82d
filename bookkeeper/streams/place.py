"""
The place of a consumer: which rows of the table it has read.

A place counts files in the order in which `added_files` gives them: the manifests of a snapshot by path, the entries of
each as they stand. A snapshot, its manifests and its files never change, so neither does the order.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.core.history import is_first, walk
from bookkeeper.errors import PlaceExpired, PlaceRefused, RolledBack
from bookkeeper.streams.main_history import MainHistory

#: with ancestors; a place without any has version 1
VERSION = 2
#: a place takes about 200 bytes, and 20 for each ancestor
PLACE_BYTES = 4096
#: the year 9999, the last that a message can show
LATEST_MS = 253_402_300_799_000
_KEYS = {"version", "table", "snapshot", "files", "rows", "whole", "at"}
_KEYS_OF = {1: _KEYS, VERSION: _KEYS | {"ancestors"}}


@dataclass(frozen=True, slots=True)
class Place:
    """
    `files` files of `snapshot` are read (None: all), `rows` rows of the next one, and everything before the snapshot.

    Snapshot None: nothing was read of a table that had no snapshot yet. `whole`: the files are counted among all that
    were in the table then, not only among those that the snapshot added. `at` is when the snapshot was committed, in ms
    since 1970, for messages. `table` is the table's uuid. `ancestors` are snapshots of main before this one, newest
    first (`MainHistory.ancestors`): after a rollback they tell how far main was read, even if `snapshot` is expired.
    """

    table: str
    snapshot: int | None = None
    files: int | None = None
    rows: int = 0
    whole: bool = False
    at: int = 0
    ancestors: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The place as it is stored; two equal places have the same text."""
        data: dict[str, object] = {
            "version": VERSION if self.ancestors else 1,
            "table": self.table,
            "snapshot": self.snapshot,
            "files": self.files,
            "rows": self.rows,
            "whole": self.whole,
            "at": self.at,
        }
        if self.ancestors:
            data["ancestors"] = self.ancestors
        return json.dumps(data, separators=(",", ":"))

    @property
    def brief(self) -> str:
        """The place for messages."""
        return str(replace(self, ancestors=()))

    @property
    def passed(self) -> tuple[int, ...]:
        """The snapshots that it knows to be read, newest first."""
        return self.ancestors if self.snapshot is None or self.files is not None else (self.snapshot, *self.ancestors)

    @property
    def when(self) -> str:
        """When its snapshot was committed, for messages."""
        return from_epoch_ms(self.at).isoformat(timespec="seconds")


def parse(text: object, table: str, where: str) -> Place:
    """
    The place in `text`, which `where` holds; raises PlaceRefused, whatever it is, unless it is one of this `table`.
    """
    raw = _decoded(text, where)
    if type(raw.get("version")) is int and raw["version"] > VERSION:
        raise PlaceRefused(
            f"{where} holds a place of version {raw['version']}, this one knows {VERSION}",
            hint="Upgrade this program: a newer one has read further.",
        )
    version = raw.get("version")
    if type(version) is not int or set(raw) != _KEYS_OF.get(version) or not _is_sound(raw):
        raise PlaceRefused(f"{where} holds no place: {str(text)[:200]!r}")
    if raw["table"] != table:
        raise PlaceRefused(
            f"{where} holds a place in the table {raw['table']}, this one is {table}",
            hint="Was the table created anew? Then take another name, or a new output.",
        )
    return Place(**{key: raw[key] for key in _KEYS - {"version"}}, ancestors=tuple(raw.get("ancestors", ())))


def _decoded(text: object, where: str) -> dict[str, Any]:
    if isinstance(text, str) and len(text) <= PLACE_BYTES:
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raw = None
        if isinstance(raw, dict):
            return raw
    raise PlaceRefused(f"{where} holds no place: {str(text)[:200]!r}")


def _is_sound(raw: dict[str, Any]) -> bool:
    def is_count(value: object) -> bool:
        return type(value) is int and 0 <= value < 2**63

    def counts(key: str) -> bool:
        return is_count(raw[key])

    ancestors = raw.get("ancestors", [])
    within = raw["files"] is None or counts("files")
    return (
        isinstance(raw["table"], str)
        and (raw["snapshot"] is None or counts("snapshot"))
        and within
        and all(counts(key) for key in ("rows", "at"))
        and raw["at"] < LATEST_MS
        and type(raw["whole"]) is bool
        # Rows are those of the next file, and there is none after all of them; nothing is read before any snapshot.
        and not (raw["files"] is None and (raw["rows"] or raw["whole"]))
        and not (raw["snapshot"] is None and (raw["files"] is not None or ancestors))
        and isinstance(ancestors, list)
        and bool(ancestors) == (raw["version"] > 1)
        and all(map(is_count, ancestors))
    )


def ahead(history: MainHistory, place: Place) -> Sequence[Snapshot]:
    """
    The snapshots of main after the place, oldest first, the one that is read in part included.

    Raises PlaceExpired, RolledBack.
    """
    if place.snapshot in history.index:
        return history.snapshots[history.index[place.snapshot] + (place.files is None) :]
    if place.snapshot in history.by_id or _in_common(history, place) is not None:
        raise RolledBack(
            f"the place is snapshot {place.snapshot} of {place.when}, which is not on main: the table was rolled back"
        )
    if not history.snapshots:
        if place.snapshot is None:
            return []
        raise RolledBack(f"the place is snapshot {place.snapshot} of {place.when}, and main has no snapshot")
    first = history.snapshots[0]
    # The snapshot of the place may itself have expired, as long as no later one has.
    complete = is_first(first) if place.snapshot is None else first.parent_snapshot_id == place.snapshot
    if complete and place.files is None:
        return history.snapshots
    since = "the table's beginning" if place.snapshot is None else f"snapshot {place.snapshot} of {place.when}"
    oldest = from_epoch_ms(first.timestamp_ms).isoformat(timespec="seconds")
    raise PlaceExpired(
        f"the place is {since}, and the oldest snapshot that is kept is {first.snapshot_id} of {oldest}: what was "
        "committed in between is expired, and its rows are lost to this consumer"
    )


def after_lost(metadata: TableMetadata, place: Place) -> Place:
    """
    The first place after `place` from which a consumer can go on: `place` itself when nothing is lost.

    After a rollback it is the end of the newest snapshot that `place` and main are known to have in common.
    """
    history, table = MainHistory(metadata), str(metadata.table_uuid)
    try:
        ahead(history, place)
    except PlaceExpired:
        return oldest(history, table)
    except RolledBack:
        snapshot = _in_common(history, place)
        if snapshot is None:
            return oldest(history, table)
        ids = place.ancestors
        older = ids[ids.index(snapshot.snapshot_id) + 1 :] if snapshot.snapshot_id in ids else ()
        ancestors = history.ancestors(snapshot.snapshot_id, older)
        return Place(table, snapshot.snapshot_id, at=snapshot.timestamp_ms, ancestors=ancestors)
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


def oldest(history: MainHistory, table: str) -> Place:
    """
    Before the files that the oldest kept snapshot added.
    """
    if not history.snapshots:
        return Place(table)
    first = history.snapshots[0]
    return Place(table, first.snapshot_id, 0, at=first.timestamp_ms)
