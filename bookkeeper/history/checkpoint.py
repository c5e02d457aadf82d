"""
Reads from a Spark checkpoint which snapshots of a table its query still needs.

`offsets/N` is the plan of batch N, `commits/N` says that it is done, `sources/I/offsets/0` has the first offset of
source I. Spark writes them one by one and removes old ones, so any may be missing or half written at any moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bookkeeper.errors import Hold, Missing
from bookkeeper.format import json_text
from bookkeeper.history.checkpoint_store import CheckpointReading
from bookkeeper.stores.store import Listed

VOID = "-"
#: what Iceberg writes as the first offset of a query that started on an empty table
BEGINNING = {"version": 1, "snapshot_id": -1, "position": -1, "scan_all_files": False}


class CheckpointUnreadable(Hold):
    """The checkpoint has no readable offset of its query."""

    hint = "Check the folder. If the query will not run again: bookkeeper consumers remove NAME."


@dataclass(frozen=True, slots=True)
class Offset:
    """
    `position` files of `snapshot` are read, in the order of its manifest list; snapshot None is before the first one.

    With `whole` they are counted among all files of the table then, not only among those that the snapshot added.
    """

    snapshot: int | None
    position: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    A query's newest committed and planned offsets and its first one, None where there is none.

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
        The offsets from which the query's next start goes on; none when they are unknown.
        """
        # Without a committed batch the first one is planned again, from the initial offset.
        start = self.committed or self.initial
        return (start, *((self.planned,) if self.planned else ())) if start else ()


def read(store: CheckpointReading, source: int | None = None) -> Checkpoint:
    """
    The checkpoint in `store`, for the query's source with this index (None: its only one).

    Raises StorageUnavailable, or CheckpointUnreadable when a committed batch has no readable offset.
    """
    # commits/ before offsets/: a batch is planned before it is committed, so a committed one has its offsets.
    done = max(_batches(store, "commits"), key=_number, default=None)
    planned = max(_batches(store, "offsets"), key=_number, default=None)
    batch = _number(done) if done else None
    committed = None if batch is None else _offset(store, batch, source)
    return Checkpoint(
        committed=committed,
        planned=_planned(store, planned, batch, source),
        initial=_initial(store, source, needed=committed is None),
        batch=batch,
        at=done.modified if done else None,
    )


def has_begun(store: CheckpointReading) -> bool:
    """
    Whether the query has planned a batch; raises StorageUnavailable.
    """
    # Spark makes both folders, and the first offsets of the sources, before it plans anything.
    return any(next(_batches(store, folder), None) is not None for folder in ("commits", "offsets"))


def _batches(store: CheckpointReading, folder: str) -> Iterator[Listed]:
    # There are also .N.crc, .N.<uuid>.tmp and N.compact: only plain numbers are batches.
    return (item for item in store.list(f"{folder}/") if item.key.removeprefix(f"{folder}/").isdecimal())


def _number(item: Listed) -> int:
    return int(item.key.rpartition("/")[2])


def _planned(store: CheckpointReading, newest: Listed | None, done: int | None, source: int | None) -> Offset | None:
    if newest is None or _number(newest) == done:
        return None
    try:
        return _offset(store, _number(newest), source)
    except CheckpointUnreadable:
        # Half written, or purged meanwhile: Spark plans it again from the committed one, which was read.
        if done is None:
            raise
        return None


def _offset(store: CheckpointReading, batch: int, source: int | None) -> Offset | None:
    where = f"{store.url}/offsets/{batch}"
    try:
        lines = store.read(f"offsets/{batch}").decode().splitlines()
    except Missing as exc:
        raise CheckpointUnreadable(f"{where} is not there, though the batch is known") from exc
    except UnicodeDecodeError as exc:
        raise CheckpointUnreadable(f"{where} is not text") from exc
    if len(lines) < 3 or lines[0] not in ("v1", "v2"):
        raise CheckpointUnreadable(f"{where} is not a complete offset log of version 1 or 2")
    # Version 2 names its sources, version 1 counts them.
    if lines[0] == "v2":
        offsets = {name: text for name, _, text in (line.partition(":") for line in lines[2:])}
    else:
        offsets = {str(index): text for index, text in enumerate(lines[2:])}
    if source is None and len(offsets) > 1:
        raise CheckpointUnreadable(
            f"the query of {where} has {len(offsets)} sources",
            hint="Register it with the index of the one that reads this table: --source N.",
        )
    key = next(iter(offsets)) if source is None else str(source)
    if key not in offsets:
        raise CheckpointUnreadable(f"{where} has no source {source}")
    return None if offsets[key] == VOID else parse_offset(offsets[key], where)


def _initial(store: CheckpointReading, source: int | None, needed: bool) -> Offset | None:
    key = initial_key(source)
    try:
        return parse_offset(store.read(key).decode(errors="replace"), f"{store.url}/{key}")
    except Missing:
        return None
    except CheckpointUnreadable:
        if needed:
            raise
        return None


def initial_key(source: int | None) -> str:
    """
    The key under which a query keeps the first offset of a source.
    """
    return f"sources/{source or 0}/offsets/0"


def parse_offset(text: str, where: str) -> Offset:
    """
    An offset in Iceberg's JSON; raises CheckpointUnreadable.
    """
    try:
        raw = json_text.loads(text)
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
