"""Updates applied our way: what pyiceberg makes of them, and what it refuses."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)

from bookkeeper.catalogs.metadata_json import apply_updates
from tests.support.lake import Lake, Writes


@pytest.fixture
def base(tmp_path: Path) -> TableMetadata:
    """A table of three snapshots."""
    lake = Lake(tmp_path)
    book, writer = lake.book(), Writes(lake)
    for key in "abc":
        writer.publish(key)
        lake.tick(book)
    found: TableMetadata = lake.table().metadata
    return found


WHAT = ("one snapshot", "two snapshots", "one beside main", "a rollback", "back after an append", "expiry")


def child(parent: Snapshot, number: int) -> Snapshot:
    own = {"snapshot_id": number, "parent_snapshot_id": parent.snapshot_id}
    later = {"sequence_number": parent.sequence_number + 1, "timestamp_ms": parent.timestamp_ms + 1000}
    return parent.model_copy(update={**own, **later})


def main_is(snapshot: Snapshot) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id)


def changes(base: TableMetadata) -> dict[str, Sequence[TableUpdate]]:
    first = child(base.snapshots[-1], 4711)
    second = child(first, 4712)
    properties = (SetPropertiesUpdate(updates={"a": "b"}), RemovePropertiesUpdate(removals=["a"]))
    return {
        "one snapshot": (AddSnapshotUpdate(snapshot=first), main_is(first), *properties),
        "two snapshots": (AddSnapshotUpdate(snapshot=first), AddSnapshotUpdate(snapshot=second), main_is(second)),
        "one beside main": (AddSnapshotUpdate(snapshot=first),),
        "a rollback": (main_is(base.snapshots[0]), *properties),
        "back after an append": (AddSnapshotUpdate(snapshot=first), main_is(base.snapshots[0])),
        "expiry": (RemoveSnapshotsUpdate(snapshot_ids=[base.snapshots[0].snapshot_id]),),
    }


@pytest.mark.parametrize("what", WHAT)
def test_they_give_what_pyiceberg_makes_of_them(base: TableMetadata, what: str) -> None:
    updates = tuple(changes(base)[what])
    ours = apply_updates(base, updates, "file:///before.metadata.json")
    theirs = update_table_metadata(base, updates, metadata_location="file:///before.metadata.json")
    assert _untimed(ours) == _untimed(theirs)


def _untimed(metadata: TableMetadata) -> tuple[TableMetadata, list[int]]:
    """Without the times that a rollback takes from the clock."""
    line = [entry.snapshot_id for entry in metadata.snapshot_log]
    return metadata.model_copy(update={"last_updated_ms": 0, "snapshot_log": []}), line


def test_a_snapshot_that_is_there_already_is_refused(base: TableMetadata) -> None:
    again = child(base.snapshots[-1], base.snapshots[0].snapshot_id)
    with pytest.raises(ValueError, match="already exists"):
        apply_updates(base, (AddSnapshotUpdate(snapshot=again), main_is(again)), "file:///before.metadata.json")


def test_main_goes_to_no_snapshot_that_is_unknown(base: TableMetadata) -> None:
    with pytest.raises(ValueError, match="unknown snapshot"):
        apply_updates(base, (main_is(child(base.snapshots[-1], 4711)),), "file:///before.metadata.json")
