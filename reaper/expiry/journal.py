"""
The journal: what a step is about to expire and delete, durable before the commit, gone after the last file.

It only permits deletions: without it files are left as orphans, and none that is needed is lost.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.errors import AlreadyExists, Halt, Missing, Retry, Unfit
from bookkeeper.stores.store import Store
from reaper.files.expired import Files

KEY = "reaper/journal.json"
VERSION = 1
#: of more than three million files to delete in one step
MOST_BYTES = 2**29


class JournalUnreadable(Halt):
    """The reaper's journal cannot be read."""

    hint = "Upgrade the reaper if a newer one wrote it; else delete it: its files are left as orphans."


@dataclass(frozen=True, slots=True)
class Journal:
    """One step: the table that it was planned on, the snapshots to expire, the files that go with them."""

    table_uuid: str
    planned_at: str
    sequence_number: int
    refs: Mapping[str, int]
    known: tuple[int, ...]
    expire: tuple[int, ...]
    files: Files
    #: its bytes in the folder, once they are known: to compare them takes a hundredth of reading them
    written: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, metadata: TableMetadata, now: datetime, expire: tuple[int, ...], files: Files) -> "Journal":
        """A step on the table as it is in this metadata."""
        return cls(
            table_uuid=str(metadata.table_uuid),
            planned_at=now.isoformat(),
            sequence_number=last_sequence(metadata),
            refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
            known=tuple(snapshot.snapshot_id for snapshot in metadata.snapshots),
            expire=expire,
            files=files,
        )

    def remaining(self, metadata: TableMetadata) -> set[int]:
        """The snapshots to expire that are still in the table."""
        return {snapshot.snapshot_id for snapshot in metadata.snapshots} & set(self.expire)


def last_sequence(metadata: TableMetadata) -> int:
    """
    The last sequence number that was given to a snapshot.
    """
    return getattr(metadata, "last_sequence_number", 0) or 0


def dumps(journal: Journal) -> bytes:
    """
    The bytes of journal.json.
    """
    data = {
        "version": VERSION,
        "table-uuid": journal.table_uuid,
        "planned-at": journal.planned_at,
        "sequence-number": journal.sequence_number,
        "refs": dict(journal.refs),
        "known": list(journal.known),
        "expire": list(journal.expire),
        "files": {kind: dict(sizes) for kind, sizes in journal.files.kinds()},
    }
    return json.dumps(data).encode() + b"\n"


def loads(data: bytes) -> Journal:
    """
    The journal in `data`; raises JournalUnreadable.
    """
    try:
        raw = json.loads(data)
        if raw["version"] != VERSION:
            raise JournalUnreadable(f"{KEY} has version {raw['version']}, this reaper knows {VERSION}")
        return Journal(
            table_uuid=raw["table-uuid"],
            planned_at=raw["planned-at"],
            sequence_number=raw["sequence-number"],
            refs=raw["refs"],
            known=tuple(raw["known"]),
            expire=tuple(raw["expire"]),
            files=Files(**raw["files"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise JournalUnreadable(f"{KEY} is not readable: {exc!r}") from exc


def read(store: Store) -> Journal | None:
    """
    The journal that an earlier run left behind, or None; raises StorageUnavailable, JournalUnreadable.
    """
    data = _read(store)
    return None if data is None else replace(loads(data), written=data)


def _read(store: Store) -> bytes | None:
    try:
        return store.read(KEY, MOST_BYTES)
    except Missing:
        return None
    except Unfit as exc:
        raise JournalUnreadable(f"{KEY} is not read: {exc}") from exc


def write(store: Store, journal: Journal) -> Journal:
    """
    Makes the journal durable, and returns it with its bytes; raises Retry when another reaper's is there.
    """
    data = dumps(journal)
    try:
        store.create(KEY, data)
    except AlreadyExists as exc:
        hint = "Is a second reaper running for this table?"
        raise Retry(f"{store.url}/{KEY} is there already", hint=hint) from exc
    return replace(journal, written=data)


def drop(store: Store, journal: Journal) -> None:
    """
    Removes this journal; another reaper's stays.
    """
    data = _read(store)
    if data is not None and (data == journal.written or loads(data) == journal):
        store.delete_many([KEY])
