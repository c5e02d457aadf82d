"""
Puts back a branch or tag that was made while its snapshot expired: no commit can be guarded against a new ref.
"""

import secrets

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from bookkeeper.catalogs.commit import commit
from bookkeeper.errors import CommitConflict
from reaper.context import ReaperContext
from reaper.expiry.expire import MOST_ATTEMPTS, guards
from reaper.expiry.journal import last_sequence

LostRefs = tuple[tuple[str, SnapshotRef, Snapshot], ...]


def restore_refs(context: ReaperContext, table: Table, lost: LostRefs) -> None:
    """
    Makes the refs name their snapshots again, under the same ids; raises CommitConflict, CommitUnknown.
    """
    for _ in range(MOST_ATTEMPTS):
        missing = [item for item in lost if item[0] not in table.metadata.refs]
        if not missing:
            return
        absent = tuple(AssertRefSnapshotId(ref=name, snapshot_id=None) for name, _, _ in missing)
        try:
            commit(table, (*guards(table.metadata), *absent), _updates(table.metadata, tuple(missing)))
            return
        except CommitConflict:
            table = context.load()
    raise CommitConflict(
        f"{MOST_ATTEMPTS} attempts to restore a ref all met another commit", hint="The next run goes on."
    )


def _updates(metadata: TableMetadata, lost: LostRefs) -> tuple[TableUpdate, ...]:
    there = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    old = {item.snapshot_id: item for _, _, item in lost if item.snapshot_id not in there}
    # Its ancestors have expired, and only a snapshot without a parent may have an old sequence number.
    restored = [item.model_copy(update={"parent_snapshot_id": None}) for item in old.values()]
    return (
        *(AddSnapshotUpdate(snapshot=item) for item in restored),
        *(_set(name, ref) for name, ref, _ in lost),
        *(_forward(metadata, restored[0]) if restored else ()),
    )


def _forward(metadata: TableMetadata, like: Snapshot) -> tuple[TableUpdate, ...]:
    # An added snapshot sets the table's last sequence number and time, so an old one sets them back. One more
    # that comes and goes within the same commit moves them forward again.
    passing = like.model_copy(
        update={
            "snapshot_id": secrets.randbits(62) | 1,
            "sequence_number": last_sequence(metadata) + 1,
            "timestamp_ms": metadata.last_updated_ms,
        }
    )
    return AddSnapshotUpdate(snapshot=passing), RemoveSnapshotsUpdate(snapshot_ids=[passing.snapshot_id])


def _set(name: str, ref: SnapshotRef) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=ref.snapshot_ref_type.value,
        snapshot_id=ref.snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
    )
