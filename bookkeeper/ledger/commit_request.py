"""
The snapshots and guards of one commit: what one `commit_table` call adds, and what guards it.

Append, delete and replace are snapshots of their own in one call, each the child of the one before; never one
`overwrite` snapshot, which stops streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from secrets import randbits

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from bookkeeper.core import marks as marks_format
from bookkeeper.core.marks import Marks
from bookkeeper.ledger.view import MAIN, View


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to commit: its time, and a tag that makes its files' names unique."""

    started: datetime
    timestamp_ms: int
    tag: str


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """One snapshot of a commit: what it does, the manifests it lists, and its part of the summary."""

    id: int
    operation: Operation
    manifests: Sequence[ManifestFile]
    counts: Mapping[str, str]


def new_snapshot_id(taken: Sequence[int] = ()) -> int:
    """
    A snapshot id that is not `taken` in this commit; one that the table has (once in 10^14 commits) is refused there.
    """
    while (number := randbits(63)) in (0, *taken):
        pass
    return number


def guards(view: View) -> tuple[AssertTableUUID, AssertRefSnapshotId]:
    """
    The same table, and `main` still the snapshot whose marks were read (none for an empty table).
    """
    head = view.head.snapshot_id if view.head else None
    return (AssertTableUUID(uuid=view.metadata.table_uuid), AssertRefSnapshotId(ref=MAIN, snapshot_id=head))


def updates(view: View, snapshots: Sequence[Snapshot], marks: Marks) -> tuple[TableUpdate, ...]:
    """
    Adds the snapshots, moves `main` to the last, sets the marks; keeps the retention settings of `main`.
    """
    ref = view.metadata.refs.get(MAIN)
    move = SetSnapshotRefUpdate(
        ref_name=MAIN,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshots[-1].snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
    )
    set_marks = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_format.dumps(marks)})
    return (*(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots), move, set_marks)
