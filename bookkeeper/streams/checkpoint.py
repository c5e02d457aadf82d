"""
A Spark checkpoint, as far as it says which snapshots of a table its query still needs.

`offsets/N` is the plan of batch N, `commits/N` says that it is done, `sources/I/offsets/0` where source I began.
Spark writes them one by one and removes old ones, so any may be missing or half written at any moment.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bookkeeper.errors import Hold, Missing
from bookkeeper.stores.store import Listed
from bookkeeper.streams.checkpoint_store import CheckpointStore

VOID = "-"
#: what Iceberg writes as the first offset of a query that started on an empty table
BEGINNING = {"version": 1, "snapshot_id": -1, "position": -1, "scan_all_files": False}


class CheckpointUnreadable(Hold):
    """The checkpoint does not say where its query is."""

    hint = "Look at the folder; if the query is gone for good: bookkeeper consumers remove NAME."


@dataclass(frozen=True, slots=True)
class Offset:
    """
    `position` files of `snapshot` are read, in the order of its manifest list; snapshot None is the very beginning.
    """

    snapshot: int | None
    position: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    Where a query is: its newest committed and planned offsets and its first one, None where there is none.

    `batch` is the newest committed batch, `at` when it was committed by the storage's clock.
    """

    committed: Offset | None = None
    planned: Offset | None = None
    initial: Offset | None = None
    batch: int | None = None
    at: datetime | None = None

    @property
    def needed(self) -> tuple[Offset, ...]:
        """
        The offsets that the query's next start goes on from; none when it is not known where it will begin.
        """
        # Without a committed batch the first one is planned again, from the initial offset.
        start = self.committed or self.initial
        return (start, *((self.planned,) if self.planned else ())) if start else ()


def read(place: CheckpointStore, source: int | None = None) -> Checkpoint:
    """
    The checkpoint at `place`, for the query's source with this index (None: its only one).

    Raises StorageUnavailable, or CheckpointUnreadable when a committed batch has no readable offset.
    """
    # commits/ before offsets/: a batch is planned before it is committed, so what is committed is planned.
    done = max(_batches(place, "commits"), key=_number, default=None)
    planned = max(_batches(place, "offsets"), key=_number, default=None)
    batch = _number(done) if done else None
    committed = None if batch is None else _offset(place, batch, source)
    return Checkpoint(
        committed=committed,
        planned=_planned(place, planned, batch, source),
        initial=_initial(place, source, needed=committed is None),
        batch=batch,
        at=done.modified if done else None,
    )


def _batches(place: CheckpointStore, folder: str) -> Iterator[Listed]:
    # Also .N.crc, .N.<uuid>.tmp, N.compact: only plain numbers are batches.
    return (item for item in place.list(f"{folder}/") if item.key.removeprefix(f"{folder}/").isdecimal())


def _number(item: Listed) -> int:
    return int(item.key.rpartition("/")[2])


def _planned(place: CheckpointStore, newest: Listed | None, done: int | None, source: int | None) -> Offset | None:
    if newest is None or _number(newest) == done:
        return None
    try:
        return _offset(place, _number(newest), source)
    except CheckpointUnreadable:
        # Half written, or purged while we looked: Spark plans it again from the committed one, which we have.
        if done is None:
            raise
        return None


def _offset(place: CheckpointStore, batch: int, source: int | None) -> Offset | None:
    where = f"{place.url}/offsets/{batch}"
    try:
        text = place.read(f"offsets/{batch}").decode()
    except Missing as exc:
        raise CheckpointUnreadable(f"{where} is not there, though the batch is known") from exc
    except UnicodeDecodeError as exc:
        raise CheckpointUnreadable(f"{where} is not text") from exc
    chosen = _chosen(text.splitlines(), source, where)
    return None if chosen == VOID else parse_offset(chosen, where)


def _chosen(lines: Sequence[str], source: int | None, where: str) -> str:
    if len(lines) < 3 or lines[0] not in ("v1", "v2"):
        raise CheckpointUnreadable(f"{where} is not a complete offset log of version 1 or 2")
    # Version 2 names its sources, version 1 counts them.
    named = [line.partition(":")[::2] if lines[0] == "v2" else (str(index), line) for index, line in _sources(lines)]
    offsets = dict(named)
    if source is None and len(offsets) > 1:
        raise CheckpointUnreadable(
            f"the query of {where} has {len(offsets)} sources",
            hint="Register it with the index of the one that reads this table: --source N.",
        )
    key = next(iter(offsets)) if source is None else str(source)
    if key not in offsets:
        raise CheckpointUnreadable(f"{where} has no source {source}")
    return offsets[key]


def _sources(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    return enumerate(lines[2:])


def _initial(place: CheckpointStore, source: int | None, needed: bool) -> Offset | None:
    key = initial_key(source)
    try:
        return parse_offset(place.read(key).decode(errors="replace"), f"{place.url}/{key}")
    except Missing:
        return None
    except CheckpointUnreadable:
        if needed:
            raise
        return None


def initial_key(source: int | None) -> str:
    """
    Where a query keeps the first offset of a source.
    """
    return f"sources/{source or 0}/offsets/0"


def parse_offset(text: str, where: str) -> Offset:
    """
    The offset in Iceberg's JSON; raises CheckpointUnreadable.
    """
    try:
        raw = json.loads(text)
        if raw["version"] != 1:
            raise CheckpointUnreadable(f"{where} has an offset of version {raw['version']}, 1 is known")
        snapshot, position = _whole(raw["snapshot_id"]), _whole(raw["position"])
        return Offset(None if snapshot == -1 else snapshot, max(position, 0), raw.get("scan_all_files") is True)
    except (ValueError, KeyError, TypeError) as exc:
        raise CheckpointUnreadable(f"{where} holds no offset of an Iceberg source") from exc


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is not a whole number")
    return value
