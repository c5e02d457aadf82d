"""
One commit as Iceberg's REST API has it: the updates of one `commit_table` call, and the requirements that guard it.

Append, delete and replace are separate snapshots in that call, each the child of the one before. They are never one
`overwrite` snapshot, because Spark's streams stop at one.
"""

from collections.abc import Sequence
from secrets import randbits

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.marks import Marks
from bookkeeper.history.main_history import MAIN
from bookkeeper.ledger.view import View


def new_snapshot_id(taken: Sequence[int] = ()) -> int:
    """
    A random snapshot id that is not among `taken`, the other ids of this commit.

    The catalog refuses an id that the table has already, which happens once in 10^14 commits.
    """
    while (number := randbits(63)) in (0, *taken):
        pass
    return number


def commit_guards(view: View) -> tuple[AssertTableUUID, AssertRefSnapshotId]:
    """
    The requirements of a commit: the table has the uuid that was loaded, and `main` is still at the snapshot that
    was loaded with the marks (null for an empty table).
    """
    head = view.head.snapshot_id if view.head else None
    return (AssertTableUUID(uuid=view.metadata.table_uuid), AssertRefSnapshotId(ref=MAIN, snapshot_id=head))


def updates(view: View, snapshots: Sequence[Snapshot], marks: Marks) -> tuple[TableUpdate, ...]:
    """
    The updates of a commit: add the snapshots, move `main` to the last, set the marks. `main` keeps its settings.
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
    set_marks = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_json.dumps(marks)})
    return (*(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots), move, set_marks)
