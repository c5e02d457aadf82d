"""
Another program expires snapshots, and the one the marks came with is among them: proven to be no rollback, or halted.
"""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from bookkeeper.config.settings import Reaper, Table
from bookkeeper.errors import CatalogUnavailable, HistoryChanged, Retry
from bookkeeper.stores.locations import local_path
from reaper import reap
from tests.support.lake import Lake, Writes, append_by_others, live_files
from tests.tick.test_history import change, roll_back


def others_append(lake: Lake, *keys: str) -> None:
    for key in keys:
        append_by_others(lake, Writes(lake, "foreign").file([key]))


def expire(lake: Lake, keep: int) -> None:
    """As Spark's expire_snapshots does: all but the last ones, whatever the marks need."""
    gone = [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots[:-keep]]
    change(lake, RemoveSnapshotsUpdate(snapshot_ids=gone))


def old_metadata(lake: Lake) -> list[Path]:
    files = [local_path(entry.metadata_file) for entry in lake.table().metadata.metadata_log]
    return [Path(path) for path in files if path is not None]


@pytest.fixture
def busy(lake: Lake, writer: Writes) -> Lake:
    """One commit of ours, three of others on top, and one txlog that waits."""
    writer.publish("a")
    lake.tick()
    others_append(lake, "x", "y", "z")
    writer.publish("b")
    return lake


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_old_metadata_files_prove_that_main_descends_from_the_marks(busy: Lake, keep: int) -> None:
    expire(busy, keep)
    busy.tick()
    assert busy.keys() == ["a", "b", "x", "y", "z"]


def test_without_old_metadata_files_descent_cannot_be_proven(busy: Lake) -> None:
    expire(busy, 1)
    for path in old_metadata(busy):
        path.unlink()
    with pytest.raises(HistoryChanged, match="expired") as halted:
        busy.tick()
    assert "accept-rollback" in halted.value.hint
    assert len(busy.pending()) == 1


def test_a_rollback_that_expiry_covers_up_is_still_found(busy: Lake, writer: Writes) -> None:
    busy.tick()
    roll_back(busy)  # behind the commit with `b`
    others_append(busy, "other")
    gone = [item.snapshot_id for item in busy.table().metadata.snapshots if "bookkeeper.txlogs" in _summary(item)]
    change(busy, RemoveSnapshotsUpdate(snapshot_ids=gone))
    writer.publish("c")
    with pytest.raises(HistoryChanged):
        busy.tick(seconds=11)


def test_the_reaper_keeps_what_is_left_until_our_next_commit(busy: Lake) -> None:
    expire(busy, 2)
    assert not reap(busy.catalog, eager(busy), busy.clock.move(seconds=1)).snapshots
    busy.tick()
    assert reap(busy.catalog, eager(busy), busy.clock.move(seconds=1)).snapshots
    assert busy.keys() == ["a", "b", "x", "y", "z"]


def test_the_reaper_keeps_the_metadata_files_that_prove_it(busy: Lake) -> None:
    expire(busy, 1)
    others_append(busy, *(f"more{number}" for number in range(12)))
    at_once = replace(eager(busy), reaper=replace(eager(busy).reaper, metadata_keep=timedelta(0)))
    before = [path for path in old_metadata(busy) if path.exists()]
    reap(busy.catalog, at_once, busy.clock.move(seconds=1))
    assert [path for path in old_metadata(busy) if path.exists()] == before
    busy.tick()
    reap(busy.catalog, at_once, busy.clock.move(seconds=1))
    assert [path for path in before if path.exists()] != before


def test_the_reaper_halts_as_well_where_descent_cannot_be_proven(busy: Lake) -> None:
    expire(busy, 1)
    for path in old_metadata(busy):
        path.unlink()
    with pytest.raises(HistoryChanged):
        reap(busy.catalog, eager(busy), busy.clock.move(seconds=1))


def eager(lake: Lake) -> Table:
    return replace(lake.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))


def _summary(snapshot: object) -> dict[str, str]:
    found: dict[str, str] = snapshot.summary.additional_properties  # type: ignore[attr-defined]
    return found


def test_a_rollback_to_the_marks_and_on_from_there_is_none_behind_them(busy: Lake) -> None:
    marked = busy.table().metadata.snapshots[0].snapshot_id
    change(busy, SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=marked))
    busy.tick()
    assert busy.keys() == ["a", "b"]


def test_an_old_metadata_file_that_cannot_be_read_now_is_a_retry(busy: Lake) -> None:
    expire(busy, 1)
    path = old_metadata(busy)[-1]
    whole = path.read_bytes()
    path.write_bytes(b"{")
    with pytest.raises(CatalogUnavailable):
        busy.tick()
    path.write_bytes(whole)
    busy.tick(seconds=11)
    assert busy.keys() == ["a", "b", "x", "y", "z"]


# renewal: it does not come to that


def test_marks_are_renewed_while_only_others_commit(lake: Lake, writer: Writes) -> None:
    book = lake.book(marks_renew=timedelta(minutes=10))
    writer.publish("a")
    lake.tick(book)
    others_append(lake, "x")
    lake.tick(book, minutes=9)
    assert lake.operations() == ["append", "append"]
    lake.tick(book, minutes=2)
    assert lake.operations() == ["append", "append", "replace"]
    assert lake.view().marks.snapshot == lake.table().metadata.current_snapshot_id
    expire(lake, 1)
    for path in old_metadata(lake):
        path.unlink()
    writer.publish("b")
    lake.tick(book, seconds=11)
    assert lake.keys() == ["a", "b", "x"]


def test_a_quiet_table_gets_no_commit_for_its_marks(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    book = lake.book()
    for _ in range(3):
        lake.tick(book, days=1)
    assert lake.operations() == ["append"]


def test_marks_whose_snapshot_is_gone_are_renewed_at_once_while_it_can_be_proven(busy: Lake) -> None:
    busy.tick()
    others_append(busy, "more", "most")
    expire(busy, 1)
    busy.tick(seconds=11)
    for path in old_metadata(busy):
        path.unlink()
    busy.tick(seconds=11)
    assert busy.view().marks.snapshot == busy.table().metadata.current_snapshot_id


def test_a_renewal_keeps_every_row_mark_and_total(busy: Lake) -> None:
    busy.tick()
    others_append(busy, "more")
    before, files = busy.view().marks.writers, len(live_files(busy))
    busy.tick(minutes=11)
    assert busy.view().marks.writers == before
    assert len(live_files(busy)) == files
    head = busy.table().metadata.current_snapshot()
    assert head.summary.additional_properties["total-data-files"] == str(files)
    assert os.path.basename(head.manifest_list).startswith("snap-")


def test_a_view_whose_files_others_have_deleted_is_loaded_again_at_the_next_tick(lake: Lake, writer: Writes) -> None:
    """Within the ten seconds in which the bookkeeper does not load the table, Spark may expire what it has in mind."""
    writer.publish("a")
    lake.tick()
    others_append(lake, "x")
    book = lake.book()
    lake.tick(book)  # it has seen the others' head, and none of its manifests yet
    seen = lake.table().metadata.current_snapshot()
    others_append(lake, "y")
    expire(lake, 1)
    Path(local_path(seen.manifest_list) or "").unlink()
    writer.publish("b")
    with pytest.raises(Retry):
        lake.tick(book)
    lake.tick(book)
    assert lake.keys() == ["a", "b", "x", "y"]
